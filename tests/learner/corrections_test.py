"""Weights of off-policy samples agree with a plain loop over sequences."""

import dataclasses
import math

import jax.numpy as jnp
import numpy as np
import pytest
import tiny_updates
from typed import present

from azr_jax.config.settings import Invalid
from azr_jax.learner import corrections
from azr_jax.learner.corrections import CorrectionSettings
from azr_jax.trainer import settings as train_settings

# Two sequences in a row, a target the model did not write, and padding.
SEGMENTS = np.array([[1, 1, 1, 2, 2, 0]])
MASK = np.array([[1.0, 0.0, 1.0, 1.0, 1.0, 0.0]], np.float32)
RATIOS = np.array([[0.3, 50.0, 4.0, 1.5, 1.2, 9.0]], np.float32)


def weights(kind, **numbers):
  c = CorrectionSettings(cap=2.0, low=0.5, high=1.4, **numbers)
  correct = present(corrections.make(kind, c))
  got = correct(jnp.log(RATIOS), jnp.asarray(MASK), jnp.asarray(SEGMENTS))
  return [np.asarray(x)[0][MASK[0] > 0] for x in got]


MEAN_1, MEAN_2 = math.sqrt(0.3 * 4.0), math.sqrt(1.5 * 1.2)


@pytest.mark.parametrize(
  "kind, ratio, want, fraction",
  [
    ("truncate", "product", [0.3, 2.0, 1.5, 1.2], [0, 1, 0, 0]),
    ("mask", "product", [0, 0, 0, 1.2], [1, 1, 1, 0]),
    ("sequence_truncate", "product", [1.2, 1.2, 1.8, 1.8], [0, 0, 0, 0]),
    ("sequence_mask", "product", [1.2, 1.2, 0, 0], [0, 0, 1, 1]),
    (
      "sequence_truncate",
      "geometric_mean",
      [MEAN_1, MEAN_1, MEAN_2, MEAN_2],
      [0, 0, 0, 0],
    ),
    (
      "sequence_mask",
      "geometric_mean",
      [MEAN_1, MEAN_1, MEAN_2, MEAN_2],
      [0, 0, 0, 0],
    ),
  ],
)
def test_weights_are_those_of_their_definition(kind, ratio, want, fraction):
  got, outside = weights(kind, sequence_ratio=ratio)
  np.testing.assert_allclose(got, want, rtol=1e-6)
  np.testing.assert_array_equal(outside, fraction)


def test_the_effective_fraction_is_that_of_its_formula():
  w = np.array([[0.3, 7.0, 2.0, 1.5, 1.2, 7.0]], np.float32)
  sums = corrections.sums(
    jnp.asarray(w), jnp.asarray((w > 1.9) * 1.0), jnp.asarray(MASK)
  )
  metrics = {name: value / 4 for name, value in sums.items()}
  found = corrections.with_effective_fraction(metrics)
  kept = w[MASK > 0]
  want = kept.sum() ** 2 / (4 * (kept**2).sum())
  assert found["learner/correction/effective_fraction"] == pytest.approx(want)
  assert found["learner/correction/truncated_fraction"] == 0.25
  assert "learner/correction/weight_square" not in found
  assert len(metrics) == 3  # The argument is unchanged.
  assert corrections.with_effective_fraction({}) == {}


def config(**keys):
  c = train_settings.train_config("orz")
  c.learner.row_length = 1024
  for key, value in keys.items():
    section, _, name = key.partition("__")
    c[section][name] = value
  return train_settings.read_train(c).shared


@pytest.mark.parametrize(
  "keys, want",
  [
    (dict(), "none"),
    (dict(rollout__max_staleness=1), "truncate"),
    (dict(rollout__step_tokens=8), "truncate"),
    (dict(rollout__max_staleness=1, learner__correction="none"), "none"),
    (dict(learner__correction="sequence_mask"), "sequence_mask"),
    (dict(rollout__max_staleness=1, learner__ratio_to="sampled"), "none"),
    (
      dict(rollout__max_staleness=1, learner__policy_loss="sequence_weighted"),
      "none",
    ),
  ],
)
def test_auto_corrects_where_the_sampler_may_differ(keys, want):
  assert config(**keys).correction == want


def test_samples_are_not_weighed_twice():
  with pytest.raises(Invalid, match="config.learner.correction='mask'"):
    config(learner__correction="mask", learner__ratio_to="sampled")
  with pytest.raises(Invalid, match="low=2.5: expected at most high=2.0"):
    CorrectionSettings(low=2.5)


@pytest.mark.slow
def test_a_corrected_update_is_the_plain_one_of_weighted_advantages(
  one_device_mesh,
):
  """The gradient of -w A log p equals that of -A' log p with A' = w A."""
  items = [
    dataclasses.replace(item, logprobs=item.logprobs - 1.9)
    for item in tiny_updates.sequences()
  ]
  batch = tiny_updates.batch_of(8, items=items)
  params, metrics = tiny_updates.updated(
    one_device_mesh, batch, on_policy=True, correction="truncate"
  )
  logprobs = np.asarray(tiny_updates.scored(batch))
  ratios = np.exp(np.minimum(logprobs - batch.sampled_logprobs, 20))
  capped = np.minimum(ratios, 2.0)
  plain, _ = tiny_updates.updated(
    one_device_mesh,
    batch.replace(advantages=(batch.advantages * capped).astype(np.float32)),
    on_policy=True,
  )
  tiny_updates.close(params, plain)
  trained = batch.loss_mask > 0
  fraction = np.mean(ratios[trained] > 2.0)
  assert 0 < fraction < 1
  assert metrics["learner/correction/truncated_fraction"] == pytest.approx(
    fraction, abs=1e-6
  )


@pytest.mark.slow
def test_weights_of_sequences_do_not_depend_on_the_packing(one_device_mesh):
  """Tight packing and one sequence per row give the same update."""
  items = [
    dataclasses.replace(item, logprobs=item.logprobs - 1.9)
    for item in tiny_updates.sequences()
  ]
  batch = tiny_updates.batch_of(8, items=items)
  apart, others = tiny_updates.updated(
    one_device_mesh,
    tiny_updates.batch_of(8, row_length=13, items=items),
    on_policy=True,
    correction="sequence_truncate",
  )
  packed, same = tiny_updates.updated(
    one_device_mesh, batch, on_policy=True, correction="sequence_truncate"
  )
  tiny_updates.close(packed, apart)
  for name in same:
    if "rows" not in name:
      assert same[name] == pytest.approx(others[name], rel=1e-4, abs=1e-5)


def test_the_gap_s_percentiles_are_those_of_its_tokens(one_device_mesh):
  batch = tiny_updates.batch_of(2)
  _, metrics = tiny_updates.updated(one_device_mesh, batch, on_policy=True)
  gap = np.abs(np.asarray(tiny_updates.scored(batch)) - batch.sampled_logprobs)
  gap = gap[batch.loss_mask > 0]
  mean, largest = gap.mean(), gap.max()
  assert metrics["rollout/logprob_gap"] == pytest.approx(mean, rel=1e-5)
  assert metrics["rollout/logprob_gap_max"] == pytest.approx(largest, rel=1e-5)
  for name, fraction in (("p50", 0.5), ("p99", 0.99)):
    want = np.quantile(gap, fraction, method="inverted_cdf")
    got = metrics[f"rollout/logprob_gap_{name}"]
    assert 0.9999 * want <= got <= 1.076 * want
  assert not [name for name in metrics if "correction" in name]
