"""Several optimizer steps on a batch, against NumPy on a two-layer model."""

from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from typed import present

from azr_jax.config.settings import Invalid
from azr_jax.learner import (
  critic_update,
  minibatches,
  packing,
  train_state,
  update,
)
from azr_jax.learner.objective import Fixed
from azr_jax.learner.settings import LearnerSettings

VOCABULARY, WIDTH, RATE, CLIP = 7, 5, 2.0, 0.2
MICRO_ROWS, ROW = 1, 12


def examples():
  """Eleven sequences of 3 to 8 ids, whose first two are the prompt."""
  rng = np.random.default_rng(0)
  return [
    packing.TrainingExample(
      rng.integers(0, VOCABULARY, length, np.int32),
      np.arange(length) >= 2,
      float(rng.normal()),
      np.zeros(length, np.float32),
    )
    for length in rng.integers(3, 9, 11)
  ]


def batch_of(parts, aggregation="sequence_mean"):
  return packing.pack_minibatches(
    examples(),
    parts,
    MICRO_ROWS,
    np.random.default_rng(1),
    row_length=ROW,
    rows_multiple=16,
    aggregation=aggregation,
  )


def params_of(seed):
  draw = np.random.default_rng(seed).normal
  return {
    "layers": draw(0, 1, (VOCABULARY, WIDTH)),
    "head": draw(0, 1, (WIDTH, VOCABULARY)),
  }


def logprobs_of(params, tokens, targets, xp=np):
  """Log-probabilities of targets under the two-layer model, with its parts."""
  hidden = xp.tanh(params["layers"][tokens])
  logits = hidden @ params["head"]
  logits = logits - logits.max(-1, keepdims=True)
  logp = logits - xp.log(xp.exp(logits).sum(-1, keepdims=True))
  found = xp.take_along_axis(logp, targets[..., None], -1)[..., 0]
  return found, hidden, logp


def by_hand(params, old, batch, parts):
  """One step of gradient descent per part; the gradients are written out."""
  clipped = 0
  for number in range(1, parts + 1):
    at = (batch.minibatch == number) & (batch.loss_mask > 0)
    tokens, targets = batch.tokens[at], batch.targets[at]
    weights, advantages = batch.loss_weights[at], batch.advantages[at]
    found, hidden, logp = logprobs_of(params, tokens, targets)
    ratio = np.exp(found - old[at])
    # The clipped branch is the smaller one, and has no gradient.
    is_out = np.where(advantages > 0, ratio > 1 + CLIP, ratio < 1 - CLIP)
    clipped += is_out.sum()
    slope = np.where(is_out, 0.0, -weights * advantages * ratio)
    d_logits = slope[:, None] * (np.eye(VOCABULARY)[targets] - np.exp(logp))
    d_hidden = d_logits @ params["head"].T * (1 - hidden**2)
    layers = params["layers"].copy()
    np.subtract.at(layers, tokens, RATE * d_hidden)
    params = {
      "layers": layers,
      "head": params["head"] - RATE * hidden.T @ d_logits,
    }
  return params, clipped


def loss_fn(params, batch, fixed):
  del fixed
  found, _, _ = logprobs_of(params, batch.tokens, batch.targets, jnp)
  ratio = jnp.exp(found - batch.proximal_logprobs)
  surrogate = jnp.minimum(
    ratio * batch.advantages,
    jnp.clip(ratio, 1 - CLIP, 1 + CLIP) * batch.advantages,
  )
  return -jnp.sum(batch.loss_weights * surrogate), {}


@pytest.mark.parametrize("parts", [2, 4])
def test_steps_are_those_of_gradients_by_hand(one_device_mesh, parts):
  packed, start = batch_of(parts), params_of(0)
  # The policy that the ratios are relative to is not the one at the start.
  old, _, _ = logprobs_of(params_of(3), packed.tokens, packed.targets)
  near = {k: v + 0.05 * params_of(4)[k] for k, v in params_of(3).items()}
  want, clipped = by_hand(near, old, packed, parts)
  assert clipped > 3 and start
  optimizer = optax.sgd(RATE)
  params = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), near)
  state = train_state.TrainState(
    step=jnp.int32(0), params=params, opt_state=optimizer.init(params)
  )
  shardings = jax.tree.map(lambda x: x.sharding, state)
  step = update.make_update(
    loss_fn, optimizer, shardings, one_device_mesh, has_minibatches=True
  )
  one_pass = minibatches.make_pass(step, parts)
  batch = update.to_micro_batches(
    packed.replace(proximal_logprobs=old.astype(np.float32)), MICRO_ROWS
  )
  batch = jax.tree.map(jnp.asarray, batch)
  state, metrics = one_pass(state, batch, Fixed())
  for name, value in want.items():
    np.testing.assert_allclose(state.params[name], value, atol=2e-5)
  assert int(state.step) == parts == int(metrics["learner/updates"])
  assert float(metrics["learner/tokens"]) == packed.loss_mask.sum()


