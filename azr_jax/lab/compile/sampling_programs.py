"""The sampler's device programs: weight conversion, prefill and decode."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence

import jax
from jax.sharding import Mesh, NamedSharding

from azr_jax import types
from azr_jax.lab.compile import abstract
from azr_jax.lab.compile.abstract import Program
from azr_jax.models import adapters, pages, sampling_params, transformer
from azr_jax.rollout import (
  decode_state,
  layout,
  prefill_scheduler,
)
from azr_jax.rollout.build import build_engine
from azr_jax.rollout.engine import Engine
from azr_jax.rollout.settings import SamplerSettings
from azr_jax.rollout.slots import no_changes
from azr_jax.trainer import frozen
from azr_jax.trainer.settings import TrainSettings

# Number of stop ids. Programs depend on it, but not on their values.
_NUM_STOP_IDS = 2


@dataclasses.dataclass(frozen=True)
class Sampling:
  """An engine and its abstract arguments.

  Attributes:
    params: parameters as `engine.compute_params` returns them.
    pool: keys and values in pages.
    slots: slot state at each slot count.
  """

  engine: Engine
  params: types.Params
  pool: pages.Pool
  slots: Mapping[int, decode_state.Slots]


def prefill_name(settings: SamplerSettings, chunk: int) -> str:
  """Returns the name of the prefill program for chunks of this length."""
  is_widest = chunk == settings.prefill_chunks[-1]
  return "prefill" if is_widest else f"prefill_{chunk}"


def decode_name(slot_counts: Sequence[int], slots: int) -> str:
  """Returns the name of the decode program for one of the slot counts."""
  return "decode" if slots == slot_counts[0] else f"decode_{slots}"


def weights(
  sampling: Sampling, params: types.Params, mesh: Mesh, other_bytes: float
) -> Program:
  """Returns the program that converts new parameters for the sampler.

  A run also does this in one program, unless the sampling mesh orders the
  devices differently. Here they have the learner's order.

  Args:
    sampling: the engine and its arguments.
    params: the learner's parameters.
    mesh: the learner's mesh.
    other_bytes: bytes of the learner's other arrays on one device.
  """
  engine = sampling.engine
  ordered = Mesh(
    mesh.devices.reshape(engine.mesh.devices.shape),
    engine.mesh.axis_names,
    axis_types=engine.mesh.axis_types,
  )
  convert, shardings = sampling_params.convert, engine.param_shardings
  if engine.shares_base:
    convert = sampling_params.convert_adapters
    other_bytes += abstract.device_bytes(adapters.base_of(params))
    params, shardings = map(adapters.adapters_of, (params, shardings))
  program = jax.jit(
    functools.partial(convert, engine.model),
    out_shardings=jax.tree.map(
      lambda x: NamedSharding(ordered, x.spec), shardings
    ),
  )
  return Program(
    "weights",
    lambda: program.lower(params),
    # The pages of a running stream stay in memory meanwhile.
    other_bytes + abstract.device_bytes(sampling.pool),
  )


def make(
  c: TrainSettings, sampling: Sampling, train_bytes: float
) -> list[Program]:
  """Returns prefill for each chunk length, and decode for each slot count.

  Args:
    c: a training configuration.
    sampling: the engine and its arguments.
    train_bytes: bytes of the learner's arrays on one device.
  """
  engine, params = sampling.engine, sampling.params
  shapes = engine.shapes
  pool, counts = sampling.pool, shapes.slot_counts
  cache_bytes = abstract.device_bytes(pool.k)

  def prefill(chunk: int) -> Program:
    batch = abstract.shapes_of(prefill_scheduler.empty_batch(shapes, chunk))
    return Program(
      prefill_name(c.rollout, chunk),
      lambda: engine.prefill.lower(params, pool, batch),
      train_bytes + abstract.device_bytes(sampling.slots[counts[0]]),
      cache_bytes,
    )

  def decode(
    name: str, slots: int, context: jax.ShapeDtypeStruct | None = None
  ) -> Program:
    nothing = no_changes(slots, shapes.devices, shapes.max_pages_per_row)
    return Program(
      name,
      lambda: engine.decode.lower(
        params,
        pool,
        sampling.slots[slots],
        abstract.shapes_of(nothing).replace(context=context),
        abstract.ints(_NUM_STOP_IDS),
        abstract.ints(),
      ),
      train_bytes,
      cache_bytes,
    )

  programs = [*map(prefill, reversed(shapes.prefill_chunks))]
  programs += [decode(decode_name(counts, slots), slots) for slots in counts]
  speculation = c.rollout.speculation
  if speculation.drafts:
    context = abstract.ints(counts[0], speculation.context)
    programs.append(decode("decode_drafts", counts[0], context))
  return programs


def abstract_sampling(
  c: TrainSettings, model: transformer.Transformer, mesh: Mesh
) -> Sampling:
  """Returns the engine and its abstract arguments."""
  sampling_mesh = layout.rollout_mesh(
    c.rollout.mesh, mesh, model.config.experts
  )
  engine = build_engine(
    model,
    sampling_mesh,
    c.sharding.rules(),
    c.rollout,
    frozen.is_shared(c.lora, c.rollout, c.model.dtype, mesh, sampling_mesh),
  )
  params = jax.eval_shape(
    lambda key: sampling_params.convert(
      engine.model, transformer.init_params(transformer.plain(model), key)
    ),
    jax.random.key(0),
  )
  pool = jax.eval_shape(engine.init_pool)

  def slots(count: int) -> decode_state.Slots:
    # The number of slots is a constant of the program.
    made = jax.eval_shape(functools.partial(decode_state.init_slots, count))
    shardings = jax.tree.map(lambda _: engine.slots_sharding, made)
    return abstract.with_shardings(made, shardings)

  return Sampling(
    engine,
    abstract.with_shardings(params, engine.param_shardings),
    abstract.with_shardings(
      pool, jax.tree.map(lambda _: engine.pool_sharding, pool)
    ),
    {count: slots(count) for count in engine.shapes.slot_counts},
  )
