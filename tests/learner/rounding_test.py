"""Stochastic rounding to bfloat16."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from tiny_updates import MODEL, RULES

from azr_jax.learner import rounding
from azr_jax.learner.rounding import Draws
from azr_jax.models import transformer
from azr_jax.parallel import mesh as mesh_lib


def rounded(x, bits):
  x, bits = np.broadcast_arrays(np.asarray(x, np.float32), bits)
  found = rounding.to_bfloat16(jnp.asarray(x), jnp.asarray(bits, jnp.uint32))
  return np.asarray(found)


def test_a_value_becomes_a_neighbour_and_keeps_its_mean():
  rng = np.random.default_rng(0)
  x = rng.normal(size=(64, 1)) * 10.0 ** rng.integers(-30, 30, (64, 1))
  x = x.astype(np.float32)
  found = rounded(x, np.arange(0, 2**16, 16)).astype(np.float64)
  nearest = x.astype(ml_dtypes.bfloat16)
  step = np.abs(nearest.astype(np.float64)) * 2.0**-7
  assert np.all(np.abs(found - x) <= step)
  assert all(np.unique(row).size <= 2 for row in found)
  np.testing.assert_allclose(found.mean(1), x[:, 0], rtol=2.0**-18)


@pytest.mark.parametrize("bits", [0, 2**16 - 1])
def test_values_of_bfloat16_and_values_that_are_not_finite_stay(bits):
  stay = [0.0, -0.0, 1.5, -3e38, 1e-40, np.inf, -np.inf, np.nan]
  stay = np.asarray(stay, ml_dtypes.bfloat16)
  found = rounded(stay, bits)
  np.testing.assert_array_equal(found.view(np.uint16), stay.view(np.uint16))
  largest = np.finfo(np.float32).max
  assert np.all(np.isfinite(rounded([largest, -largest], bits)))


def test_small_changes_move_parameters_by_their_sum():
  """Nearest rounding would lose each change of a millionth."""
  rng = np.random.default_rng(1)
  start = rng.uniform(0.5, 4, 2**18).astype(ml_dtypes.bfloat16)
  params = {"w": jnp.asarray(start)}
  wide = start.astype(np.float32)
  change = {"w": jnp.asarray(1e-6 * wide)}
  near = (wide + 1e-6 * wide).astype(ml_dtypes.bfloat16)
  np.testing.assert_array_equal(near, start)
  steps = 100

  @jax.jit
  def moved(params):
    return jax.lax.fori_loop(
      0, steps, lambda i, p: rounding.add(p, change, Draws(3), i), params
    )

  end = np.asarray(moved(params)["w"]).astype(np.float64)
  slope = np.mean(end / start.astype(np.float64) - 1) / (steps * 1e-6)
  assert abs(slope - 1) < 0.05


def test_each_seed_network_part_update_and_array_draws_its_own_bits():
  def drawn(seed=0, network=0, part=0, updates=1, leaf=1):
    draws = Draws(seed, network)
    bits = draws.bits(part, jnp.asarray(updates), leaf, (4,))
    return tuple(np.asarray(bits).tolist())

  changed: list[dict[str, int]] = [
    {},
    {"seed": 1},
    {"network": rounding.CRITIC},
    {"part": rounding.PARAMS},
    {"updates": 2},
    {"leaf": 2},
  ]
  found = [drawn(**change) for change in changed]
  assert len(set(found)) == len(found)
  assert found[0] == drawn()


def test_the_mesh_does_not_change_a_bit():
  assert jax.config.values["jax_threefry_partitionable"]
  mesh = mesh_lib.make_mesh({"fsdp": 4, "tensor": 2})
  spec = mesh_lib.param_spec(("embed", "mlp"), (32, 64), mesh, RULES)
  sharding = jax.sharding.NamedSharding(mesh, spec)
  rng = np.random.default_rng(2)
  w = rng.normal(size=(32, 64)).astype(ml_dtypes.bfloat16)
  change = (rng.normal(size=w.shape) * 1e-3).astype(np.float32)
  found = []
  for where in (jax.devices()[0], sharding):
    add = jax.jit(
      lambda p, c: rounding.add(p, c, Draws(5), jnp.int32(7)),
      out_shardings={"w": where} if where is sharding else None,
    )
    params = {"w": jax.device_put(w, where)}
    out = add(params, {"w": jax.device_put(change, where)})["w"]
    found.append(np.asarray(out).view(np.uint16))
    if where is sharding:
      assert out.sharding.is_equivalent_to(sharding, 2)
  np.testing.assert_array_equal(found[0], found[1])


def test_float32_parameters_are_added_without_random_bits():
  x = {"w": jnp.asarray([1.0, 2.0])}

  def add(x):
    return rounding.add(rounding.widened(x), x, Draws(), jnp.int32(0))

  np.testing.assert_array_equal(add(x)["w"], [2.0, 4.0])
  names = [equation.primitive.name for equation in jax.make_jaxpr(add)(x).eqns]
  assert names == ["add"]


def test_norm_scales_stay_float32():
  boxed = transformer.abstract_trained(
    MODEL.clone(param_dtype=jnp.dtype("bfloat16"))
  )
  mesh = mesh_lib.make_mesh({}, jax.devices()[:1])
  shapes = mesh_lib.sharded_shapes(boxed, mesh, RULES)
  for path, leaf in jax.tree_util.tree_leaves_with_path(shapes):
    is_scale = path[-1].key == "scale"
    assert leaf.dtype == (jnp.float32 if is_scale else jnp.bfloat16)
