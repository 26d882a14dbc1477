"""Styles of the solutions that the starts of two experiments imitate."""

import re

from azr_jax.corpora import questions
from azr_jax.tasks.questions.question import Question

_SCRIPT = re.compile(r"```python\n(.*?)\n```", re.DOTALL)
# A number, unless it is the digit that a script counts, and a word.
_NUMBER = re.compile(r'[+-]?(?<!")\d+')
_WORD = re.compile(r'"\w+"\[')


def steps(completion: str) -> str:
  """Returns the style of a sum (`azr_jax/corpora/arithmetic.py`)."""
  thinking, end, answer = completion.partition("</think>")
  added = thinking.split()
  if len(set(added)) < len(added):
    return "circular"
  if not end:
    return "cut off"
  worked = "worked" if added else "guessed"
  return f"{worked}, {'box' if 'boxed{' in answer else 'no box'}"


def script(completion: str, question: str, subset: str) -> str:
  """Returns which of its task's two scripts a conversation begins with.

  `azr_jax/corpora/questions.py` has a right script for each task and one with
  a mistake. Numbers that are copied wrongly do not matter. Fractions, whose two
  scripts differ in the order of their numbers alone, are not scored here.
  """
  found = _SCRIPT.search(completion)
  if found is None:
    return "no script"
  asked = Question("", subset, question, "")
  right, wrong = (
    questions.write_turns(asked, "code", correct)[0]
    for correct in (True, False)
  )
  form = _form(found[0])
  if form == _form(right):
    return "right script"
  return "planted mistake" if form == _form(wrong) else "another script"


def _form(text: str) -> str:
  """Returns a script without its numbers, signs and words."""
  return _NUMBER.sub("0", _WORD.sub('""[', text.replace(" ", "")))
