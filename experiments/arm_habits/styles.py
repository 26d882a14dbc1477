"""Styles of the answers of three starts."""

import ast
import re

from azr_jax.corpora import questions
from azr_jax.tasks.questions.question import Question

_SCRIPT = re.compile(r"```python\n(.*?)\n```", re.DOTALL)
# A number, unless it is the digit that a script counts, and a word.
_NUMBER = re.compile(r'[+-]?(?<!")\d+')
_WORD = re.compile(r'"\w+"\[')


def steps(completion: str) -> str:
  """Returns the style of a sum (`azr_jax/corpora/arithmetic.py`).

  An answer that repeats a step is circular, even if it ends.
  """
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


def signs(completion: str) -> str:
  """Returns the signs of the numbers in a Countdown answer, largest first.

  Expressions with `*` or `/` are one style, because signs do not describe them.
  """
  answer = completion.partition("<answer>")[2].partition("</answer>")[0]
  if not answer.strip():
    return "no answer"
  if set("*/") & set(answer):
    return "multiplies or divides"
  try:
    terms = _terms(ast.parse(answer.strip(), mode="eval").body, 1)
  except (SyntaxError, ValueError):
    return "malformed"
  return "".join("+" if sign > 0 else "-" for _, sign in sorted(terms)[::-1])


def _terms(node: ast.expr, sign: int) -> list[tuple[int, int]]:
  """Returns the numbers of a sum with their signs.

  Raises:
    ValueError: the expression has something else than sums and differences.
  """
  if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
    right = sign if isinstance(node.op, ast.Add) else -sign
    return _terms(node.left, sign) + _terms(node.right, right)
  if isinstance(node, ast.Constant) and isinstance(node.value, int):
    return [(node.value, sign)]
  raise ValueError(ast.dump(node))
