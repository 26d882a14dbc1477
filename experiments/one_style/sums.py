"""Writes the sums of `one_style` and of `elicitation`, in their folders.

`python -m experiments.one_style.sums` needs the extra `gym`. Sums of six terms
are nowhere in it, nor in the start's data, which has three and four. Those of
`elicitation` have two digits like the scored ones, and leave those out.
"""

import json
import pathlib
from collections.abc import Container, Iterable

from azr_jax.tasks.mathematics import prompts, sources

_PER_LENGTH = 1200
# The start's data have seed 0, and the scored sums 9.
_SEED = 1
_SCORED_SEED = 9
_SCORED = 1000


def style(completion: str) -> str:
  """Returns whether a solution shows its steps and boxes a number."""
  thinking, _, rest = completion.partition("</think>")
  return ("steps" if "=" in thinking else "no steps") + (
    ", boxed" if "\\boxed{" in rest else ", no box"
  )


def _write(
  folder: str,
  lengths: Iterable[int],
  digits: str,
  left_out: Container[str] = (),
) -> None:
  """Writes as many sums of each length, without the questions left out."""
  rows = []
  for terms in lengths:
    spec = f"gym:chain_sum(min_terms={terms}, max_terms={terms}, {digits})"
    for problem in sources.read(spec, _PER_LENGTH, _SEED):
      if problem.question not in left_out:
        prompt = prompts.solve_prompt(problem.question, "compact")
        rows.append(
          {"prompt": prompt, "answer": problem.answer, "terms": terms}
        )
  text = "".join(json.dumps(row) + "\n" for row in rows)
  path = pathlib.Path(__file__).parents[1] / folder / "sums.jsonl"
  path.write_text(text, "utf-8")


def main() -> None:
  """Writes both files."""
  two_digits = "min_digits=2, max_digits=2"
  scored = f"gym:chain_sum(min_terms=3, max_terms=4, {two_digits})"
  _write("one_style", (3, 4, 5), "max_digits=2")
  _write(
    "elicitation",
    (3, 4),
    two_digits,
    {one.question for one in sources.read(scored, _SCORED, _SCORED_SEED)},
  )


if __name__ == "__main__":
  main()
