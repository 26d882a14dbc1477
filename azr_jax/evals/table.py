"""Prints scores of several models side by side, with differences to the first.

  python -m azr_jax.evals.table SCORES_A SCORES_B ...
  python -m azr_jax.evals.table SCORES_A SCORES_B_0,SCORES_B_1,SCORES_B_2

SCORES is a folder that `azr_jax.evaluate` wrote. Comma-separated folders are
one model trained with several seeds. Errors are standard errors over items and,
with several seeds, over seeds. `azr_jax.compare` prints errors of differences.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np
from jaxtyping import Float

from azr_jax.cli import errors
from azr_jax.evals import registry, score_files, statistics
from azr_jax.evals.score_files import ScoredModel

_AVERAGES = ("average/code", "average/math", "average/overall")


def main_score(name: str) -> str:
  """Returns the name of a benchmark's main score, unbiased pass@1."""
  return f"{name}/pass@1/unbiased"


def show(results: Mapping[str, Mapping[str, float]]) -> str:
  """Returns a Markdown table of main scores in percent, one row per model.

  A cell is `score +- standard error (difference to the first model)`.

  Args:
    results: scores by model name. For a model with several seeds, use `merged`.
  """
  scored = [
    key.removesuffix(main_score(""))
    for scores in results.values()
    for key in scores
    if key.endswith(main_score("")) and key.count("/") == 2
  ]
  # Built-in benchmarks come first, in the order of the registry.
  columns = [
    (name, main_score(name))
    for name in dict.fromkeys((*registry.BENCHMARKS, *scored))
    if name in scored
  ]
  columns += [
    (name.partition("/")[2], name)
    for name in _AVERAGES
    if any(name in scores for scores in results.values())
  ]
  first = next(iter(results.values()))
  lines = [
    "| model | " + " | ".join(name for name, _ in columns) + " |",
    "| --- |" + " --- |" * len(columns),
  ]
  for name, scores in results.items():
    base = None if scores is first else first
    cells = [_cell(scores, key, base) for _, key in columns]
    lines.append(f"| {name} | " + " | ".join(cells) + " |")
  return "\n".join(lines)


def _cell(
  scores: Mapping[str, float], key: str, base: Mapping[str, float] | None
) -> str:
  if key not in scores:
    return ""
  text = f"{100 * scores[key]:.1f}"
  if f"{key}_stderr" in scores:
    text += f" +- {100 * scores[f'{key}_stderr']:.1f}"
  if f"{key}_seed_stderr" in scores:
    text += f" (items) +- {100 * scores[f'{key}_seed_stderr']:.1f} (seeds)"
  if base is not None and key in base:
    text += f" ({100 * (scores[key] - base[key]):+.1f})"
  too_long = scores.get(f"{key.partition('/')[0]}/too_long", 0.0)
  if too_long:
    text += f"; {too_long:.0f} prompts too long"
  return text


def merged(model: ScoredModel) -> dict[str, float]:
  """Averages a model's scores over its seeds, for `show`.

  `NAME_stderr` is the standard error over items, each averaged over seeds.
  `NAME_seed_stderr` is the standard error over seeds.

  Raises:
    ValueError: a folder's records are damaged, or the folders have different
      items.
  """
  if len(model.folders) == 1:
    return dict(model.scores[0])
  scores: dict[str, float] = {}
  item_stderrs: dict[str, float] = {}
  for name in model.benchmarks():
    found = statistics.estimate(_values(model, name))
    item_stderrs[name] = found.item_stderr
    scores |= _with_errors(main_score(name), found)
    scores[f"{name}/too_long"] = max(
      one.get(f"{name}/too_long", 0.0) for one in model.scores
    )
  errors_of = registry.average_errors(item_stderrs)
  for name in _AVERAGES:
    if all(name in one for one in model.scores):
      seeds = np.array([[one[name]] for one in model.scores])
      found = statistics.estimate(seeds)
      item_stderr = errors_of.get(f"{name}_stderr", 0.0)
      scores |= _with_errors(
        name, dataclasses.replace(found, item_stderr=item_stderr)
      )
  return scores


def _values(model: ScoredModel, name: str) -> Float[np.ndarray, "seeds items"]:
  """Returns pass@1 on a benchmark.

  Raises:
    ValueError: the folders have different items.
  """
  counts = {int(scores[f"{name}/items"]) for scores in model.scores}
  questions, correct = score_files.read_items(model, name)
  if len(counts) > 1 or len(questions) > min(counts):
    raise ValueError(
      f"{name}: expected scores of the same items in each folder of "
      f"{model.name}; evaluate all with the same --data and --limit"
    )
  return score_files.values(correct, list(questions), counts.pop(), k=1)


def _with_errors(name: str, found: statistics.ModelScore) -> dict[str, float]:
  scores = {name: found.mean, f"{name}_stderr": found.item_stderr}
  if found.seed_stderr is not None:
    scores[f"{name}_seed_stderr"] = found.seed_stderr
  return scores


def main() -> None:
  """Reads the folders and prints the table."""
  parser = errors.Parser(__doc__, "azr_jax.evals.table")
  parser.add_argument("models", nargs="+", metavar="SCORES[,SCORES...]")
  models = map(score_files.read_model, parser.parse_args().models)
  print(show({model.name: merged(model) for model in models}))


if __name__ == "__main__":
  errors.guard(main)
