"""Control rewards pay for something other than right answers."""

import numpy as np

from azr_jax.learner import advantages
from azr_jax.systems.custom import controls


def answer(number: object) -> str:
  return f"1+1=2</think>\n<answer>\\boxed{{{number}}}</answer>"


def test_a_coin_ignores_texts_and_repeats():
  texts = [answer(2)] * 2000
  drawn = controls.coin(["1 + 1 ="] * 2000, texts)
  assert drawn == controls.coin(["1 + 1 ="] * 2000, texts)
  assert set(drawn) == {0.0, 1.0}
  # Six standard deviations of a fair coin.
  assert abs(np.mean(drawn) - 0.5) < 6 * 0.5 / np.sqrt(2000)
  assert drawn != controls.coin(["1 + 2 ="] * 2000, texts)


def test_any_number_in_tags_is_an_answer():
  assert controls.is_answered(answer(99)) == 1
  assert controls.is_answered("<answer>two</answer>") == 0


def test_a_majority_wins_and_texts_without_numbers_do_not_vote():
  texts = ["?", "?", answer(3), answer(2), answer(2), "?"]
  assert controls.majority(texts) == [0, 0, 0, 1, 1, 0]
  assert controls.majority([answer(3), answer(2)]) == [1, 0]
  assert controls.majority(["?"]) == [0]


def test_rewards_alone_weigh_right_responses():
  got = advantages.estimate("reward", [1, 0, 0.5], ["a", "a", "b"], [3, 4, 5])
  np.testing.assert_array_equal(got, [1, 0, 0.5])
