"""Whole-batch statistics do not depend on the batch's layout."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiny_updates
from typed import instance_of, present

from azr_jax.learner import (
  entropy_target,
  learner,
  objective,
  policy_losses,
  preparation,
)
from azr_jax.learner.entropy_target import EntropyTarget
from azr_jax.learner.objective import Fixed
from azr_jax.learner.settings import LearnerSettings
from azr_jax.learner.train_state import EntropyTargetState
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.run.checkpoint import Checkpointer

MODEL = tiny_updates.MODEL


def make_prepare(mesh, seed=0, **settings):
  """Returns the preparation of a learner with these settings."""
  c = LearnerSettings(**tiny_updates.LOSS | settings)
  return preparation.make_prepare(
    MODEL,
    temperature=1.0,
    chunk_tokens=c.chunk_tokens,
    mesh=mesh,
    seed=seed,
    needs_proximal=c.needs_proximal,
    top_entropy_fraction=c.top_entropy_fraction,
    choose=policy_losses.make(c.policy_loss, c).choose,
  )


compiled_prepare = functools.cache(make_prepare)


def prepared(batch, mesh, **settings):
  """Returns the fields that preparation makes of a batch, and its metrics."""
  prepare = compiled_prepare(mesh, **settings)
  params = tiny_updates.init(jax.random.key(0))
  return present(prepare)(params, jnp.int32(3), batch)


def make(mesh, target=None, rate=1.0, **settings):
  """Returns an SGD learner and its state before the first update."""
  made = learner.make(
    MODEL,
    tiny_updates.policy_loss(mesh, **settings),
    optax.sgd(rate),
    mesh,
    tiny_updates.RULES,
    epochs=settings.get("epochs", 1),
    prepare=make_prepare(mesh, **settings),
    entropy_target=target,
  )
  shardings = jax.tree.map(lambda x: x.sharding, made.abstract.params)
  params = tiny_updates.init(jax.random.key(0))
  return made, made.init(jax.device_put(params, shardings))


def by_token(batch, values):
  """Returns {(sequence's advantage, position): value} of trained targets."""
  trained = np.asarray(batch.loss_mask) > 0
  keys = zip(
    np.asarray(batch.advantages)[trained].tolist(),
    np.asarray(batch.positions)[trained].tolist(),
    strict=True,
  )
  return dict(zip(keys, np.asarray(values)[trained].tolist(), strict=True))


def test_nothing_is_prepared_where_nothing_is_needed(one_device_mesh):
  for settings in (
    dict(),
    dict(epochs=2, ratio_to="sampled"),
    dict(epochs=2, policy_loss="sequence_weighted"),
  ):
    assert make_prepare(one_device_mesh, **settings) is None


def test_every_epoch_has_its_ratio_to_the_update_s_start(one_device_mesh):
  batch = tiny_updates.batch_of(8)
  made, state = make(one_device_mesh, epochs=3, clip_high=0.01)
  start = jax.tree.map(jnp.copy, state)
  state, metrics = made.update(state, batch, Fixed())
  programs: list[Any] = [made.policy_update, made.prepare]
  assert [program._cache_size() for program in programs] == [1, 1]
  scored = np.asarray(tiny_updates.scored(batch))
  fixed = batch.replace(proximal_logprobs=jnp.asarray(scored))
  for epoch in range(3):
    start, want = made.policy_update(start, fixed, Fixed())
    # Every epoch reports the gap at the update's start.
    gap = np.abs(scored - batch.sampled_logprobs)[batch.loss_mask > 0]
    assert want["rollout/logprob_gap"] == pytest.approx(gap.mean(), rel=1e-5)
    assert (want["learner/clip_fraction"] > 0) == (epoch > 0)
  tiny_updates.close(state.params, start.params)
  assert metrics["learner/clip_fraction"] == pytest.approx(
    want["learner/clip_fraction"]
  )


def test_the_gap_to_the_sampler_is_that_of_the_first_epoch(one_device_mesh):
  batch = tiny_updates.batch_of(8)
  made, state = make(one_device_mesh, epochs=2, ratio_to="sampled")
  start = jax.tree.map(jnp.copy, state)
  _, metrics = made.update(state, batch, Fixed())
  start, first = made.policy_update(start, batch, Fixed())
  _, second = made.policy_update(start, batch, Fixed())
  assert second["learner/loss"] == metrics["learner/loss"]
  for name in ("rollout/logprob_gap", "rollout/logprob_gap_p99"):
    assert metrics[name] == first[name] != second[name]


@pytest.mark.parametrize(
  "rows, row_length",
  [(1, 16), (4, 13), pytest.param(8, 16, marks=pytest.mark.slow)],
)
def test_the_loss_counts_the_largest_entropies_of_the_batch(
  one_device_mesh, rows, row_length
):
  """Micro-batches and rows do not affect which targets are chosen."""
  batch = tiny_updates.batch_of(rows, row_length=row_length)
  fields, metrics = prepared(batch, one_device_mesh, top_entropy_fraction=0.2)
  assert fields.keys() == {"policy_weights"}
  entropies = np.asarray(entropies_of(batch))
  trained = np.asarray(batch.loss_mask) > 0
  count = int(np.ceil(0.2 * trained.sum()))
  limit = np.sort(entropies[trained])[-count]
  assert metrics["learner/top_entropy_min"] == pytest.approx(limit, rel=1e-5)
  # The other targets count as 0, so the weights sum to the fraction.
  weights = np.asarray(fields["policy_weights"])
  assert (weights > 0).sum() == count
  np.testing.assert_allclose(weights.sum(), count / trained.sum(), rtol=1e-5)
  got = by_token(batch, weights > 0)
  assert got == chosen_in_one_row(one_device_mesh)


@jax.jit
def entropies_of(batch):
  params = tiny_updates.init(jax.random.key(0))
  return jax.lax.map(
    lambda micro: objective.score(MODEL, params, micro, 1.0, 16, None)[1],
    jax.tree.map(jnp.asarray, batch),
  )


@functools.cache
def chosen_in_one_row(mesh):
  batch = tiny_updates.batch_of(8)
  fields, _ = prepared(batch, mesh, top_entropy_fraction=0.2)
  return by_token(batch, np.asarray(fields["policy_weights"]) > 0)


def test_targets_without_weight_have_no_policy_gradient(one_device_mesh):
  batch = tiny_updates.batch_of(8)
  options = dict(top_entropy_fraction=0.2, entropy_coef=0.0)
  made, state = make(one_device_mesh, **options)
  state, _ = made.update(state, batch, Fixed())
  fields, _ = prepared(batch, one_device_mesh, top_entropy_fraction=0.2)
  params, _ = tiny_updates.updated(
    one_device_mesh,
    batch.replace(**fields),
    on_policy=True,
    entropy_coef=0.0,
  )
  tiny_updates.close(state.params, params)


@pytest.mark.parametrize("sizes", [(1, 1, 1), (1, 4, 2)])
def test_covariances_are_ranked_over_the_batch_on_every_mesh(sizes):
  axes = dict(zip(tiny_updates.AXES, sizes, strict=False))
  mesh = mesh_lib.make_mesh(axes, jax.devices()[: int(np.prod(sizes))])
  batch = tiny_updates.batch_of(8)
  numbers = policy_losses.KlCovSettings(fraction=0.1)
  fields, _ = prepared(
    batch, mesh, policy_loss="kl_cov", ratio_to="sampled", kl_cov=numbers
  )
  assert fields.keys() == {"chosen"}
  trained = batch.loss_mask > 0
  logprobs = batch.sampled_logprobs[trained]
  a = present(batch.advantages)[trained]
  cov = (logprobs - logprobs.mean()) * (a - a.mean())
  want = np.zeros(batch.loss_mask.shape)
  want[trained] = cov >= np.sort(cov)[-int(0.1 * trained.sum())]
  np.testing.assert_array_equal(fields["chosen"], want)


def test_a_seed_and_an_update_repeat_their_draw(one_device_mesh):
  batch = tiny_updates.batch_of(8)
  numbers = policy_losses.ClipCovSettings(0.1, -9.0, 9.0)
  options = dict(policy_loss="clip_cov", clip_cov=numbers)
  drawn = []
  for seed, step in ((0, 3), (0, 3), (0, 4), (1, 3)):
    prepare = compiled_prepare(one_device_mesh, seed, **options)
    found, _ = present(prepare)({}, jnp.int32(step), batch)
    drawn.append(np.asarray(found["chosen"]))
  np.testing.assert_array_equal(drawn[0], drawn[1])
  assert (drawn[0] != drawn[2]).any()
  assert (drawn[0] != drawn[3]).any()
  count = int(0.1 * batch.loss_mask.sum())
  assert [x.sum() for x in drawn] == [count] * 4


def test_the_coefficient_follows_the_entropy():
  """Above, below, below, far below, above: one step each, within limits."""
  control, used = entropy_target.start(0.001), []
  for entropy in (0.9, 0.4, 0.3, 0.1, 0.1, 0.6, 0.6, 0.6, 0.6):
    used.append(float(control.active_coef(0.5)))
    control = control.after(
      jnp.float32(entropy), nats=0.5, step=0.001, coef_max=0.0025
    )
  # Inactive before the first update, and after an entropy above the target.
  want = [0, 0, 0.001, 0.002, 0.0025, 0.0025, 0, 0, 0]
  np.testing.assert_allclose(used, want, atol=1e-7)
  assert float(control.coef) == 0


def test_a_held_entropy_is_part_of_the_state(one_device_mesh, tmp_path):
  """An update uses the coefficient; a restored run continues identically."""
  batch = tiny_updates.batch_of(8)
  target = EntropyTarget(nats=10.0, start=0.1, step=0.05, coef_max=1.0)
  made, state = make(one_device_mesh, target, rate=0.1)
  used, before = [], state
  for step in (1, 2, 3):
    if step == 3:
      with Checkpointer(tmp_path, keep=None) as checkpoints:
        checkpoints.save(step, state, {})
      before = jax.tree.map(jnp.copy, state)
    state, metrics = made.update(state, batch, Fixed())
    used.append(float(metrics["learner/entropy_coef"]))
  np.testing.assert_allclose(used, [0, 0.15, 0.2], rtol=1e-5)
  with Checkpointer(tmp_path, keep=None) as checkpoints:
    restored, _ = checkpoints.restore(3, made.abstract)
  resumed, again = made.update(restored, batch, Fixed())
  jax.tree.map(np.testing.assert_array_equal, resumed, state)
  assert float(again["learner/entropy_coef"]) == used[-1]
  plain, fixed = make(one_device_mesh, rate=0.1, entropy_coef=0.2)
  fixed = fixed.replace(params=before.params)
  fixed, _ = plain.update(fixed, batch, Fixed())
  tiny_updates.close(state.params, fixed.params, atol=1e-6)


def test_an_update_that_is_left_out_leaves_the_coefficient(one_device_mesh):
  target = EntropyTarget(nats=10.0, start=0.1, step=1e-4, coef_max=5e-3)
  made, state = make(one_device_mesh, target)
  batch = tiny_updates.batch_of(8)
  batch = batch.replace(
    advantages=present(batch.advantages) * np.float32(np.nan)
  )
  state, metrics = made.update(state, batch, Fixed())
  assert metrics["learner/skipped"] == 1
  control = instance_of(EntropyTargetState, state).entropy_control
  assert float(control.coef) == pytest.approx(0.1)
  assert np.isinf(control.entropy)


def test_a_state_without_a_target_is_the_same_as_ever(one_device_mesh):
  """Otherwise checkpoints of earlier versions could not be restored."""
  made, _ = make(one_device_mesh)
  names = set(vars(made.abstract))
  assert names == {"step", "params", "opt_state"}
