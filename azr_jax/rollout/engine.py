"""The engine: the compiled functions of sampling, with their shardings.

Shapes depend only on the declared buckets and slots (`shapes.py`), so a sampler
compiles a fixed set of programs: one prefill per chunk length and one decode
per slot count. `Sampler.warm_up` runs each of them once. `build.py` builds an
engine from a configuration.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax.stages import Wrapped
from jax.typing import DTypeLike

from azr_jax.models import (
  adapter_stack,
  adapters,
  cached_attention,
  expert_sharding,
  gpu_projection_kernel,
  pages,
  products,
  sampling_params,
  transformer,
)
from azr_jax.models.config import ModelConfig
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.rollout import decode as decode_lib
from azr_jax.rollout import decode_state
from azr_jax.rollout import steps as steps_lib
from azr_jax.rollout.shapes import EngineShapes
from azr_jax.rollout.token_sampling import Truncation
from azr_jax.types import Params, Rules, Shardings


@dataclasses.dataclass(frozen=True)
class Engine:
  """The jitted functions of sampling and the sizes they are compiled for.

  Attributes:
    shapes: the sizes of the functions' arguments.
    model: the decoder, configured for sampling.
    mesh: the mesh to sample on.
    lists_pages: whether decoding reads live pages only, by a kernel.
    num_pages: P, the pages on each device that slots are split over.
    param_shardings: shardings of the sampler's parameters.
    pool_sharding: sharding of each array of the page pool.
    slots_sharding: sharding of each array of `Slots`.
    shares_base: whether sampling reads the learner's frozen base as it is.
    compute_params: training parameters -> the sampler's parameters. With a
      stack of adapters, frozen parameters -> these and an empty stack.
    init_pool: () -> empty pages.
    init_slots: B -> slots, all done.
    prefill: `steps.prefill` without model and mesh; donates the pages.
    compact: `decode_state.compact` of each device's slots.
    read_experts: `pages.read_experts` of a pool and a table [rows, M], on the
      host; None if pages keep no experts.
    decode: `decode.decode` without model, mesh and everything that is the same
      in each call; donates pages and slots. Compiled separately with and
      without drafts.
  """

  shapes: EngineShapes
  model: transformer.Transformer
  mesh: Mesh
  lists_pages: bool
  num_pages: int
  param_shardings: Shardings
  pool_sharding: NamedSharding
  slots_sharding: NamedSharding
  shares_base: bool
  compute_params: Callable[[Params], Params]
  init_pool: Wrapped
  init_slots: Wrapped
  prefill: Wrapped
  compact: Wrapped
  decode: Wrapped
  read_experts: Wrapped | None = None


def make_engine(
  model: transformer.Transformer,
  mesh: Mesh,
  rules: Rules,
  shapes: EngineShapes,
  num_pages: int,
  cache_dtype: DTypeLike,
  lists_pages: bool,
  truncation: Truncation,
  num_drafts: int = 0,
  min_match: int = 1,
  shares_base: bool = False,
  records_experts: bool = False,
) -> Engine:
  """Returns the engine; each function compiles on its first call.

  Args:
    model: the decoder, as `sampling_model` returns it.
    mesh: the mesh to sample on.
    rules: logical parameter axis -> mesh axis.
    shapes: the sizes to compile for; the devices are the mesh's.
    num_pages: P, the pages on each device that slots are split over.
    cache_dtype: dtype of cached keys and values.
    lists_pages: whether decoding reads live pages only, by a kernel.
    truncation: top-k and top-p of the token distribution.
    num_drafts: J, the drafts per slot and iteration.
    min_match: number of matching tokens that a draft requires.
    shares_base: see `Engine`. Only adapters are then converted.
    records_experts: whether pages keep the experts of each token.
  """
  pool_sharding = mesh_lib.cache_sharding(mesh, model.config.num_kv_heads)
  slots_sharding = mesh_lib.batch_sharding(mesh)
  param_shardings = mesh_lib.param_shardings(
    transformer.abstract_params(model), mesh, rules
  )
  pool_shape = _pool_shape(
    model.config, num_pages * shapes.devices, shapes.page_size
  )
  on_mesh: dict[str, Any] = {"mesh": mesh, "pool_spec": pool_sharding.spec}
  recorded = model.config.experts if records_experts else None
  return Engine(
    *(shapes, model, mesh, lists_pages, num_pages),
    param_shardings=param_shardings,
    pool_sharding=pool_sharding,
    slots_sharding=slots_sharding,
    shares_base=shares_base,
    # Converted once, because decoding reads every weight for each token.
    compute_params=_make_compute_params(
      *(model, mesh, param_shardings, shares_base)
    ),
    init_pool=jax.jit(
      lambda: pages.init_pool(pool_shape, cache_dtype, recorded),
      out_shardings=pool_sharding,
    ),
    init_slots=jax.jit(
      decode_state.init_slots, static_argnums=0, out_shardings=slots_sharding
    ),
    prefill=jax.jit(
      functools.partial(prefill_of(model, mesh_lib.platform(mesh)), **on_mesh),
      out_shardings=pool_sharding,
      donate_argnums=1,
    ),
    compact=_make_compact(slots_sharding),
    decode=jax.jit(
      functools.partial(
        *(decode_lib.decode, model),
        truncation=truncation,
        num_drafts=num_drafts,
        min_match=min_match,
        steps=shapes.decode_chunk,
        lists_pages=lists_pages,
        **on_mesh,
      ),
      # Every host schedules all sequences, so it reads all of the output.
      out_shardings=(pool_sharding, slots_sharding, mesh_lib.replicated(mesh)),
      donate_argnums=(1, 2),
    ),
    read_experts=_make_read_experts(mesh, pool_sharding) if recorded else None,
  )


def stacks_layers(model: transformer.Transformer, platform: str) -> bool:
  """Returns whether prefill stacks the layers of a decoder first.

  On TPUs it stacks separate layers. The copy adds a quarter to a call, but
  compiling prefill layer by layer would take five times as long.
  """
  return model.unrolled and platform == "tpu"


def prefill_of(
  model: transformer.Transformer, platform: str
) -> Callable[..., pages.Pool]:
  """Returns `steps.prefill` of a decoder.

  Args:
    model: the decoder for sampling.
    platform: cpu, gpu or tpu.
  """
  if not stacks_layers(model, platform):
    return functools.partial(steps_lib.prefill, model)
  stacked = model.clone(unrolled=False)

  def prefill(params: Params, *arguments: Any, **on_mesh: Any) -> pages.Pool:
    params = sampling_params.stack(params, model.config.num_layers)
    return steps_lib.prefill(stacked, params, *arguments, **on_mesh)

  return prefill


def _make_compact(sharding: NamedSharding) -> Wrapped:
  """Returns `decode_state.compact`, run by each device on its own slots."""
  per_device = jax.shard_map(
    decode_state.compact,
    mesh=sharding.mesh,
    in_specs=sharding.spec,
    out_specs=sharding.spec,
  )
  return jax.jit(per_device, out_shardings=sharding)


def _make_read_experts(mesh: Mesh, sharding: NamedSharding) -> Wrapped:
  """Returns `pages.read_experts`, run by each device on its own pages.

  Args:
    mesh: the mesh to sample on.
    sharding: the sharding of the pool.
  """
  by_row = PartitionSpec(mesh_lib.BATCH_AXES)
  per_device = jax.shard_map(
    pages.read_experts,
    mesh=mesh,
    in_specs=(sharding.spec, by_row),
    out_specs=PartitionSpec(
      mesh_lib.BATCH_AXES, None, None, sharding.spec[2], None
    ),
    check_vma=False,
  )
  if jax.process_count() == 1:
    return jax.jit(per_device)
  # Every host of a pod keeps the tokens of all sequences.
  return jax.jit(per_device, out_shardings=mesh_lib.replicated(mesh))


def sampling_model(
  model: transformer.Transformer,
  mesh: Mesh,
  rules: Rules,
  unrolled: bool,
  *,
  has_projection_kernel: bool = False,
) -> transformer.Transformer:
  """Returns the decoder for sampling.

  Args:
    model: the training decoder, with the kernels' dtype of sampling.
    mesh: the mesh to sample on.
    rules: logical parameter axis -> mesh axis.
    unrolled: whether each layer is compiled separately.
    has_projection_kernel: whether `gpu_projection_kernel.py` projects where it
      can.
  """
  fused, project = sampling_params.fits(model.config, mesh, rules), None
  is_plain = model.kernel_dtype is None and model.lora is None
  if has_projection_kernel and fused and is_plain:
    project = gpu_projection_kernel.make(mesh, model.config, model.dtype)
  return model.clone(
    # A token has few activations, so summing partial products of split kernels
    # is cheaper than gathering the kernels per token, as training does.
    multiply=products.multiply,
    compute_experts=expert_sharding.make(mesh, rules),
    inlined=False,
    joined=False,
    fused=fused,
    project=project,
    unrolled=unrolled,
    attend_cached=cached_attention.make(
      # On a CPU, a requested kernel runs in interpret mode, for tests.
      mesh,
      model.config.num_kv_heads,
      interpret=mesh_lib.platform(mesh) == "cpu",
    ),
  )


def _make_compute_params(
  model: transformer.Transformer,
  mesh: Mesh,
  shardings: Params,
  shares_base: bool,
) -> Callable[[Params], Params]:
  """Returns the function that converts parameters and moves them to `mesh`.

  If the parameters' devices have the mesh's order, one program converts and
  moves them. `jax.device_put` would reshard through the host in a single
  process.

  Args:
    model: the decoder for sampling.
    mesh: the mesh to sample on.
    shardings: the shardings of the converted parameters.
    shares_base: see `make_engine`.
  """
  if shares_base:
    adapt = jax.jit(
      functools.partial(_convert_adapters, model),
      out_shardings=adapters.adapters_of(shardings),
    )

    def with_base(params: Params) -> Params:
      base, trained = adapters.base_of(params), adapters.adapters_of(params)
      return adapters.join(base, adapt(trained))

    return with_base
  convert = functools.partial(whole_params, model)
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


def _convert_adapters(
  model: transformer.Transformer, trained: Params
) -> Params:
  """Returns the adapters that sampling reads beside a shared base."""
  if model.has_stack:
    return adapter_stack.empty(model)
  return sampling_params.convert_adapters(model, trained)


def whole_params(model: transformer.Transformer, params: Params) -> Params:
  """Returns the parameters that sampling reads."""
  converted = sampling_params.convert(model, params)
  if model.has_stack:
    return adapters.join(converted, adapter_stack.empty(model))
  return converted


def _pool_shape(
  config: ModelConfig, num_pages: int, page_size: int
) -> tuple[int, int, int, int, int]:
  """Returns L, P, K, C and E."""
  return (
    config.num_layers,
    num_pages,
    config.num_kv_heads,
    page_size,
    config.head_size,
  )


def page_bytes(
  config: ModelConfig,
  mesh: Mesh,
  page_size: int,
  cache_dtype: DTypeLike,
  records_experts: bool = False,
) -> int:
  """Returns the bytes of a page on each of its devices.

  Args:
    config: the decoder's config.
    mesh: the mesh to sample on.
    page_size: C, tokens per page.
    cache_dtype: dtype of cached keys and values.
    records_experts: whether pages keep the experts of each token.
  """
  shape = _pool_shape(config, mesh_lib.batch_devices(mesh), page_size)
  recorded = config.experts if records_experts else None
  page = jax.eval_shape(
    functools.partial(pages.init_pool, shape, cache_dtype, recorded)
  )
  sharding = mesh_lib.cache_sharding(mesh, config.num_kv_heads)
  return sum(
    math.prod(sharding.shard_shape(x.shape)) * x.dtype.itemsize
    for x in jax.tree.leaves(page)
  )
