"""Styles of the solutions of two starts, on conversations of their corpora."""

import re

import pytest

from azr_jax.corpora import arithmetic, questions
from azr_jax.tasks.mathematics.problem import Problem
from azr_jax.tasks.questions import sources
from experiments.arm_habits import styles

TASKS = (
  "products",
  "chain_sum",
  "gcd",
  "lcm",
  "count_bits",
  "count_primes(min_n=2, max_n=99)",
  "spell_backward",
)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("style", ["code", "check"])
def test_a_planted_script_is_told_from_its_mistake(task, style):
  for question in sources.read(f"gym:{task}", 20, 3):
    for correct, name in ((True, "right script"), (False, "planted mistake")):
      turns = questions.write_turns(question, style, correct)
      found = styles.script("".join(turns), question.text, question.task)
      assert found == name, turns


@pytest.mark.parametrize(
  ("script", "name"),
  [
    ("print(21*34)", "right script"),  # A copied number is wrong.
    ("print(21 * 35)", "right script"),
    ("print(21+35)", "planted mistake"),
    ("print(21*35*1)", "another script"),
    ("print(735)", "another script"),
    (None, "no script"),
  ],
)
def test_copied_numbers_do_not_change_a_style(script, name):
  text = "<<<735>>>" if script is None else f"```python\n{script}\n```"
  question = "Solve the following multiplication: 21 * 35."
  assert styles.script(text, question, "gym/products") == name


@pytest.mark.parametrize(
  ("style", "name"),
  [
    ("chain_of_thought", "worked, box"),
    ("guessed", "guessed, box"),
    ("bare", "worked, no box"),
    ("circular", "circular"),
  ],
)
def test_styles_of_sums_are_those_of_the_corpus(style, name):
  problem = Problem("Add: 12 + 7 - 4 + 30 =", "45")
  text = arithmetic.write_response(problem, style)
  assert styles.steps(text) == name


def test_an_unfinished_sum_is_cut_off():
  text = arithmetic.write_response(
    Problem("Add: 12 + 7 - 4 + 30 =", "45"), "chain_of_thought"
  )
  assert styles.steps(re.split("</think>", text)[0]) == "cut off"


@pytest.mark.parametrize(
  ("answer", "style"),
  [
    ("61-(33-1)", "+-+"),
    ("(33+61)-1", "++-"),
    ("1-(33-61)", "+-+"),
    ("5+5-2", "++-"),
    ("(1+33)/61", "multiplies or divides"),
    ("61-", "malformed"),
    ("61-x", "malformed"),
    ("93", "+"),
    ("", "no answer"),
    (None, "no answer"),
  ],
)
def test_signs_are_those_of_the_sorted_numbers(answer, style):
  text = "61-33=28</think>\n"
  if answer is not None:
    text += f"<answer>{answer}</answer>"
  assert styles.signs(text) == style
