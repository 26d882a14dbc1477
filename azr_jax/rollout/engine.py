"""The compiled programs of sampling, with their shardings and donations.

Shapes come from the declared buckets and slots alone, so this is all that a
sampler ever compiles: per prompt bucket one empty cache, one prefill and one
fill; per size of `sizes` one decode and, for conversations, one append.
`Sampler.warm_up` runs each once.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
from jax.sharding import Mesh

from azr_jax.models import transformer
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.rollout import decode as decode_lib
from azr_jax.rollout import extend as append_lib
from azr_jax.rollout import insert as slots_lib
from azr_jax.rollout.settings import SamplerSettings

# When nothing waits for a slot, decoding goes on with so many times fewer.
_SHRINK = 4


@dataclasses.dataclass(frozen=True)
class Programs:
  """Jitted functions of `decode` and `slots`, and the sizes they are made for.

  Attributes:
    sizes: slot counts to decode with, descending; the first is B, padded to
      the mesh, and the only one if the slots lie on several devices.
    param_shardings: of the parameters that sampling reads.
    prompt_shardings: of `Prompts`.
    slot_shardings: of `DecodeState`.
    compute_params: training parameters -> those that sampling reads.
    empty_prompts: (P, bucket) -> room for prompts.
    empty_slots: () -> slots that are all done.
    prefill: see `decode.prefill`; donates the prompts.
    fill_slots: see `slots.fill_slots`; donates the slots.
    keep_slots: see `slots.keep_slots`.
    decode: see `decode.decode`; donates the slots.
    append: see `append.append`; donates the slots.
  """

  settings: SamplerSettings
  mesh: Mesh
  sizes: tuple[int, ...]
  param_shardings: Any
  prompt_shardings: decode_lib.Prompts
  slot_shardings: decode_lib.DecodeState
  compute_params: Callable[..., Any]
  empty_prompts: Callable[..., decode_lib.Prompts]
  empty_slots: Callable[..., decode_lib.DecodeState]
  prefill: Callable[..., decode_lib.Prompts]
  fill_slots: Callable[..., decode_lib.DecodeState]
  keep_slots: Callable[..., decode_lib.DecodeState]
  decode: Callable[..., tuple[decode_lib.DecodeState, decode_lib.Written]]
  append: Callable[..., decode_lib.DecodeState]

  def together(self, bucket: int) -> int:
    """How many prompts of a bucket are read together."""
    count = max(1, self.settings.prefill_tokens // bucket)
    return mesh_lib.padded_rows(count, self.mesh)

  def prefill_size(self, bucket: int) -> int:
    """How many tokens of each prompt of a bucket are read in one call."""
    return min(bucket, self.settings.prefill_tokens)

  @property
  def devices(self) -> int:
    """How many devices slots are split over, in equal parts."""
    return mesh_lib.batch_devices(self.mesh)


def make_programs(
  model: transformer.Transformer,
  mesh: Mesh,
  rules: Mapping[str, str | None],
  settings: SamplerSettings,
) -> Programs:
  """Builds the programs; nothing is compiled before it is called.

  Args:
    model: the decoder.
    mesh: the layout to sample in; may be another than the learner's, of the
      same devices.
    rules: logical parameter axis to mesh axis.
    settings: shapes and rules of sampling.
  """
  rows = mesh_lib.batch_sharding(mesh)
  by_head = mesh_lib.cache_sharding(mesh, model.config.num_kv_heads)
  cache = transformer.KVCache(by_head, by_head, rows, settings.cache_chunk)
  prompts = decode_lib.Prompts(cache, rows)
  slots = decode_lib.DecodeState(
    cache,
    **dict.fromkeys(("logits", "written", "limit", "done", "keys"), rows),
  )
  # Small, and every host of a pod follows the same loop: all hold it whole.
  everywhere = mesh_lib.replicated(mesh)
  written = decode_lib.Written(*[everywhere] * 4)
  param_shardings = mesh_lib.param_shardings(
    transformer.abstract_params(model), mesh, rules
  )
  cast = jax.jit(functools.partial(transformer.compute_params, model.dtype))
  sizes = [mesh_lib.padded_rows(settings.slots, mesh)]
  # Of slots that lie on several devices, the ones to keep may be anywhere:
  # bringing them together would move whole caches.
  alone = mesh_lib.batch_devices(mesh) == 1
  while (
    alone
    and (fewer := mesh_lib.padded_rows(max(1, sizes[-1] // _SHRINK), mesh))
    < sizes[-1]
  ):
    sizes.append(fewer)
  # A call stores whole chunks of new entries, hence the room past the end.
  longest = max(settings.prompt_buckets) + settings.max_tokens
  length = longest + max(settings.decode_chunk, settings.extend_chunk)
  return Programs(
    settings=settings,
    mesh=mesh,
    sizes=tuple(sizes),
    param_shardings=param_shardings,
    prompt_shardings=prompts,
    slot_shardings=slots,
    # Once a request, not at each use: decoding reads every weight per token.
    compute_params=lambda params: jax.device_put(cast(params), param_shardings),
    empty_prompts=jax.jit(
      functools.partial(decode_lib.empty_prompts, model, settings.cache_chunk),
      static_argnums=(0, 1),
      out_shardings=prompts,
    ),
    empty_slots=jax.jit(
      functools.partial(
        decode_lib.empty_slots, model, settings.cache_chunk, sizes[0], length
      ),
      out_shardings=slots,
    ),
    prefill=jax.jit(
      functools.partial(decode_lib.prefill, model),
      out_shardings=prompts,
      donate_argnums=1,
    ),
    fill_slots=jax.jit(
      functools.partial(
        slots_lib.fill_slots, mesh=mesh, cache_spec=by_head.spec
      ),
      out_shardings=slots,
      donate_argnums=0,
    ),
    keep_slots=jax.jit(slots_lib.keep_slots, out_shardings=slots),
    decode=jax.jit(
      functools.partial(
        decode_lib.decode,
        model,
        choice=settings.sampling,
        steps=settings.decode_chunk,
      ),
      out_shardings=(slots, written),
      donate_argnums=1,
    ),
    append=jax.jit(
      functools.partial(
        append_lib.append, model, mesh=mesh, cache_spec=by_head.spec
      ),
      out_shardings=slots,
      donate_argnums=1,
    ),
  )