@pytest.mark.parametrize("aggregation", packing.AGGREGATIONS)
def test_each_part_is_aggregated_alone_and_empty_rows_come_last(aggregation):
  packed = batch_of(3, aggregation)
  numbers = present(packed.minibatch)[:, 0]
  filled = np.trim_zeros(numbers)
  assert filled.tolist() == sorted(filled) and set(filled) == {1, 2, 3}
  np.testing.assert_array_equal(numbers > 0, packed.segment_ids[:, 0] > 0)
  whole = packing.pack(
    examples(), row_length=ROW, rows_multiple=1, aggregation=aggregation
  )
  assert packed.loss_mask.sum() == whole.loss_mask.sum()
  for number in (1, 2, 3):
    rows = packed.minibatch == number
    total = packed.loss_weights[rows].sum()
    if aggregation not in packing.SUMS:
      assert total == pytest.approx(1.0, rel=1e-5)
    sequences = packed.segment_ids.max(1)[numbers == number].sum()
    assert sequences in (3, 4)


def test_more_parts_than_sequences_leave_some_without_rows():
  packed = packing.pack_minibatches(
    examples()[:2],
    4,
    MICRO_ROWS,
    np.random.default_rng(0),
    row_length=ROW,
    rows_multiple=4,
    aggregation="token_mean",
  )
  assert sorted(set(present(packed.minibatch)[:, 0])) == [0, 1, 2]
  none = packing.pack_minibatches(
    [],
    4,
    MICRO_ROWS,
    np.random.default_rng(0),
    row_length=ROW,
    rows_multiple=4,
    aggregation="token_mean",
  )
  assert not present(none.minibatch).any()


@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_sum"])
def test_a_critic_s_step_on_the_whole_batch_is_a_mean_over_it(aggregation):
  batch = update.to_micro_batches(batch_of(3, aggregation), MICRO_ROWS)
  fractions = critic_update._fractions(batch, aggregation)
  # A loss of 1 for each target, in units of the aggregation's own mean.
  loss = batch.loss_weights.sum() / float(fractions.sum())
  whole = batch_of(1, aggregation)
  want = whole.loss_weights.sum()
  assert loss == pytest.approx(want, rel=0.1 if aggregation[0] == "s" else 1e-5)


@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_sum"])
def test_a_part_without_a_share_is_not_counted(aggregation):
  """The weights of the other two parts add up to 2."""
  packed = batch_of(3, aggregation)
  is_second = present(packed.minibatch) == 2
  without = {"loss_mask": 0.0, "loss_weights": 0.0}
  if aggregation in packing.SUMS:
    without["segment_ids"] = 0
  packed = packed.replace(
    **{
      name: np.where(is_second, value, getattr(packed, name))
      for name, value in without.items()
    }
  )
  batch = update.to_micro_batches(packed, MICRO_ROWS)
  fractions = critic_update._fractions(batch, aggregation)
  assert float(fractions.sum()) == pytest.approx(2.0, rel=1e-5)


def pass_of(**values):
  """Returns the metrics of a pass, from lists of values of its steps."""
  count = len(values["tokens"])

  def one_step(state, batch, fixed, number):
    del batch, fixed
    step = {
      name.replace("__", "/"): jnp.float32(listed[int(number) - 1])
      for name, listed in {"skipped": [0] * count, **values}.items()
    }
    named = {
      name if "/" in name else f"learner/{name}": value
      for name, value in step.items()
    }
    return state, named

  step = cast(update.Update, one_step)
  one_pass = minibatches.make_pass(step, count)
  _, metrics = one_pass(None, None, None)  # pyrefly: ignore[bad-argument-type] - `one_step` reads none.
  return {name: float(value) for name, value in metrics.items()}


def test_the_gap_to_the_sampler_is_that_of_the_first_step():
  found = pass_of(
    tokens=[2, 1],
    rollout__logprob_gap=[0.25, 4.0],
    rollout__logprob_gap_max=[0.5, 8.0],
    rollout__router_gap=[0.125, 1.0],
    entropy=[1.0, 4.0],
  )
  assert found["rollout/logprob_gap"] == 0.25
  assert found["rollout/logprob_gap_max"] == 0.5
  assert found["rollout/router_gap"] == 0.125
  assert found["learner/entropy"] == 2.0
  assert found["learner/updates"] == 2


def test_a_skipped_step_shows_in_the_loss_and_in_no_other_mean():
  found = pass_of(
    tokens=[2, 1, 1],
    skipped=[0, 1, 0],
    loss=[1.0, np.nan, 1.0],
    entropy=[1.0, np.nan, 4.0],
    weight_max=[1.0, np.nan, 3.0],
  )
  assert np.isnan(found["learner/loss"]) and found["learner/skipped"] == 1
  assert found["learner/entropy"] == 2.0 and found["learner/weight_max"] == 3.0
  assert found["learner/updates"] == 2
  none = pass_of(tokens=[1, 0], skipped=[1, 0], entropy=[np.nan, 0.0])
  assert np.isnan(none["learner/entropy"]) and none["learner/updates"] == 0


def test_each_minibatch_needs_a_micro_batch():
  LearnerSettings(minibatches=4, max_micro_batches=4)
  with pytest.raises(Invalid, match="at least learner.minibatches=4"):
    LearnerSettings(minibatches=4, max_micro_batches=3)
  assert LearnerSettings(minibatches=2).needs_proximal
  assert not LearnerSettings(minibatches=1).needs_proximal
