"""The table that `azr_jax.evaluate` prints, with published numbers below."""

from collections.abc import Mapping, Sequence

from azr_jax.evals import question_table, table
from azr_jax.report.references import References


def show(
  model: str,
  scores: Mapping[str, float],
  agents: Sequence[str],
  published: References,
) -> str:
  """Returns a Markdown table by benchmark, or by agent as in R1-CI's table 3.

  Args:
    model: name of the first row.
    scores: values by metric, as `azr_jax.evaluate` returns them.
    agents: the agents that answered; () if the model answered alone.
    published: values of the same benchmarks, a row for each label.
  """
  by_agent = question_table.show(
    question_table.of_agents(scores, tuple(agents))
  )
  rows = {model: scores}
  suffix = table.main_score("")
  names = [key.removesuffix(suffix) for key in scores if key.endswith(suffix)]
  for label, values in published.scores(names).items():
    rows[label] = {
      table.main_score(name) if name in names else name: value
      for name, value in values.items()
    }
  if by_agent and len(rows) == 1:
    return by_agent
  return "\n\n".join(filter(None, (by_agent, table.show(rows))))
