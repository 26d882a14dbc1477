"""Inserting prompts into slots, on several layouts of the devices."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from azr_jax.models import transformer
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.rollout import decode, insert

LAYERS, HEADS, LENGTH, HEAD_SIZE, VOCAB = 2, 2, 6, 4, 5


def normals(rng, *shape):
  return jnp.asarray(rng.normal(size=shape), jnp.float32)


def cache_of(rng, rows, length):
  return transformer.KVCache(
    k=normals(rng, LAYERS, rows, HEADS, HEAD_SIZE, length),
    v=normals(rng, LAYERS, rows, HEADS, length, HEAD_SIZE),
    length=jnp.asarray(rng.integers(1, length, rows), jnp.int32),
    chunk=2,
  )


def state_of(rng, rows):
  return decode.DecodeState(
    cache=cache_of(rng, rows, LENGTH + 2),
    logits=normals(rng, rows, VOCAB),
    num_tokens=jnp.full(rows, 3, jnp.int32),
    max_new_tokens=jnp.full(rows, 9, jnp.int32),
    done=jnp.ones(rows, bool),
    keys=jax.random.split(jax.random.key(7), rows),
  )


@pytest.mark.parametrize(
  "sizes", [(1, 1, 1), (8, 1, 1), (2, 4, 1), (4, 1, 2), (2, 2, 2)]
)
@pytest.mark.parametrize(
  "counts",
  [
    (0,) * 8,
    (1,) * 8,
    (0, 0, 3, 9, 1, 0, 0, 0),
    (0, 2, 0, 2, 0, 0, 0, 5),
    (16, 0, 0, 0, 0, 0, 0, 0),
  ],
)
def test_slots_hold_their_prompts_and_others_stay(sizes, counts):
  mesh = mesh_lib.make_mesh(
    dict(zip(mesh_lib.AXES, sizes, strict=False)),
    jax.devices()[: np.prod(sizes)],
  )
  rng = np.random.default_rng(sum(counts) + sizes[0])
  state = state_of(rng, 16)
  prompts = decode.PrefillState(
    cache_of(rng, 8, LENGTH), normals(rng, 8, VOCAB)
  )
  order = rng.permutation(16).astype(np.int32)
  max_new_tokens = np.arange(16, dtype=np.int32) + 1
  seeds = rng.integers(0, 99, (16, 2)).astype(np.int32)
  key = jax.random.key(1)
  insert_fn = jax.jit(
    functools.partial(
      insert.insert,
      mesh=mesh,
      cache_spec=mesh_lib.cache_sharding(mesh, HEADS).spec,
    )
  )
  filled = insert_fn(
    state,
    prompts,
    np.asarray(counts, np.int32),
    order,
    max_new_tokens,
    seeds,
    np.tile(jax.random.key_data(key), (16, 1)),
  )
  prompt_indices = np.repeat(np.arange(8), counts)
  k, v = np.array(state.cache.k), np.array(state.cache.v)
  expected = {
    name: np.array(getattr(state, name))
    for name in ("logits", "num_tokens", "max_new_tokens", "done")
  } | {"length": np.array(state.cache.length)}
  keys = np.array(jax.random.key_data(state.keys))
  for entry, prompt in enumerate(prompt_indices):
    slot = order[entry]
    k[:, slot, ..., :LENGTH] = prompts.cache.k[:, prompt]
    v[:, slot, :, :LENGTH] = prompts.cache.v[:, prompt]
    expected["length"][slot] = prompts.cache.length[prompt]
    expected["logits"][slot] = prompts.logits[prompt]
    expected["num_tokens"][slot], expected["max_new_tokens"][slot] = (
      0,
      max_new_tokens[entry],
    )
    expected["done"][slot] = False
    prompt_key = jax.random.fold_in(key, seeds[entry, 0])
    slot_key = jax.random.fold_in(prompt_key, seeds[entry, 1])
    keys[slot] = jax.random.key_data(slot_key)
  np.testing.assert_array_equal(filled.cache.k, k)
  np.testing.assert_array_equal(filled.cache.v, v)
  np.testing.assert_array_equal(filled.cache.length, expected.pop("length"))
  np.testing.assert_array_equal(jax.random.key_data(filled.keys), keys)
  for name, value in expected.items():
    np.testing.assert_array_equal(getattr(filled, name), value)
