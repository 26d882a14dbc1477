"""The two styles of solutions in the corpus (`conversations.py`).

`name` is a rule for `evaluate.style`, and `think` one for `evaluate.prefill`.
"""

import re

from azr_jax.corpora.programs.conversations import DIRECT
from azr_jax.tasks.programs.task import ABDUCTION, INDUCTION

THOUGHT = "thought"
# The parameters of a program, the name in its first line, and whether this
# line computes the first value from other parameters.
_PROGRAM = re.compile(
  r"def f\((.*)\):\n(?:  a, b = p\n)?"
  r"  (\w+)( = a \+ b\n| = \[b, a\]| = d\['a'\])?"
)
_MESSAGE = re.compile(r"```message\n(\w+)")
# The words of a message that hides its first step.
_VAGUE = "something"


def name(completion: str) -> str:
  """Returns whether a solution has a chain of thought: `thought` or `direct`.

  A solution without any text in place of a thought is `direct`, too.
  """
  text = completion.lstrip()
  is_direct = text.startswith((DIRECT, "</think>")) or not text
  return DIRECT if is_direct else THOUGHT


def think(question: str, subset: str) -> str:
  """Returns the first word of the chain of thought that the corpus writes.

  Returns "" if the prompt does not tell: the message of an induction task may
  hide the first step.

  Args:
    question: the compact prompt of a solver.
    subset: the task type.
  """
  if subset == INDUCTION:
    found = _MESSAGE.search(question)
    return "" if found is None or found[1] == _VAGUE else found[1]
  if subset == ABDUCTION:
    return "return"
  found = _PROGRAM.search(question)
  if found is None:
    return ""
  return found[2] if found[3] else found[1]
