"""The first mistake of answers to sums of five numbers."""

import pytest

from experiments.five_numbers import mistakes

QUESTION = "State the answer to the problem: 92 - 23 + 46 - 21 - 30 ="
STEPS = "92-23=69 69+46=115 115-21=94 94-30=64"


def answer(steps=STEPS, box=64):
  return f"{steps}</think>\n<answer>\\boxed{{{box}}}</answer>"


def test_terms_have_signs():
  assert mistakes.terms(QUESTION) == [92, -23, 46, -21, -30]


@pytest.mark.parametrize(
  ("text", "mistake"),
  [
    (answer(), "right"),
    (answer(box=63), "other"),
    (answer(f"{STEPS} 64-1=63", 63), "other"),
    (STEPS, "other"),  # Without a box.
    (answer("92-23=69 69+46=115 115-21=94", 94), "stops after 3"),
    (answer("", 64), "stops after 0"),
    (answer(STEPS.replace("=69", "=79")), "result 1"),
    (answer(STEPS.replace("=94", "=93")), "result 3"),
    (answer(STEPS.replace("94-30=64", "94-21=73"), 73), "numbers 4"),
    (answer(STEPS.replace("94-30=64", "94+30=124"), 124), "numbers 4"),
    (answer(STEPS.replace(" 94-30", " 95-30")), "numbers 4"),
  ],
)
def test_the_first_mistake_is_named(text, mistake):
  assert mistakes.first_mistake(QUESTION, text) == mistake


@pytest.mark.parametrize(
  ("text", "has_own", "is_right"),
  [
    (answer(), True, True),
    (answer(box=63), True, False),
    # A wrong result, from which the next step goes on.
    (answer(STEPS.replace("115", "114"), 64), True, True),
    (answer(STEPS.replace("94-30", "94-31")), False, True),
    (answer(STEPS.replace("=115 115", "=114 115")), False, True),
    (answer("92-23=69", 64), False, True),
    (STEPS, True, False),
  ],
)
def test_a_sum_s_own_numbers(text, has_own, is_right):
  assert mistakes.has_own_numbers(QUESTION, text) == has_own
  assert mistakes.is_right(QUESTION, text) == is_right


def test_negative_results_continue():
  question = "1 - 9 + 2 ="
  assert mistakes.first_mistake(question, answer("1-9=-8 -8+2=-6", -6)) == (
    "right"
  )


def test_kept_answers_are_counted_by_arm(capsys):
  mistakes.main()
  printed = capsys.readouterr().out.splitlines()
  lines = dict(line.split(": ", 1) for line in printed[::2])
  assert all(line.startswith("  own numbers ") for line in printed[1::2])
  assert lines.keys() == {"right", "start", "steps", "supervised"}
  for line in lines.values():
    shares = [float(part.rpartition(" ")[2]) for part in line.split(", ")]
    assert sum(shares) == pytest.approx(100, abs=1)
