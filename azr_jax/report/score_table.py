"""Tables that `azr_jax.evaluate` prints, with published numbers below."""

from collections.abc import Mapping, Sequence

from azr_jax.evals import question_table, table
from azr_jax.report.references import References
from azr_jax.trainer.checkpoint_scores import CheckpointScores, selection_score


def show(
  models: Mapping[str, Mapping[str, float]],
  agents: Sequence[str],
  published: References,
) -> str:
  """Returns a Markdown table by benchmark, or by agent as in R1-CI's table 3.

  Args:
    models: for each model, or checkpoint of one, values by metric as
      `azr_jax.evaluate` returns them. Other rows are compared with the first.
    agents: the agents that answered; () if the models answered alone.
    published: values of the same benchmarks, a row for each label.
  """
  of_agents = {}
  for model, scores in models.items():
    label = f"{model}: " if len(models) > 1 else ""
    of_agents |= question_table.of_agents(scores, tuple(agents), label)
  by_agent = question_table.show(of_agents)
  rows = dict(models)
  suffix = table.main_score("")
  names = [
    key.removesuffix(suffix)
    for scores in models.values()
    for key in scores
    if key.endswith(suffix)
  ]
  for label, values in published.scores(names).items():
    rows[label] = {
      table.main_score(name) if name in names else name: value
      for name, value in values.items()
    }
  if by_agent and len(rows) == len(models):
    return by_agent
  return "\n\n".join(filter(None, (by_agent, table.show(rows))))


def show_all(
  scores: Mapping[str, float],
  model: str,
  agents: Sequence[str],
  published: References,
) -> str:
  """Returns every value of a model, one a line, and the table of `show`."""
  lines = [f"{name:40s} {value:.4f}" for name, value in sorted(scores.items())]
  return "\n".join([*lines, show({model: scores}, agents, published)])


def show_checkpoints(
  model: str,
  found: CheckpointScores,
  agents: Sequence[str],
  published: References,
) -> str:
  """Returns the scores of a run's checkpoints, and which one was chosen.

  Args:
    model: the run.
    found: the scores of its checkpoints.
    agents: see `show`.
    published: see `show`.
  """
  lines = []
  for step in sorted(found.validation):
    value, error = selection_score(found.select, found.validation[step])
    notes = {"chosen": found.chosen == step, "last": found.last == step}
    words = ", ".join(word for word, holds in notes.items() if holds)
    score = f"{100 * value:.1f} +- {100 * error:.1f}"
    lines.append(f"step {step}: {score} on {found.select}  {words}".rstrip())
  if found.shared:
    lines.append(
      f"step {found.chosen} is the best of {len(found.validation)} by "
      f"{', '.join(found.shared)} itself: its score there is biased upwards"
    )
  rows = {}
  for step in sorted(found.scores, reverse=True):
    notes = {"last": found.last == step, "chosen": found.chosen == step}
    words = " and ".join(word for word, holds in notes.items() if holds)
    rows[f"{model}, step {step}" + (f" ({words})" if words else "")] = (
      found.scores[step]
    )
  return "\n".join([*lines, "", show(rows, agents, published)]).lstrip()
