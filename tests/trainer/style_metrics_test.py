"""`train.style`: fractions and rewards of the styles of a step."""

import time

import numpy as np
import pytest

from azr_jax import types
from azr_jax.trainer.style_metrics import StyleMetrics

RULE = """
import os, time
def style(completion, question, subset, num_tool_calls):
  if "fail" in completion: raise KeyError(completion)
  if "long" in completion: return 100 * "x"
  if "hang" in completion: time.sleep(1000)
  if "die" in completion: os._exit(1)
  return f"{completion}, {question} {subset} {num_tool_calls}"
"""


def trajectory(text, reward=0.0, group=("solve", 3), mask=(1,), asked="why?"):
  ids = np.zeros(len(mask), np.int32)
  completion = types.Completion(
    ids, ids.astype(np.float32), np.array(mask, bool), "stop", text
  )
  return types.Trajectory(types.Prompt(asked, ()), completion, reward, group)


@pytest.fixture
def said():
  return []


@pytest.fixture
def by_file(tmp_path, said):
  path = tmp_path / "rule.py"
  path.write_text(RULE)
  with StyleMetrics.open(f"{path}:style", said.append) as opened:
    yield opened


@pytest.fixture
def by_word(said):
  with StyleMetrics.open("first_word", said.append) as opened:
    yield opened


def fractions(found):
  return {k: v for k, v in found.items() if k.endswith("_fraction")}


def test_fractions_and_rewards_are_those_of_each_role(by_word):
  solved = ("deduction", "solve")
  found = by_word.of_step(
    1,
    [
      trajectory("Think first", 1.0, solved),
      trajectory("think more", 0.0, solved),
      trajectory("direct", 0.5, solved),
      trajectory("Direct", 0.25, solved, asked="where?"),
      trajectory("direct", -1.0, ("abduction", "propose")),
    ],
  )
  assert found == {
    "style/deduction/solve/think_fraction": 0.5,
    "style/deduction/solve/think_reward": 0.5,
    "style/deduction/solve/direct_fraction": 0.5,
    "style/deduction/solve/direct_reward": 0.375,
    "style/abduction/propose/direct_fraction": 1.0,
    "style/abduction/propose/direct_reward": -1.0,
  }


def test_a_failing_rule_is_called_again(by_file, said):
  found = by_file.of_step(
    3,
    [
      trajectory("fail", 1.0),
      trajectory("long"),
      trajectory("a", mask=(1, 0, 0, 1, 0, 1)),
      trajectory("b", group="a prompt/of many"),
    ],
  )
  assert fractions(found) == {
    "style/solve/failed_fraction": pytest.approx(2 / 3),
    "style/solve/a_why_solve_2_fraction": pytest.approx(1 / 3),
    "style/all/b_why_all_0_fraction": 1.0,
  }
  assert found["style/solve/failed_reward"] == 0.5
  [line] = said
  assert line.startswith("step 3: train.style=") and "KeyError" in line
  assert by_file.of_step(4, [trajectory("a")]) and len(said) == 1


@pytest.mark.parametrize("word", ["hang", "die"])
def test_a_rule_that_hangs_or_dies_is_dropped(by_file, said, word):
  start = time.monotonic()
  many = [trajectory("a", asked=str(n)) for n in range(9)]
  stuck = [trajectory(word, asked=f"{n}?") for n in range(500)]
  assert by_file.of_step(5, many + stuck) == {}
  assert by_file.of_step(6, many) == {}
  assert time.monotonic() - start < 60
  [line] = said
  assert line.endswith("; it is not called again")


def test_rare_styles_are_joined(by_word):
  texts = ["often"] * 97 + ["rare"] + ["seldom"] * 2
  found = fractions(by_word.of_step(1, [trajectory(text) for text in texts]))
  assert found == {
    "style/solve/often_fraction": 0.97,
    "style/solve/seldom_fraction": 0.02,
    "style/solve/others_fraction": 0.01,
  }


def test_a_group_without_names_has_no_role_in_metrics(by_word):
  groups = (np.int64(4), 5), 7, "text"
  found = by_word.of_step(1, [trajectory("a", group=one) for one in groups])
  assert found == {"style/all/a_fraction": 1.0, "style/all/a_reward": 0.0}


def test_without_a_rule_there_are_no_metrics(said):
  with StyleMetrics.open("", said.append) as opened:
    assert opened.of_step(1, [trajectory("a")]) == {}
