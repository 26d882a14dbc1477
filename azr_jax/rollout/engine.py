"""The engine: the compiled functions of sampling, with their shardings.

Shapes depend only on the declared buckets and slots, so a sampler compiles a
fixed set of programs: one prefill per chunk length and one decode per slot
count. `Sampler.warm_up` runs each of them once.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding
from jax.stages import Wrapped

from azr_jax.models import (
  cached_attention,
  pages,
  products,
  sampling_params,
  transformer,
)
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.rollout import decode as decode_lib
from azr_jax.rollout import decode_state
from azr_jax.rollout import steps as steps_lib
from azr_jax.rollout.settings import SamplerSettings
from azr_jax.types import Params, Rules, Shardings

# Each slot count is this many times smaller than the one before it.
_COMPACT_FACTOR = 4


@dataclasses.dataclass(frozen=True)
class Engine:
  """The jitted functions of sampling and the sizes they are compiled for.

  Attributes:
    settings: shapes and rules of sampling.
    model: the decoder, configured for sampling.
    mesh: the mesh to sample on.
    slot_counts: slot counts to decode with, descending. The first is B, the
      declared slots padded to the mesh; it is the only one if slots are split
      over devices.
    lists_pages: whether decoding reads live pages only, by a kernel.
    num_pages: number of pages on each device that slots are split over.
    param_shardings: shardings of the sampler's parameters.
    pool_sharding: sharding of each array of the page pool.
    slots_sharding: sharding of each array of `Slots`.
    compute_params: training parameters -> the sampler's parameters.
    init_pool: () -> empty pages.
    init_slots: B -> slots, all done.
    prefill: `steps.prefill` without model and mesh; donates the pages.
    compact: `decode_state.compact`.
    decode: `decode.decode` without model, settings and mesh; donates pages and
      slots. Compiled separately with and without drafts.
  """

  settings: SamplerSettings
  model: transformer.Transformer
  mesh: Mesh
  slot_counts: tuple[int, ...]
  lists_pages: bool
  num_pages: int
  param_shardings: Shardings
  pool_sharding: NamedSharding
  slots_sharding: NamedSharding
  compute_params: Callable[[Params], Params]
  init_pool: Wrapped
  init_slots: Wrapped
  prefill: Wrapped
  compact: Wrapped
  decode: Wrapped

  @property
  def devices(self) -> int:
    """Number of devices that slots are split over, in equal parts."""
    return mesh_lib.batch_devices(self.mesh)

  @property
  def max_pages_per_row(self) -> int:
    """M, the number of pages of the longest sequence."""
    return self.settings.pages_for(self.settings.longest)

  @property
  def prefill_chunks(self) -> tuple[int, ...]:
    """Tokens per row that a prefill call may take, ascending."""
    return self.settings.prefill_chunks

  def prefill_chunk(self, tokens: int) -> int:
    """Returns the smallest chunk that holds the tokens, or the largest one."""
    fitting = (chunk for chunk in self.prefill_chunks if chunk >= tokens)
    return next(fitting, self.prefill_chunks[-1])

  def prefill_rows(self, chunk: int) -> int:
    """Returns the number of rows of a prefill call."""
    return prefill_rows(self.settings, chunk, self.devices)


def make_engine(
  model: transformer.Transformer,
  mesh: Mesh,
  rules: Rules,
  settings: SamplerSettings,
) -> Engine:
  """Builds the engine; each function compiles on its first call.

  Args:
    model: the training decoder.
    mesh: the mesh to sample on. It may arrange the learner's devices
      differently.
    rules: logical parameter axis -> mesh axis.
    settings: shapes and rules of sampling.

  Raises:
    ValueError: the cache has no room for the longest sequence.
  """
  c = model.config
  model = _sampling_model(model, mesh, rules, settings)
  lists_pages = settings.lists_pages(
    mesh_lib.platform(mesh), c.head_size, model.dtype
  )
  pool_sharding = mesh_lib.cache_sharding(mesh, c.num_kv_heads)
  slots_sharding = mesh_lib.batch_sharding(mesh)
  param_shardings = mesh_lib.param_shardings(
    transformer.abstract_params(model), mesh, rules
  )
  counts = slot_counts(settings.slots, mesh)
  num_pages = _num_pages(model, mesh, pool_sharding, settings, counts[0])
  devices = mesh_lib.batch_devices(mesh)
  pool_shape = (
    c.num_layers,
    num_pages * devices,
    c.num_kv_heads,
    settings.page_size,
    c.head_size,
  )
  on_mesh: dict[str, Any] = {"mesh": mesh, "pool_spec": pool_sharding.spec}
  return Engine(
    settings=settings,
    model=model,
    mesh=mesh,
    slot_counts=counts,
    lists_pages=lists_pages,
    num_pages=num_pages,
    param_shardings=param_shardings,
    pool_sharding=pool_sharding,
    slots_sharding=slots_sharding,
    # Converted once per request rather than at each use, because decoding
    # reads every weight for each token.
    compute_params=_make_compute_params(model, mesh, param_shardings),
    init_pool=jax.jit(
      functools.partial(
        pages.init_pool, pool_shape, settings.cache_dtype(model.dtype)
      ),
      out_shardings=pool_sharding,
    ),
    init_slots=jax.jit(
      decode_state.init_slots, static_argnums=0, out_shardings=slots_sharding
    ),
    prefill=jax.jit(
      functools.partial(steps_lib.prefill, model, **on_mesh),
      out_shardings=pool_sharding,
      donate_argnums=1,
    ),
    compact=jax.jit(decode_state.compact, out_shardings=slots_sharding),
    decode=_make_decode(
      model, on_mesh, pool_sharding, slots_sharding, settings, lists_pages
    ),
  )


def _sampling_model(
  model: transformer.Transformer,
  mesh: Mesh,
  rules: Rules,
  settings: SamplerSettings,
) -> transformer.Transformer:
  """Returns the decoder for sampling; arguments as for `make_engine`."""
  c, platform = model.config, mesh_lib.platform(mesh)
  model = model.clone(kernel_dtype=settings.kernel_dtype)
  return model.clone(
    # A token has few activations, so summing partial products of split kernels
    # is cheaper than gathering the kernels per token, as training does.
    multiply=products.multiply,
    inlined=False,
    joined=False,
    fused=sampling_params.fits(c, mesh, rules),
    unrolled=settings.unrolls(platform, sampling_params.layer_bytes(model)),
    attend_cached=cached_attention.make(
      # On a CPU, a requested kernel runs in interpret mode, for tests.
      mesh,
      c.num_kv_heads,
      interpret=platform == "cpu",
    ),
  )


def _make_compute_params(
  model: transformer.Transformer, mesh: Mesh, shardings: Any
) -> Callable[[Params], Params]:
  """Returns the function that converts parameters and moves them to `mesh`.

  If the parameters' devices have the mesh's order, one program converts and
  moves them. `jax.device_put` would reshard through the host in a single
  process.

  Args:
    model: the decoder for sampling.
    mesh: the mesh to sample on.
    shardings: the shardings of the converted parameters.
  """
  convert = functools.partial(sampling_params.convert, model)
  convert_there = jax.jit(convert, out_shardings=shardings)
  convert_here, order = jax.jit(convert), mesh.devices.flatten().tolist()

  def compute_params(params: Params) -> Params:
    sharding = jax.tree.leaves(params)[0].sharding
    if (
      isinstance(sharding, NamedSharding)
      and sharding.mesh.devices.flatten().tolist() == order
    ):
      return convert_there(params)
    return jax.device_put(convert_here(params), shardings)

  return compute_params


def _make_decode(
  model: transformer.Transformer,
  on_mesh: dict[str, Any],
  pool_sharding: NamedSharding,
  slots_sharding: NamedSharding,
  settings: SamplerSettings,
  lists_pages: bool,
) -> Wrapped:
  """Returns the jitted decode loop, which donates pages and slots."""
  # The output is replicated, because every host of a pod schedules all
  # sequences and so reads all of it.
  replicated = mesh_lib.replicated(on_mesh["mesh"])
  return jax.jit(
    functools.partial(
      decode_lib.decode,
      model,
      truncation=settings.truncation,
      speculation=settings.speculation,
      steps=settings.decode_chunk,
      lists_pages=lists_pages,
      **on_mesh,
    ),
    out_shardings=(pool_sharding, slots_sharding, replicated),
    donate_argnums=(1, 2),
  )


def slot_counts(slots: int, mesh: Mesh) -> tuple[int, ...]:
  """Returns the slot counts to compile the decode loop for, descending."""
  counts = [mesh_lib.padded_rows(slots, mesh)]
  # A sequence stays on the device of its pages, and every device has equally
  # many slots, so slots cannot be compacted across devices.
  if mesh_lib.batch_devices(mesh) > 1:
    return tuple(counts)
  while True:
    fewer = mesh_lib.padded_rows(max(1, counts[-1] // _COMPACT_FACTOR), mesh)
    if fewer >= counts[-1]:
      return tuple(counts)
    counts.append(fewer)


def prefill_rows(settings: SamplerSettings, chunk: int, devices: int) -> int:
  """Returns the rows of a prefill call, equally many on each device."""
  rows = max(1, settings.prefill_tokens // chunk)
  return rows + -rows % devices


def num_slot_pages(settings: SamplerSettings, slots: int, devices: int) -> int:
  """Returns the pages per device that B sequences of full length need.

  Args:
    settings: shapes and rules of sampling.
    slots: B, over all devices.
    devices: number of devices that slots are split over.
  """
  # Prefilled prompts that wait for slots also hold pages.
  prefilled = max(
    prefill_rows(settings, bucket, devices) * settings.pages_for(bucket)
    for bucket in settings.prompt_buckets
  )
  row_pages = settings.pages_for(settings.longest)
  return slots // devices * row_pages + prefilled // devices


def _num_pages(
  model: transformer.Transformer,
  mesh: Mesh,
  pool_sharding: NamedSharding,
  settings: SamplerSettings,
  slots: int,
) -> int:
  """Returns the number of pages on each device that slots are split over."""
  c, devices = model.config, mesh_lib.batch_devices(mesh)
  row_pages = settings.pages_for(settings.longest)
  if not settings.cache_gib:
    return num_slot_pages(settings, slots, devices)
  page_shape = (
    c.num_layers,
    devices,
    c.num_kv_heads,
    settings.page_size,
    c.head_size,
  )
  page = jax.eval_shape(
    functools.partial(
      pages.init_pool, page_shape, settings.cache_dtype(model.dtype)
    )
  )
  page_bytes = sum(
    math.prod(pool_sharding.shard_shape(x.shape)) * x.dtype.itemsize
    for x in jax.tree.leaves(page)
  )
  pages_that_fit = int(settings.cache_gib * 2**30 / page_bytes)
  min_pages = row_pages + settings.pages_for(settings.prompt_buckets[-1])
  if pages_that_fit < min_pages:
    raise ValueError(
      f"rollout.cache_gib={settings.cache_gib}: expected at least "
      f"{min_pages * page_bytes / 2**30:.3g} GiB, enough for the longest "
      "sequence and prompt"
    )
  return pages_that_fit
