"""Objects outside the package that a config names as MODULE:NAME."""

import sys

import jax.numpy as jnp
import numpy as np
import pytest

from azr_jax.config import named
from azr_jax.config.settings import Invalid
from azr_jax.curricula import curriculum
from azr_jax.curricula.curriculum import Buckets
from azr_jax.evals import registry
from azr_jax.learner import advantages, policy_losses, surrogate_losses
from azr_jax.learner.settings import LearnerSettings
from azr_jax.systems.custom.settings import CustomSettings

MODULE = """
import jax.numpy as jnp
import numpy as np

from azr_jax.curricula.mixture import Mixture
from azr_jax.evals.benchmark import Benchmark


def best(rewards, groups, lengths):
  return (rewards == rewards.max()) * 1.0


def squared(targets, *, clip_low, weight=2.0):
  return weight * clip_low * targets.advantages**2, {}


def lacking(targets, *, nowhere):
  return targets.advantages, {}


def first_bucket(buckets):
  return Mixture(buckets, lambda step: np.eye(len(buckets.names))[0])


def half_a_curriculum(buckets):
  return object()


RIDDLES = Benchmark("riddles", "", list, "words", print)
TWIN = Benchmark("gsm8k", "", list, "words", print)
NUMBER = 3
"""


@pytest.fixture(name="module", autouse=True)
def make_module(tmp_path, monkeypatch):
  """Makes the module importable, and removes it after the test."""
  path = tmp_path / "outside_parts.py"
  path.write_text(MODULE)
  monkeypatch.syspath_prepend(str(tmp_path))
  monkeypatch.delitem(sys.modules, "outside_parts", raising=False)
  return path


def test_an_estimator_comes_from_a_module_or_a_file(module):
  for place in ("outside_parts", module):
    c = LearnerSettings(estimator=f"{place}:best")
    got = advantages.estimate(c.estimator, [1.0, 3.0], ["a", "a"], [1, 1])
    np.testing.assert_array_equal(got, [0.0, 1.0])


def test_a_policy_loss_gets_settings_by_the_names_of_its_keywords():
  c = LearnerSettings(policy_loss="outside_parts:squared", clip_low=0.5)
  made = policy_losses.make(c.policy_loss, c)
  ones = jnp.ones((1, 2))
  targets = surrogate_losses.Targets(
    ones, ones, ones, 3 * ones, ones, ones.astype(int)
  )
  loss, _ = made.loss(targets)
  np.testing.assert_array_equal(loss, [[9.0, 9.0]])
  assert made.choose is None and not made.is_weighted


def test_a_curriculum_is_made_from_the_buckets():
  c = CustomSettings(curriculum="outside_parts:first_bucket", reward="judge")
  made = curriculum.make(c.curriculum, Buckets(("a", "b"), (0, 1, 0)))
  items = made.sample(1, 5, np.random.default_rng(0))
  assert {item.bucket for item in items} == {0}


def test_a_benchmark_has_the_name_that_it_says():
  names = registry.names("gsm8k,outside_parts:RIDDLES")
  assert registry.find(names[1]).name == "riddles"
  assert registry.paths(names, "riddles=/a,b,gsm8k=/c") == {
    "outside_parts:RIDDLES": "/a,b",
    "gsm8k": "/c",
  }
  assert registry.numbers("outside_parts:RIDDLES=7") == {"riddles": 7}


@pytest.mark.parametrize(
  "key, value, message",
  [
    ("estimator", "nosuch_module:f", "No module named 'nosuch_module'"),
    ("estimator", "outside_parts:nosuch", "no function or class 'nosuch'"),
    ("estimator", "outside_parts:NUMBER", "of an estimator; this is int"),
    ("estimator", "outside_parts", "one of ('trr++'"),
    ("estimator", "grpo_unbiased", "'grpo_sample_std'"),
    ("policy_loss", "outside_parts:NUMBER", "of a policy loss; this is int"),
    ("policy_loss", "outside_parts:lacking", "unlike nowhere"),
    ("policy_loss", "nosuch_module:f", "No module named 'nosuch_module'"),
  ],
)
def test_what_cannot_be_learned_with_is_refused_in_a_line(key, value, message):
  with pytest.raises(Invalid) as caught:
    LearnerSettings(**{key: value})
  text = str(caught.value)
  assert text.startswith(f"{key}={value!r}: expected ") and message in text
  assert "\n" not in text


@pytest.mark.parametrize(
  "name, message",
  [
    ("nosuch_module:f", "No module named 'nosuch_module'"),
    ("outside_parts:nosuch", "no function or class 'nosuch'"),
    ("outside_parts:NUMBER", "of a Benchmark; this is int"),
    ("outside_parts:TWIN", "expected another name than 'gsm8k'"),
  ],
)
def test_what_is_no_benchmark_is_refused_in_a_line(name, message):
  with pytest.raises(ValueError) as caught:
    registry.names(f"gsm8k,{name}")
  text = str(caught.value)
  assert text.startswith(f"benchmark {name!r}: expected ") and message in text
  assert "\n" not in text


def test_what_is_no_curriculum_is_refused():
  with pytest.raises(Invalid, match="curriculum='outside_parts:NUMBER': expec"):
    CustomSettings(curriculum="outside_parts:NUMBER", reward="judge")
  with pytest.raises(ValueError, match="the methods sample, update, metrics"):
    curriculum.make("outside_parts:half_a_curriculum", Buckets(("a",), (0,)))


def test_a_name_has_a_place_and_a_name():
  assert named.split("a/b.py:f") == ("a/b.py", "f")
  for wrong in ("f", ":f", "a.py:", "a.py:f()"):
    with pytest.raises(ValueError, match="expected FILE.py:NAME"):
      named.split(wrong)
