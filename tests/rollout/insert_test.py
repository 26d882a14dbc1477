"""Prompts into slots, over several layouts of the devices."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from azr_jax.models import transformer
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.rollout import decode, insert

LAYERS, HEADS, ROOM, SIZE, VOCAB = 2, 2, 6, 4, 5


def numbers(rng, *shape):
  return jnp.asarray(rng.normal(size=shape), jnp.float32)


def cache_of(rng, rows, room):
  return transformer.KVCache(
    k=numbers(rng, LAYERS, rows, HEADS, SIZE, room),
    v=numbers(rng, LAYERS, rows, HEADS, room, SIZE),
    length=jnp.asarray(rng.integers(1, room, rows), jnp.int32),
    chunk=2,
  )


def state_of(rng, rows):
  return decode.DecodeState(
    cache=cache_of(rng, rows, ROOM + 2),
    logits=numbers(rng, rows, VOCAB),
    written=jnp.full(rows, 3, jnp.int32),
    limit=jnp.full(rows, 9, jnp.int32),
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
    (0, 0, 3, 9, 1, 0, 0, 0),  # Prompts 3 and 4 go over several devices.
    (0, 2, 0, 2, 0, 0, 0, 5),
    (16, 0, 0, 0, 0, 0, 0, 0),
  ],
)
def test_slots_hold_their_prompts_and_others_stay(sizes, counts):
  mesh = mesh_lib.make_mesh(
    dict(zip(mesh_lib.AXES, sizes, strict=True)),
    jax.devices()[: np.prod(sizes)],
  )
  rng = np.random.default_rng(sum(counts) + sizes[0])
  state = state_of(rng, 16)
  prompts = decode.Prompts(cache_of(rng, 8, ROOM), numbers(rng, 8, VOCAB))
  order = rng.permutation(16).astype(np.int32)
  limits = np.arange(16, dtype=np.int32) + 1
  streams = rng.integers(0, 99, (16, 2)).astype(np.int32)
  key = jax.random.key(1)
  fill = jax.jit(
    functools.partial(
      insert.fill_slots,
      mesh=mesh,
      cache_spec=mesh_lib.cache_sharding(mesh, HEADS).spec,
    )
  )
  filled = fill(
    state, prompts, np.asarray(counts, np.int32), order, limits, streams, key
  )
  places = np.repeat(np.arange(8), counts)
  k, v = np.array(state.cache.k), np.array(state.cache.v)
  want = {
    name: np.array(getattr(state, name))
    for name in ("logits", "written", "limit", "done")
  } | {"length": np.array(state.cache.length)}
  keys = np.array(jax.random.key_data(state.keys))
  for index, place in enumerate(places):
    slot = order[index]
    k[:, slot, ..., :ROOM] = prompts.cache.k[:, place]
    v[:, slot, :, :ROOM] = prompts.cache.v[:, place]
    want["length"][slot] = prompts.cache.length[place]
    want["logits"][slot] = prompts.logits[place]
    want["written"][slot], want["limit"][slot] = 0, limits[index]
    want["done"][slot] = False
    own = jax.random.fold_in(key, streams[index, 0])
    keys[slot] = jax.random.key_data(jax.random.fold_in(own, streams[index, 1]))
  np.testing.assert_array_equal(filled.cache.k, k)
  np.testing.assert_array_equal(filled.cache.v, v)
  np.testing.assert_array_equal(filled.cache.length, want.pop("length"))
  np.testing.assert_array_equal(jax.random.key_data(filled.keys), keys)
  for name, value in want.items():
    np.testing.assert_array_equal(getattr(filled, name), value)
