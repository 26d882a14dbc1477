"""Extends slots by tokens that the model did not sample, such as tool output.

This is a chunked prefill of slots that are done but keep their caches.
"""

import functools

import flax.struct
import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Int

from azr_jax.models import cache as cache_lib
from azr_jax.models import transformer
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.rollout import decode as decode_lib
from azr_jax.types import Leaf, Params


class Extension(flax.struct.PyTreeNode):
  """The next tokens of some slots, one entry per slot.

  Entries are split over devices as slots are: in the order of devices, each
  has an equal number of entries, for slots that it holds.

  Attributes:
    tokens: int32 [entries, S], right-padded.
    counts: int32 [entries], tokens of each; 0 where an entry is unused.
    rows: int32 [entries], the slot's row on its own device.
    slots: int32 [entries], the slot's index over all devices.
    starts: int32 [entries], position of the first token.
    num_tokens: int32 [entries], tokens after the slot's prompt, these included.
    resumes: bool [entries], whether this is the last part of the text, after
      which the slot decodes again.
  """

  tokens: Leaf
  counts: Leaf
  rows: Leaf
  slots: Leaf
  starts: Leaf
  num_tokens: Leaf
  resumes: Leaf


def extend(
  model: transformer.Transformer,
  params: Params,
  state: decode_lib.DecodeState,
  extension: Extension,
  mesh: Mesh,
  cache_spec: PartitionSpec,
) -> decode_lib.DecodeState:
  """Prefills the next tokens of finished slots; those that resume are active.

  A slot's cache keeps its entries before `starts`; later ones are overwritten.

  Args:
    model: the decoder.
    params: its parameters.
    state: the slots.
    extension: the tokens, by slot.
    mesh: where the slots lie.
    cache_spec: how their cache is split over the mesh.
  """
  S = extension.tokens.shape[1]
  slots = state.done.shape[0]
  by_row = PartitionSpec(mesh_lib.BATCH_AXES)
  # Left to the partitioner, rows would be searched for on every device.
  per_device = functools.partial(
    jax.shard_map, mesh=mesh, out_specs=cache_spec, check_vma=False
  )
  gather = per_device(_gather_rows, in_specs=(cache_spec, by_row))
  store = per_device(
    cache_lib.store_entries,
    in_specs=(cache_spec, cache_spec, by_row, by_row, by_row),
  )
  cache = state.cache
  whole = cache.k, cache.v
  k, v = gather(whole, extension.rows)
  hidden, new = decode_lib.forward(
    model,
    params,
    extension.tokens,
    extension.starts[:, None] + jnp.arange(S)[None, :],
    cache.replace(k=k, v=v, length=extension.starts),
  )
  k, v = store(whole, new, extension.rows, extension.starts, extension.counts)
  last = jnp.maximum(extension.counts - 1, 0)[:, None, None]
  last_hidden = jnp.take_along_axis(hidden, last, axis=1)[:, 0]
  # A store to slot index `slots`, which does not exist, is dropped.
  into = jnp.where(extension.resumes, extension.slots, slots)

  def put(values: jax.Array, new: jax.Array | bool) -> jax.Array:
    return values.at[into].set(new, mode="drop")

  return state.replace(
    cache=cache.replace(
      k=k,
      v=v,
      length=put(cache.length, extension.starts + extension.counts),
    ),
    logits=put(state.logits, decode_lib.unembed(model, params, last_hidden)),
    num_tokens=put(state.num_tokens, extension.num_tokens),
    done=put(state.done, False),
  )


def _gather_rows(
  whole: cache_lib.KV, rows: Int[Array, " entries"]
) -> cache_lib.KV:
  """Returns these rows of keys [L, B, K, E, T] and values [L, B, K, T, E]."""
  k, v = whole
  return k[:, rows], v[:, rows]
