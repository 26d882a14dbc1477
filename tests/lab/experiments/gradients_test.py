"""`experiments/elicitation/gradients.py`: gradients are those of a run."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from azr_jax.learner import update
from azr_jax.learner.objective import Fixed
from experiments.elicitation import gradients

MODEL = "embedded:orz-tiny"


@pytest.fixture(scope="module", name="sampled")
def sample():
  """An experiment, its parameters, and the trajectories of one step."""
  experiment = gradients.make_experiment(MODEL, {})
  params = experiment.load_trained()
  [batch] = gradients.Sums(experiment).sample(params, 1, 1)
  return experiment, params, batch


def test_the_gradient_is_that_of_an_update(sampled):
  experiment, params, batch = sampled
  vector, _ = gradients.make_variant("right", experiment).gradient(
    params, batch["right"]
  )
  values = experiment.batching.estimate_advantages(batch["right"])
  packed = experiment.batching.pack(batch["right"], values, 1)
  state = experiment.learner.init(jax.tree.map(jnp.copy, params))
  _, metrics = experiment.learner.update(
    state, update.place(packed, experiment.mesh), Fixed()
  )
  norm = float(jnp.linalg.norm(vector))
  assert norm == pytest.approx(float(metrics["learner/grad_norm"]), rel=1e-4)
  assert norm > 0.01


@pytest.mark.parametrize(
  "name",
  [
    "truncate",
    "clipped ratio to the sampler",
    "rloo, whole ratio of the sequence",
  ],
)
def test_on_policy_no_correction_changes_anything(sampled, name):
  experiment, params, batch = sampled
  keys = gradients.OLD[name]
  is_rloo = keys.get("estimator") == "rloo"
  plain = gradients.ON_POLICY["true gradient"][1] if is_rloo else {}
  found, gaps = gradients.make_variant(
    "right", gradients.make_experiment(MODEL, keys)
  ).gradient(params, batch["right"])
  expected, _ = gradients.make_variant(
    "right", gradients.make_experiment(MODEL, plain)
  ).gradient(params, batch["right"])
  size = float(jnp.linalg.norm(expected))
  np.testing.assert_allclose(found, expected, atol=1e-3 * size)
  assert all(abs(gap) < 1e-4 for gap in gaps.values())


@pytest.mark.parametrize(
  "name, factor", [("no correction", 1), ("truncate", 0.25), ("mask", 0)]
)
def test_old_samples_are_corrected(sampled, name, factor):
  """The sampler gave each token four times the policy's probability."""
  experiment, params, batch = sampled
  old = [
    dataclasses.replace(
      one,
      completion=dataclasses.replace(
        one.completion,
        logprobs=one.completion.logprobs + np.log(4, dtype=np.float32),
      ),
    )
    for one in batch["right"]
  ]
  expected, _ = gradients.make_variant("right", experiment).gradient(
    params, batch["right"]
  )
  found, metrics = gradients.make_variant(
    "right", gradients.make_experiment(MODEL, gradients.OLD[name])
  ).gradient(params, old)
  size = float(jnp.linalg.norm(expected))
  np.testing.assert_allclose(found, factor * expected, atol=1e-3 * size)
  assert list(metrics.values()) == pytest.approx([np.log(4)], abs=1e-3)


def test_answers_are_compared_within_their_style():
  rewards = [1.0, 0.0, 1.0, 1.0, 0.0]
  kinds = ["worked", "worked", "guessed", "worked", "other"]
  assert gradients.above_style(rewards, kinds) == [0.5, -1.0, 0.0, 0.5, 0.0]
