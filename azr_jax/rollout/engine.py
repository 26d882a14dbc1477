"""The engine: the compiled functions of sampling, with their shardings.

Shapes depend on the declared buckets and slots alone, so a sampler compiles a
fixed set of programs: for each prompt bucket one empty prefill state, one
prefill and one insert; for each slot count one decode and, for conversations,
one extend. `Sampler.warm_up` runs each of them once.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import Mesh, PartitionSpec
from jax.stages import Wrapped

from azr_jax.models import fusion, products, transformer
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.rollout import decode as decode_lib
from azr_jax.rollout import extend as extend_lib
from azr_jax.rollout import insert as insert_lib
from azr_jax.rollout.settings import SamplerSettings
from azr_jax.types import Params, Rules, Shardings

# Each slot count is this many times smaller than the one before it.
_COMPACT_FACTOR = 4


@dataclasses.dataclass(frozen=True)
class Engine:
  """The jitted functions of sampling, and the sizes that they are made for.

  Attributes:
    settings: shapes and rules of sampling.
    model: the decoder as it samples.
    mesh: where sampling runs.
    slot_counts: slot counts to decode with, descending; the first is B, the
      declared slots padded to the mesh. It is the only one if slots are split
      over devices.
    param_shardings: shardings of the parameters that sampling reads.
    prefill_shardings: shardings of a `PrefillState`.
    decode_shardings: shardings of a `DecodeState`.
    compute_params: training parameters -> those that sampling reads.
    init_prefill_state: (prompts, bucket) -> `PrefillState`.
    init_decode_state: () -> `DecodeState` of B slots, all of them done.
    prefill: `decode.prefill` without its model; donates the state.
    insert: `insert.insert` without its mesh; donates the slots.
    compact: `insert.compact`.
    decode: `decode.decode` without model, sampling and steps; donates the
      slots.
    extend: `extend.extend` without model and mesh; donates the slots.
    make_decode: settings -> `decode` by their rules of sampling.
  """

  settings: SamplerSettings
  model: transformer.Transformer
  mesh: Mesh
  slot_counts: tuple[int, ...]
  param_shardings: Shardings
  prefill_shardings: decode_lib.PrefillState
  decode_shardings: decode_lib.DecodeState
  compute_params: Callable[[Params], Params]
  init_prefill_state: Wrapped
  init_decode_state: Wrapped
  prefill: Wrapped
  insert: Wrapped
  compact: Wrapped
  decode: Wrapped
  extend: Wrapped
  make_decode: Callable[[SamplerSettings], Wrapped]

  def with_settings(self, settings: SamplerSettings) -> "Engine":
    """Returns an engine with another decode loop, for other rules of sampling.

    Args:
      settings: of the same shapes.
    """
    return dataclasses.replace(
      self, settings=settings, decode=self.make_decode(settings)
    )

  def prefill_batch_size(self, bucket: int) -> int:
    """Returns how many prompts of a bucket are prefilled together."""
    prompts = max(1, self.settings.prefill_tokens // bucket)
    return mesh_lib.padded_rows(prompts, self.mesh)

  def prefill_chunk_size(self, bucket: int) -> int:
    """Returns how many tokens of each prompt of a bucket one call prefills."""
    return min(bucket, self.settings.prefill_tokens)

  @property
  def devices(self) -> int:
    """How many devices slots are split over, in equal parts."""
    return mesh_lib.batch_devices(self.mesh)


def make_engine(
  model: transformer.Transformer,
  mesh: Mesh,
  rules: Rules,
  settings: SamplerSettings,
) -> Engine:
  """Builds the engine; each function is compiled when it is first called.

  Args:
    model: the decoder of training.
    mesh: the layout to sample in, which may differ from the learner's on the
      same devices.
    rules: logical parameter axis to mesh axis.
    settings: shapes and rules of sampling.
  """
  model = model.clone(
    multiply=products.make(mesh, rules),
    fused=fusion.fits(model.config, mesh, rules),
  )
  kv_sharding = mesh_lib.cache_sharding(mesh, model.config.num_kv_heads)
  prefill_shardings, decode_shardings = _state_shardings(
    mesh, kv_sharding, settings.cache_chunk
  )
  param_shardings = mesh_lib.param_shardings(
    transformer.abstract_params(model), mesh, rules
  )
  convert = jax.jit(functools.partial(fusion.sampling_params, model))
  counts = slot_counts(settings.slots, mesh)
  initializers = _make_initializers(
    model, settings, counts[0], prefill_shardings, decode_shardings
  )
  on_mesh: dict[str, Any] = {"mesh": mesh, "cache_spec": kv_sharding.spec}
  make_decode = functools.partial(
    _make_decode, model, mesh, kv_sharding.spec, decode_shardings
  )
  return Engine(
    settings=settings,
    model=model,
    mesh=mesh,
    slot_counts=counts,
    param_shardings=param_shardings,
    prefill_shardings=prefill_shardings,
    decode_shardings=decode_shardings,
    # Converted once per request and not at each use, because decoding reads
    # every weight for each token.
    compute_params=lambda p: jax.device_put(convert(p), param_shardings),
    **initializers,
    prefill=jax.jit(
      functools.partial(decode_lib.prefill, model),
      out_shardings=prefill_shardings,
      donate_argnums=1,
    ),
    insert=jax.jit(
      functools.partial(insert_lib.insert, **on_mesh),
      out_shardings=decode_shardings,
      donate_argnums=0,
    ),
    compact=jax.jit(insert_lib.compact, out_shardings=decode_shardings),
    decode=make_decode(settings),
    make_decode=make_decode,
    extend=jax.jit(
      functools.partial(extend_lib.extend, model, **on_mesh),
      out_shardings=decode_shardings,
      donate_argnums=1,
    ),
  )


def _state_shardings(
  mesh: Mesh, kv_sharding: Any, cache_chunk: int
) -> tuple[decode_lib.PrefillState, decode_lib.DecodeState]:
  """Returns both states with a sharding in place of each array."""
  by_row: Any = mesh_lib.batch_sharding(mesh)
  cache = transformer.KVCache(kv_sharding, kv_sharding, by_row, cache_chunk)
  fields = ("logits", "num_tokens", "max_new_tokens", "done", "keys")
  return (
    decode_lib.PrefillState(cache, by_row),
    decode_lib.DecodeState(cache, **dict.fromkeys(fields, by_row)),
  )


def slot_counts(slots: int, mesh: Mesh) -> tuple[int, ...]:
  """Returns the slot counts to compile decode for, descending."""
  counts = [mesh_lib.padded_rows(slots, mesh)]
  # The slots to keep may lie on any device, and gathering them would move
  # whole caches between devices.
  if mesh_lib.batch_devices(mesh) > 1:
    return tuple(counts)
  while True:
    fewer = mesh_lib.padded_rows(max(1, counts[-1] // _COMPACT_FACTOR), mesh)
    if fewer >= counts[-1]:
      return tuple(counts)
    counts.append(fewer)


def _make_initializers(
  model: transformer.Transformer,
  settings: SamplerSettings,
  slots: int,
  prefill_shardings: decode_lib.PrefillState,
  decode_shardings: decode_lib.DecodeState,
) -> dict[str, Wrapped]:
  """Returns the engine's functions that make empty states."""
  longest = max(settings.prompt_buckets) + settings.max_tokens
  # A call stores whole chunks of new entries, hence the room past the end.
  length = longest + max(settings.decode_chunk, settings.extension)
  chunk = settings.cache_chunk
  return {
    "init_prefill_state": jax.jit(
      functools.partial(decode_lib.init_prefill_state, model, chunk),
      static_argnums=(0, 1),
      out_shardings=prefill_shardings,
    ),
    "init_decode_state": jax.jit(
      functools.partial(
        decode_lib.init_decode_state, model, chunk, slots, length
      ),
      out_shardings=decode_shardings,
    ),
  }


def _make_decode(
  model: transformer.Transformer,
  mesh: Mesh,
  cache_spec: PartitionSpec,
  decode_shardings: decode_lib.DecodeState,
  settings: SamplerSettings,
) -> Wrapped:
  """Returns the jitted decode loop; it donates the slots."""
  # The output is replicated, because each host reads all of it: every host of
  # a pod schedules all sequences.
  replicated: Any = mesh_lib.replicated(mesh)
  output = decode_lib.DecodeOutput(*[replicated] * 4)
  return jax.jit(
    functools.partial(
      decode_lib.decode,
      model,
      sampling=settings.sampling,
      steps=settings.decode_chunk,
      mesh=mesh,
      cache_spec=cache_spec,
    ),
    out_shardings=(decode_shardings, output),
    donate_argnums=1,
  )
