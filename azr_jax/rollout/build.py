"""Builds an engine from the `rollout` section of a configuration.

This module, `sampler.py` and `layout.py` are the ones that read the section.
"""

from jax.sharding import Mesh

from azr_jax.models import expert_sharding, rope, sampling_params, transformer
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.rollout import engine as engine_lib
from azr_jax.rollout import shapes as shapes_lib
from azr_jax.rollout.drafts import Drafting
from azr_jax.rollout.engine import Engine
from azr_jax.rollout.settings import (
  KERNEL,
  SamplerSettings,
  SpeculationSettings,
)
from azr_jax.rollout.shapes import EngineShapes
from azr_jax.types import Rules


def build_engine(
  model: transformer.Transformer,
  mesh: Mesh,
  rules: Rules,
  settings: SamplerSettings,
  shares_base: bool = False,
) -> Engine:
  """Builds the engine; nothing is compiled yet.

  Args:
    model: the training decoder.
    mesh: the mesh to sample on.
    rules: logical parameter axis -> mesh axis.
    settings: shapes and rules of sampling.
    shares_base: see `engine.make_engine`.

  Raises:
    ValueError: the cache has no room for the longest sequence, or the mesh
      cannot split the experts.
  """
  config, platform = model.config, mesh_lib.platform(mesh)
  expert_sharding.check(config, mesh, rules, "config.rollout.mesh.expert")
  model = sampling_model(model, mesh, rules, settings)
  devices = mesh_lib.batch_devices(mesh)
  slot_counts = shapes_lib.slot_counts(settings.slots, devices, platform)
  shapes = shapes_of(settings, devices, slot_counts)
  cache_dtype = settings.cache_dtype(model.dtype)
  lists_pages = settings.lists_pages(platform, config.head_size, model.dtype)
  num_pages = shapes.num_slot_pages
  if settings.cache_gib:
    page_bytes = engine_lib.page_bytes(
      *(config, mesh, shapes.page_size, cache_dtype),
      records_experts=settings.router_replay,
    )
    num_pages = _pages_in(settings.cache_gib, page_bytes, shapes)
  return engine_lib.make_engine(
    model,
    mesh,
    rules,
    shapes,
    num_pages=num_pages,
    cache_dtype=cache_dtype,
    lists_pages=lists_pages,
    truncation=settings.truncation,
    num_drafts=settings.speculation.drafts,
    min_match=settings.speculation.min_match,
    shares_base=shares_base,
    records_experts=settings.router_replay,
  )


def sampling_model(
  model: transformer.Transformer,
  mesh: Mesh,
  rules: Rules,
  settings: SamplerSettings,
) -> transformer.Transformer:
  """Returns the decoder for sampling; see `build_engine` for the arguments."""
  model = model.clone(
    config=rope.for_length(model.config, settings.longest + 1),
    fused=False,
    unrolled=False,
    kernel_dtype=settings.kernel_dtype or model.kernel_dtype,
  )
  unrolled = settings.unrolls(sampling_params.layer_bytes(model))
  return engine_lib.sampling_model(
    *(model, mesh, rules, unrolled),
    has_projection_kernel=settings.projection == KERNEL,
  )


def shapes_of(
  settings: SamplerSettings,
  devices: int = 1,
  slot_counts: tuple[int, ...] = (),
) -> EngineShapes:
  """Returns the sizes to compile for.

  Args:
    settings: shapes and rules of sampling.
    devices: number of devices that slots are split over.
    slot_counts: slot counts to decode with, descending; () always uses
      `settings.slots`.
  """
  return EngineShapes(
    devices=devices,
    slot_counts=slot_counts or (settings.slots,),
    prompt_buckets=settings.prompt_buckets,
    prefill_chunks=settings.prefill_chunks,
    prefill_tokens=settings.prefill_tokens,
    decode_chunk=settings.decode_chunk,
    page_size=settings.page_size,
    longest=settings.longest,
  )


def drafting_of(settings: SpeculationSettings, mesh: Mesh) -> Drafting | None:
  """Returns the rules of speculative decoding; None if it is off.

  Args:
    settings: how many tokens are drafted, and when it pays.
    mesh: the mesh to sample on.
  """
  if not settings.drafts:
    return None
  return Drafting(
    context=settings.context,
    max_slots=settings.max_slots,
    min_gain=settings.min_gain,
    pause_calls=settings.pause_calls,
    # These devices share a copy: each multiplies the rows of all of them by its
    # part of a kernel.
    devices_per_copy=mesh.shape["fsdp"] * mesh.shape["expert"],
  )


def _pages_in(cache_gib: float, page_bytes: int, shapes: EngineShapes) -> int:
  """Returns the number of pages that a cache of a given size holds.

  Raises:
    ValueError: it has no room for the longest sequence and prompt.
  """
  pages_that_fit = int(cache_gib * 2**30 / page_bytes)
  longest_prompt = shapes.pages_for(shapes.prompt_buckets[-1])
  min_pages = shapes.max_pages_per_row + longest_prompt
  if pages_that_fit < min_pages:
    raise ValueError(
      f"rollout.cache_gib={cache_gib}: expected at least "
      f"{min_pages * page_bytes / 2**30:.3g} GiB, enough for the longest "
      "sequence and prompt"
    )
  return pages_that_fit
