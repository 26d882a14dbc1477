"""The heuristic that detects conversations which check their answer."""

import pytest

from azr_jax.systems.code_interpreter import self_checks
from azr_jax.tools import code_blocks


def conversation(*parts):
  """Returns alternating scripts and outputs, then an answer."""
  turns = [
    f"so\n```python\n{part}\n```"
    if index % 2 == 0
    else f"{code_blocks.OUTPUT_PREFIX}{part}{code_blocks.OUTPUT_SUFFIX}"
    for index, part in enumerate(parts)
  ]
  return [*turns, "<<<done>>>"]


VERIFY = """def verify(moves):
  position = 0
  for move in moves:
    position += 1 if move == "up" else -1
  return position == 2
moves = ["up", "up"]
print("right" if verify(moves) else "wrong")"""


@pytest.mark.parametrize(
  "first, output, second, checks",
  [
    ("print(6 * 7)", "42", "print(6 * 7 == 42)", True),
    ("print(6 * 7)", "42", "assert 84 / 2 == 42", True),
    ("print(6 * 7)", "-42", "x = -42\nok = x > 0\nprint(ok)", True),
    ("p()", "a b\n7", "x = 7\nif x % 2 == 0:\n  print('no')", True),
    ("p()", "['up', 'up']", VERIFY, True),
    ("p()", "{'a': (1, -2)}", "print(f(x) == {'a': (1, -2)})", True),
    ("p()", "{'a': (1, -2)}", "print(f(x) == {'a': (1, 2)})", False),
    ("p()", "1", "assert " + "-" * 99 + "2", False),
    # The comparison only counts loop iterations.
    ("print(2)", "2", "for i in range(9):\n  if i == 2:\n    print(i)", False),
    ("print(2)", "2", "for i in f():\n  if i == 2:\n    continue", False),
    ("print(2)", "2", "x = [y for y in z if y > 2]", False),
    # It tests a value that no earlier output had.
    ("print(6 * 7)", "42", "print(2 == 3)", False),
    # It contains the value but tests nothing.
    ("print(6 * 7)", "42", "print(42 + 1)", False),
    # A part of a line does not count as an earlier value.
    ("print(6 * 7)", "142", "print(6 * 7 == 42)", False),
    ("print(6 * 7)", "42", "not python (", False),
    ("print(6 * 7)", "42", "import a" + ".a" * 200 + "\nassert 42", False),
  ],
)
def test_a_check_names_an_earlier_value_and_judges(
  first, output, second, checks
):
  turns = conversation(first, output, second, "True")
  assert self_checks.has_self_check(turns) == checks


def test_a_check_follows_a_script():
  assert not self_checks.has_self_check(conversation("print(42 == 42)", "True"))
  assert not self_checks.has_self_check(["<<<42>>>"])
  # An earlier answer between marks counts as an earlier value.
  turns = conversation("x()", "none", "print(6 * 7 == 42)", "True")
  assert not self_checks.has_self_check(turns)
  turns[0] = f"<<<42>>> perhaps {turns[0]}"
  assert self_checks.has_self_check(turns)
