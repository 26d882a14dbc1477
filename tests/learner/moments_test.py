"""Moments with 16 or 8 bits, and states that contain them."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiny_updates
from jax.sharding import PartitionSpec
from tiny_updates import MODEL, RULES, close
from typed import instance_of

from azr_jax.learner import learner, moments, train_state
from azr_jax.learner.moments import BFLOAT16, INT8, ScaledCodes
from azr_jax.learner.objective import Fixed
from azr_jax.learner.optimizer import make_optimizer
from azr_jax.learner.rounding import Draws
from azr_jax.learner.settings import OptimizerSettings
from azr_jax.learner.train_state import TrainState
from azr_jax.models import transformer
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.run.checkpoint import Checkpointer


def equal(one, other):
  jax.tree.map(np.testing.assert_array_equal, one, other)


def levels_of(is_second):
  """Returns what each code of a scale of 1 stands for."""
  if is_second:
    return np.array([(code / 255) ** 8 for code in range(256)])
  positive = np.array([(code / 127) ** 4 for code in range(128)])
  return np.concatenate([-positive[:0:-1], positive])


def scales_in_numpy(x):
  """Returns min(largest of the row, largest of the column) in each layer."""
  rows = [np.abs(layer).max(1, keepdims=True) for layer in x]
  columns = [np.abs(layer).max(0, keepdims=True) for layer in x]
  return np.stack(list(map(np.minimum, rows, columns)))


@jax.jit
def first_coded(x, bits):
  return moments.encode(x, moments.find_scales(x), bits, False)


@jax.jit
def second_coded(x, bits):
  return moments.encode(x, moments.find_scales(x), bits, True)


decoded = jax.jit(moments.decode)


@pytest.mark.parametrize("is_second", [False, True])
def test_an_entry_becomes_a_neighbouring_level_and_keeps_its_mean(is_second):
  rng = np.random.default_rng(0)
  x = rng.normal(size=(2, 6, 5)) * 10.0 ** rng.integers(-4, 5, (2, 6, 1))
  x = x * 10.0 ** rng.integers(-2, 2, (2, 1, 5))
  x = (x**2 if is_second else x).astype(np.float32)
  encode = second_coded if is_second else first_coded
  levels, scale = levels_of(is_second), scales_in_numpy(x)
  above = np.searchsorted(levels, x / scale * (1 - 1e-6))
  above = np.clip(above, 1, len(levels) - 1)
  low, high = levels[above - 1] * scale, levels[above] * scale
  slack = 1e-5 * np.abs(x)
  found = []
  for bits in range(128, 2**16, 256):
    moment = encode(x, jnp.full(x.shape, bits, jnp.uint32))
    assert moment.codes.dtype == (jnp.uint8 if is_second else jnp.int8)
    value = np.asarray(decoded(moment), np.float64)
    is_near = np.minimum(np.abs(value - low), np.abs(value - high)) <= slack
    assert np.all(is_near)
    found.append(value)
  mean = np.mean(found, 0)
  can_move = above > 1 if is_second else np.full(x.shape, True)
  error = np.abs(mean - x)[can_move]
  assert np.all(error <= ((high - low) / 200 + slack)[can_move])


def test_zeros_huge_and_tiny_entries():
  largest = np.finfo(np.float32).max
  x = np.full((1, 4, 4), 1e-3, np.float32)
  x[0, 0, :], x[0, :, 0] = 0, 0
  x[0, 2, 1], x[0, 3, 3] = largest, 1e-45
  for bits in (0, 2**16 - 1):
    drawn = jnp.full(x.shape, bits, jnp.uint32)
    for encode in (first_coded, second_coded):
      value = np.asarray(decoded(encode(x, drawn)))
      assert np.all(np.isfinite(value))
      assert np.all(value[x == 0] == 0)
      np.testing.assert_allclose(value[0, 2, 1], largest, rtol=1e-5)
      # Each of them is the largest of its row or of its column.
      np.testing.assert_allclose(value[0, 1, 1:3], 1e-3, rtol=1e-5)
    # Dividing by the root of 0 would be a jump.
    assert np.all(np.asarray(second_coded(x, drawn).codes)[x >= 1e-3] > 0)
  zero = first_coded(
    np.zeros((1, 2, 2), np.float32), jnp.zeros((1, 2, 2), "u4")
  )
  assert np.all(np.asarray(decoded(zero)) == 0)


def test_the_second_moment_of_a_small_entry_is_never_0():
  x = np.full((1, 3, 3), 1.0, np.float32)
  x[0, 1, 1] = 1e-25
  found = decoded(second_coded(x, jnp.full(x.shape, 2**16 - 1, jnp.uint32)))
  assert np.asarray(found)[0, 1, 1] > 0


def test_an_infinite_entry_spoils_no_other():
  x = np.full((1, 3, 3), 2.0, np.float32)
  x[0, 1, 1] = np.inf
  moment = second_coded(x, jnp.zeros(x.shape, jnp.uint32))
  want = np.minimum(x, np.finfo(np.float32).max)
  np.testing.assert_allclose(np.asarray(decoded(moment)), want, rtol=1e-5)
  assert not np.all(np.isfinite(moment.rows))


def trajectory(kind, steps=10, **changes):
  """Returns parameters after each step towards the least squares."""
  values: dict[str, Any] = dict(
    learning_rate=0.05,
    warmup_steps=2,
    decay_steps=20,
    weight_decay=0.1,
    grad_clip=2.0,
    moments=kind,
  )
  optimizer = make_optimizer(**vars(OptimizerSettings(**values | changes)))
  rng = np.random.default_rng(4)
  size = 10.0 ** rng.integers(-2, 2, (2, 16, 1))
  target = jnp.asarray(rng.normal(size=(2, 16, 24)) * size, jnp.float32)
  params = {
    "layers": {"up": {"kernel": jnp.zeros(target.shape)}},
    "final_norm": {"scale": jnp.ones(3)},
  }

  def loss(params):
    far = params["layers"]["up"]["kernel"] - target
    return 0.5 * jnp.sum(far**2) + jnp.sum(params["final_norm"]["scale"] ** 2)

  @jax.jit
  def step(params, state):
    grads = jax.grad(loss)(params)
    change, state = optimizer.update(grads, state, params)
    return optax.apply_updates(params, change), state

  state, found = optimizer.init(params), []
  for _ in range(steps):
    params, state = step(params, state)
    found.append(params)
  return found, float(loss(found[-1])), float(loss(found[0]))


@pytest.mark.parametrize("muon_learning_rate", [0.0, 0.01])
@pytest.mark.parametrize("kind, far", [(BFLOAT16, 0.02), (INT8, 0.1)])
def test_ten_steps_are_near_those_with_float32(kind, far, muon_learning_rate):
  changes = dict(muon_learning_rate=muon_learning_rate)
  want, after, before = trajectory("float32", **changes)
  got, after_here, _ = trajectory(kind, **changes)
  want, got = (
    np.asarray(found[-1]["layers"]["up"]["kernel"]) for found in (want, got)
  )
  error = np.sqrt(np.mean((got - want) ** 2) / np.mean(want**2))
  assert 0 < error < far
  assert abs(after_here - after) < far * (before - after)


def state_of(kind, **changes):
  optimizer = make_optimizer(**vars(OptimizerSettings(moments=kind, **changes)))
  return jax.eval_shape(optimizer.init, tiny_updates.init(jax.random.key(0)))


@pytest.mark.parametrize("kind, size", [(BFLOAT16, 2), (INT8, 1)])
@pytest.mark.parametrize("muon_learning_rate", [0.0, 0.01])
def test_matrices_have_small_moments_and_norms_float32(
  kind, size, muon_learning_rate
):
  state = state_of(kind, muon_learning_rate=muon_learning_rate)
  names = []
  for path, leaf in jax.tree_util.tree_leaves_with_path(state):
    path = jax.tree_util.keystr(path)
    if ".mu" not in path and ".nu" not in path:
      continue
    want = size
    if "scale'" in path or path.endswith((".rows", ".columns")):
      want = 4
    elif "embedding" in path:
      want = 2
    assert leaf.dtype.itemsize == want, path
    names.append(path)
  assert len(names) > 10


@pytest.mark.parametrize("kind", [BFLOAT16, INT8])
def test_vectors_of_heads_and_experts_keep_float32(kind):
  names = {"sinks": (2, 4), "bias": (2, 4, 8)}
  params = {"layers": {n: jnp.zeros(shape) for n, shape in names.items()}}
  state = moments.compressed(optax.adamw(0.1), kind, Draws()).init(params)
  leaves = jax.tree_util.tree_leaves_with_path(state)
  found = [x.dtype for path, x in leaves if "layers" in str(path)]
  assert found == [jnp.float32] * 4


@pytest.mark.parametrize("muon_learning_rate", [0.0, 0.02])
def test_codes_lie_like_their_parameter_and_scales_like_its_other_axes(
  muon_learning_rate,
):
  optimizer = make_optimizer(
    **vars(
      OptimizerSettings(moments=INT8, muon_learning_rate=muon_learning_rate)
    )
  )
  mesh = mesh_lib.make_mesh({"fsdp": 2, "tensor": 2}, jax.devices()[:4])
  shardings = train_state.state_shardings(
    transformer.abstract_params(MODEL), optimizer, mesh, RULES
  )
  up = shardings.params["layers"]["mlp"]["up"]["kernel"]
  assert up.spec == PartitionSpec(None, "fsdp", "tensor")
  found = [
    leaf
    for path, leaf in jax.tree_util.tree_leaves_with_path(
      shardings.opt_state, is_leaf=lambda node: isinstance(node, ScaledCodes)
    )
    if jax.tree_util.keystr(path).endswith("['mlp']['up']['kernel']")
  ]
  assert len(found) == (1 if muon_learning_rate else 2)
  for moment in found:
    assert moment.codes == up
    assert moment.rows.spec == PartitionSpec(None, "fsdp", None)
    assert moment.columns.spec == PartitionSpec(None, None, "tensor")


@functools.cache
def made(sizes=(1, 1, 1), **optimizer):
  """Returns a learner of bfloat16 parameters, and its state after a step."""
  chosen = make_optimizer(
    **vars(OptimizerSettings(learning_rate=1e-3, moments=INT8, **optimizer)),
    draws=Draws(6),
  )
  axes = dict(zip(tiny_updates.AXES, sizes, strict=False))
  mesh = mesh_lib.make_mesh(axes, jax.devices()[: int(np.prod(sizes))])
  model = MODEL.clone(param_dtype=jnp.dtype("bfloat16"))
  loss_fn = tiny_updates.policy_loss(mesh, model=model)
  found = learner.make(model, loss_fn, chosen, mesh, RULES, seed=6)
  params = transformer.compute_params(
    model.param_dtype, tiny_updates.init(jax.random.key(0))
  )
  shardings = jax.tree.map(lambda x: x.sharding, found.abstract)
  state = found.init(jax.device_put(params, shardings.params))
  batch = tiny_updates.batch_of(8)
  state, metrics = found.update(state, batch, Fixed())
  return found, jax.device_get(state), jax.device_get(metrics), shardings


def test_the_mesh_changes_no_bit_of_the_moments():
  params = {"layers": {"up": {"kernel": np.zeros((2, 8, 16), np.float32)}}}
  rng = np.random.default_rng(0)
  grads = jax.tree.map(lambda x: rng.normal(size=x.shape).astype("f4"), params)
  optimizer = make_optimizer(
    **vars(OptimizerSettings(moments=INT8, grad_clip=0.0))
  )
  mesh = mesh_lib.make_mesh({"fsdp": 4, "tensor": 2})
  sharding = jax.sharding.NamedSharding(
    mesh, PartitionSpec(None, "fsdp", "tensor")
  )

  @jax.jit
  def moved(params, grads):
    state = optimizer.init(params)
    for _ in range(2):
      change, state = optimizer.update(grads, state, params)
    return change, state

  found = [
    jax.device_get(moved(*jax.device_put((params, grads), where)))
    for where in (jax.devices()[0], sharding)
  ]
  equal(found[0][1], found[1][1])
  close(found[0][0], found[1][0])


@pytest.mark.slow
def test_an_update_on_eight_devices_is_the_one_on_a_single_device():
  """Sums have other orders, which rounding turns into whole steps, rarely."""
  _, alone, one, _ = made()
  _, parts, other, _ = made((1, 4, 2))
  close(one, other)
  for here, there in zip(
    *(jax.tree.leaves(state) for state in (alone, parts)), strict=True
  ):
    is_code = here.dtype in (np.int8, np.uint8, jnp.bfloat16)
    wide = [np.asarray(x, np.float32) for x in (here, there)]
    if is_code:
      assert np.mean(wide[0] != wide[1]) < 0.01
    else:
      np.testing.assert_allclose(*wide, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_gradients_of_bfloat16_parameters_are_float32():
  _, state, metrics, _ = made()
  assert (
    np.isfinite(metrics["learner/loss"]) and metrics["learner/skipped"] == 0
  )
  assert state.params["embedding"].dtype == jnp.bfloat16
  # A bfloat16 gradient would have no more than 8 bits.
  adam = state.opt_state.inner[1][0]
  first = adam.mu["final_norm"]["scale"]
  assert np.any(first != np.asarray(first, jnp.bfloat16).astype(np.float32))


@pytest.mark.slow
def test_a_restored_state_is_the_saved_one_and_continues_alike(tmp_path):
  found, state, _, shardings = made()
  batch = tiny_updates.batch_of(8)
  with Checkpointer(tmp_path, keep=None) as checkpoints:
    checkpoints.save(1, jax.device_put(state, shardings), {})
  with Checkpointer(tmp_path, keep=None) as checkpoints:
    restored, _ = checkpoints.restore(1, found.abstract)
    wide = jax.tree.map(
      lambda x: jax.ShapeDtypeStruct(x.shape, "f4", sharding=x.sharding),
      found.abstract.params,
    )
    (params,) = checkpoints.restore_params(1, wide)
  # Commands that sample read parameters as float32.
  equal(params, jax.tree.map(lambda x: x.astype(np.float32), state.params))
  assert jax.tree.structure(restored) == jax.tree.structure(state)
  equal(jax.device_get(restored), state)
  after, _ = found.update(restored, batch, Fixed())
  want, _ = found.update(jax.device_put(state, shardings), batch, Fixed())
  equal(jax.device_get(after), jax.device_get(want))
  moved = jax.device_get(after).params["embedding"] != state.params["embedding"]
  assert np.any(moved) and not np.all(moved)


def test_a_step_that_is_not_finite_changes_no_code():
  found, state, _, shardings = made()
  batch = tiny_updates.batch_of(8)
  bad = batch.replace(advantages=np.full_like(batch.advantages, np.nan))
  after, metrics = found.update(jax.device_put(state, shardings), bad, Fixed())
  assert metrics["learner/skipped"] == 1
  equal(jax.device_get(after), state)


def test_a_new_stage_keeps_moments_and_restarts_the_schedule():
  _, state, _, shardings = made()
  restarted = learner.restarted(jax.device_put(state, shardings))
  restarted = instance_of(TrainState, restarted)
  assert restarted.step == 0 and restarted.opt_state.count == 1
  schedule = restarted.opt_state.inner[1][2]
  assert schedule.count == 0
  adam = restarted.opt_state.inner[1][0]
  equal(jax.device_get(adam), state.opt_state.inner[1][0])


def test_float32_moments_are_optax_s_own_state():
  state = state_of("float32")
  params = tiny_updates.init(jax.random.key(0))
  chain = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3))
  want = jax.eval_shape(chain.init, params)
  assert jax.tree.structure(state[0]) == jax.tree.structure(want[0])
  assert jax.tree.structure(state[1][0]) == jax.tree.structure(want[1][0])
