"""`train.style`: fractions and rewards of the styles of a step."""

import numpy as np
import pytest

from azr_jax import types
from azr_jax.evals import styles
from azr_jax.trainer import style_metrics

RULE = """
def style(completion, question, subset, num_tool_calls):
  if "fail" in completion:
    raise KeyError(completion)
  if "long" in completion:
    return 100 * "x"
  return f"{completion}, {question} {subset} {num_tool_calls}"
"""


def trajectory(text, reward=0.0, group=("solve", 3), mask=(1,), prefill=""):
  ids = np.zeros(len(mask), np.int32)
  completion = types.Completion(
    ids, ids.astype(np.float32), np.array(mask, bool), "stop", text
  )
  prompt = types.Prompt("why?", (), prefill=prefill)
  return types.Trajectory(prompt, completion, reward, group)


def test_fractions_and_rewards_are_those_of_each_role():
  solved = ("deduction", "solve")
  with styles.open_rule("first_word", style_metrics.FAILED) as rule:
    found = style_metrics.of_step(
      rule,
      [
        trajectory("Think first", 1.0, solved),
        trajectory("think more", 0.0, solved),
        trajectory("direct", 0.5, solved),
        trajectory("rect", 0.25, solved, prefill="di"),
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


def test_a_failing_rule_does_not_stop_a_run(tmp_path):
  path = tmp_path / "rule.py"
  path.write_text(RULE)
  with styles.open_rule(f"{path}:style", style_metrics.FAILED) as rule:
    found = style_metrics.of_step(
      rule,
      [
        trajectory("fail", 1.0),
        trajectory("long"),
        trajectory("a", mask=(1, 0, 0, 1, 0, 1)),
        trajectory("b", group=7),
      ],
    )
  fractions = {k: v for k, v in found.items() if k.endswith("_fraction")}
  assert fractions == {
    "style/solve/failed_fraction": pytest.approx(2 / 3),
    "style/solve/a_why_solve_2_fraction": pytest.approx(1 / 3),
    "style/all/b_why_all_0_fraction": 1.0,
  }
  assert found["style/solve/failed_reward"] == 0.5


def test_rare_styles_are_joined():
  words = [f"w{n}" for n in range(style_metrics.MAX_STYLES)]
  texts = [*words, *words, "rare", "seldom"]
  with styles.open_rule("first_word") as rule:
    found = style_metrics.of_step(rule, [trajectory(text) for text in texts])
  fractions = {k: v for k, v in found.items() if k.endswith("_fraction")}
  assert len(fractions) == style_metrics.MAX_STYLES + 1
  assert sum(fractions.values()) == pytest.approx(1.0)
  assert fractions["style/solve/others_fraction"] == 2 / len(texts)


def test_without_a_rule_there_are_no_metrics():
  with styles.open_rule("") as rule:
    assert style_metrics.of_step(rule, [trajectory("a")]) == {}
