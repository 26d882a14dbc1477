"""Writes the sums of the experiment: `sums.jsonl` beside this file.

`python experiments/one_style/sums.py` needs the extra `gym`. Sums of six terms
are nowhere in it, nor in the start's data, which has three and four.
"""

import json
import pathlib

from azr_jax.tasks.mathematics import prompts, sources

_TERMS = (3, 4, 5)
_PER_LENGTH = 1200
# The start's data have seed 0, and the scored sums 9.
_SEED = 1


def style(completion: str) -> str:
  """Returns whether a solution shows its steps and boxes a number."""
  thinking, _, rest = completion.partition("</think>")
  return ("steps" if "=" in thinking else "no steps") + (
    ", boxed" if "\\boxed{" in rest else ", no box"
  )


def main() -> None:
  """Writes as many sums of each length."""
  rows = []
  for terms in _TERMS:
    spec = f"gym:chain_sum(min_terms={terms}, max_terms={terms}, max_digits=2)"
    for problem in sources.read(spec, _PER_LENGTH, _SEED):
      prompt = prompts.solve_prompt(problem.question, "compact")
      rows.append({"prompt": prompt, "answer": problem.answer, "terms": terms})
  text = "".join(json.dumps(row) + "\n" for row in rows)
  path = pathlib.Path(__file__).with_name("sums.jsonl")
  path.write_text(text, "utf-8")


if __name__ == "__main__":
  main()
