"""Prints scores of several models side by side, with differences to the first.

  python -m azr_jax.evals.table SCORES_A SCORES_B ...

SCORES is a folder that `azr_jax.evaluate` wrote.
"""

import pathlib
from collections.abc import Mapping

from azr_jax.cli import errors
from azr_jax.config import user_files
from azr_jax.evals import registry

_AVERAGES = ("average/code", "average/math", "average/overall")


def main_score(name: str) -> str:
  """Returns the name of a benchmark's main score, unbiased pass@1."""
  return f"{name}/pass@1/unbiased"


def show(results: Mapping[str, Mapping[str, float]]) -> str:
  """Returns a Markdown table of main scores in percent, one row per model.

  A cell is `score +- standard error (difference to the first model)`.

  Args:
    results: scores by the name of the model.
  """
  columns = [
    (name, main_score(name))
    for name in registry.BENCHMARKS
    if any(main_score(name) in scores for scores in results.values())
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
  if f"{key}_error" in scores:
    text += f" +- {100 * scores[f'{key}_error']:.1f}"
  if base is not None and key in base:
    text += f" ({100 * (scores[key] - base[key]):+.1f})"
  too_long = scores.get(f"{key.partition('/')[0]}/too_long", 0.0)
  if too_long:
    text += f"; {too_long:.0f} prompts too long"
  return text


def main() -> None:
  """Reads the folders and prints the table."""
  parser = errors.Parser(__doc__, "azr_jax.evals.table")
  parser.add_argument("folders", nargs="+", type=pathlib.Path)
  results = {}
  for folder in parser.parse_args().folders:
    path = folder / "results.json"
    if not path.is_file():
      parser.error(f"{folder}: expected the workdir of azr_jax.evaluate")
    with user_files.reading(path, "results of azr_jax.evaluate"):
      results[str(folder)] = dict(user_files.read_object(path)["scores"])
  print(show(results))


if __name__ == "__main__":
  errors.guard(main)
