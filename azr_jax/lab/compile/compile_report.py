"""Compiles a run for the given devices, and reports time, memory and bounds.

Nothing runs on the devices: their compilers work on any x86 Linux machine.
"""

import dataclasses
import math
import pathlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from jax.sharding import Mesh

from azr_jax.lab.compile import (
  compiled,
  compiled_costs,
  cost,
  program_report,
  roofline,
  roofline_floors,
  row_fill,
  sampling_programs,
)
from azr_jax.lab.compile import draws as draws_lib
from azr_jax.lab.compile import lengths as lengths_lib
from azr_jax.lab.compile import topology as topology_lib
from azr_jax.models import adapters, load, presets
from azr_jax.models.config import ModelConfig
from azr_jax.models.settings import ModelSettings
from azr_jax.parallel import chips
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.rollout import layout
from azr_jax.rollout.settings import SamplerSettings
from azr_jax.rollout.shapes import slot_counts
from azr_jax.trainer import decoders, teachers
from azr_jax.trainer.settings import ExperimentSettings, TrainSettings

# Device memory that the compiler reserves for itself.
RESERVED_BYTES = 0.3e9
# Assumed mean tokens of a prompt and of a completion.
MEAN_TOKENS = 1024


def config_of(settings: ModelSettings) -> ModelConfig:
  """Returns the config of a run's model, which need not exist yet."""
  if (
    settings.preset and not pathlib.Path(settings.source).expanduser().is_dir()
  ):
    return presets.PRESETS[settings.preset]
  return load.config_of(settings.source, settings.cache_dir)


def compile_check(
  settings: ExperimentSettings,
  topology: str,
  prompt_tokens: float | None = None,
  new_tokens: float | None = None,
  lengths: Sequence[str] = (),
  on_program: Callable[[str], None] = lambda name: None,
  program_names: Collection[str] = (),
) -> tuple[dict[str, Any], bool]:
  """Compiles every program of a run and estimates the time of a step.

  Args:
    settings: a training configuration.
    topology: the devices, e.g. v5p:4x4x2 or h200:8.
    prompt_tokens: mean prompt length for the estimate. None takes
      `MEAN_TOKENS`, or the largest bucket if that is less.
    new_tokens: mean completion length. None takes `MEAN_TOKENS`, or the
      longest completion if that is less.
    lengths: distributions of completion lengths, as `lengths.parse` reads
      them; a step is forecast for each. () assumes `new_tokens` for all.
    on_program: called with the name of each program before it is compiled.
    program_names: the programs to compile; () compiles all.

  Returns:
    The report, and whether every program compiles and fits into device memory.

  Raises:
    ValueError: the topology or the distribution is unknown.
  """
  c = settings.shared
  r = c.rollout
  prompt_tokens, new_tokens = _assumed_lengths(r, prompt_tokens, new_tokens)
  distributions = {
    name: lengths_lib.parse(name, r.max_tokens)
    for name in lengths or (f"equal:{new_tokens:.0f}",)
  }
  chip = topology_lib.chip_of(topology)
  devices = topology_lib.devices(topology)
  mesh = decoders.learner_mesh(c, devices)
  config = config_of(c.model)
  sampling = layout.rollout_mesh(r.mesh, mesh, config.experts)
  load = roofline.step_load(settings, prompt_tokens, new_tokens)
  options = topology_lib.compiler_options(topology)
  programs = compiled.compile_all(
    c, config, mesh, options, on_program, program_names
  )
  shapes = make_shapes(
    c, config, mesh, sampling, prompt_tokens + new_tokens / 2
  )
  trip_counts = assumed_trip_counts(c, shapes, prompt_tokens)
  counts = slot_counts(
    r.slots, mesh_lib.batch_devices(sampling), mesh_lib.platform(mesh)
  )
  for slots in counts:
    name = sampling_programs.decode_name(counts, slots)
    trip_counts[name] = trip_counts["decode"]
  by_name = {program.name: program for program in programs}
  reports = _reports(programs, config, chip, shapes, trip_counts)
  update = by_name.get("update")
  estimate = _estimate(c, config, chip, mesh, shapes, load, update)
  report = _about(topology, chip, mesh, sampling) | {
    "assumed_trip_counts": trip_counts,
    "programs": reports,
    "estimate": dataclasses.asdict(estimate) | {"step_s": estimate.step_s},
    "assumed": roofline.assumptions(load),
    "rows_advice": _rows_advice(c, mesh, load, distributions),
  }
  can_forecast = chip.clock_hz and not program_names
  if can_forecast and not any(program.error for program in programs):
    report["forecasts"] = {
      name: compiled_costs.forecast_step(
        by_name, chip, c, shapes, counts, load, distribution, report["hosts"]
      )
      for name, distribution in distributions.items()
    }
  return report, all(program["fits"] for program in reports.values())


def _assumed_lengths(
  r: SamplerSettings, prompt_tokens: float | None, new_tokens: float | None
) -> tuple[float, float]:
  """Returns the mean lengths of prompts and completions, as `compile_check`."""
  if prompt_tokens is None:
    prompt_tokens = min(MEAN_TOKENS, r.prompt_buckets[-1])
  if new_tokens is None:
    new_tokens = min(MEAN_TOKENS, r.max_tokens)
  return prompt_tokens, new_tokens


def _estimate(
  c: TrainSettings,
  config: ModelConfig,
  chip: chips.Chip,
  mesh: Mesh,
  shapes: roofline_floors.Shapes,
  load: roofline.Load,
  update: compiled.Compiled | None,
) -> roofline.StepBounds:
  """Returns the estimate of a step; `update` is None if it is not compiled."""
  _, teacher = teachers.build(
    c, teachers.config_of(c.distill, c.model.cache_dir), mesh
  )
  return roofline.estimate(
    c,
    config,
    chip,
    mesh.size,
    shapes.tensor * shapes.expert,
    decoders.build_policy_model(c, config, mesh, teacher).remat,
    shapes.rows,
    load,
    {} if update is None else update.collectives,
  )


def _rows_advice(
  c: TrainSettings,
  mesh: Mesh,
  load: roofline.Load,
  distributions: Mapping[str, lengths_lib.Lengths],
) -> str:
  """Returns what to change if a step has fewer rows than the mesh, else ""."""
  first = next(iter(distributions.values()))
  trained = draws_lib.draw(load, first, seed=0).trained
  return row_fill.advice(trained, c.learner, c.mesh, mesh)


def _about(
  topology: str, chip: chips.Chip, mesh: Mesh, sampling: Mesh
) -> dict[str, Any]:
  """Returns the part of the report about the devices."""
  return {
    "topology": topology,
    "devices": mesh.size,
    "hosts": len({device.process_index for device in mesh.devices.flat}),
    "mesh": dict(mesh.shape),
    "rollout_mesh": dict(sampling.shape),
    "hbm_gib": chip.hbm_bytes / chips.GIB,
    "clock_hz": chip.clock_hz,
  }


def _reports(
  programs: Sequence[compiled.Compiled],
  config: ModelConfig,
  chip: chips.Chip,
  shapes: roofline_floors.Shapes,
  trip_counts: dict[str, dict[str, float]],
) -> dict[str, dict[str, Any]]:
  """Returns each program's report, including whether it fits into memory."""
  token_floors = roofline_floors.decode_token(config, chip, shapes)
  usable_bytes = chip.hbm_bytes - RESERVED_BYTES
  reports = {}
  for program in programs:
    report = program_report.program_report(
      program,
      chip,
      roofline_floors.call_floors(program.name, config, chip, shapes),
      token_floors,
      trip_counts.get(program.name, {}),
    )
    failed = program.overflow or program.error
    report["fits"] = not failed and program.peak_bytes <= usable_bytes
    reports[program.name] = report
  return reports


def make_shapes(
  c: TrainSettings,
  config: ModelConfig,
  mesh: Mesh,
  sampling: Mesh,
  context: float,
) -> roofline_floors.Shapes:
  """Returns the sizes of one call of each program.

  Args:
    c: a training configuration.
    config: the model's config.
    mesh: the learner's mesh.
    sampling: the sampling mesh, over the same devices.
    context: mean tokens that a live slot holds.
  """
  r = c.rollout
  prefill_shapes = {}
  for chunk in r.prefill_chunks:
    rows = max(1, r.prefill_tokens // chunk)
    rows = mesh_lib.padded_rows(rows, sampling)
    prefill_shapes[sampling_programs.prefill_name(r, chunk)] = (rows, chunk)
  lora, trained = c.lora.adapters, None
  if lora is not None:
    trained = adapters.parameter_count(config, lora)
  return roofline_floors.Shapes(
    chips=mesh.size,
    tensor=sampling.shape["tensor"],
    row_length=c.learner.row_length,
    rows=mesh_lib.padded_rows(c.learner.micro_rows, mesh),
    slots=mesh_lib.padded_rows(r.slots, sampling),
    context=context,
    decode_steps=r.decode_chunk,
    prefill_shapes=prefill_shapes,
    dtypes=r.dtypes(c.model.dtype, c.lora.kernel_dtype),
    adapters=trained,
    state_size=decoders.state_size(c.model, c.optimizer, c.distill),
    critic_size=decoders.state_size(c.model, c.critic.optimizer),
    expert=sampling.shape["expert"],
  )


def assumed_trip_counts(
  c: TrainSettings, shapes: roofline_floors.Shapes, prompt_tokens: float
) -> dict[str, dict[str, float]]:
  """Returns program -> loop of unknown length -> assumed iterations.

  Decoding attends to a slot's prompt and half of its completion. Chunked
  prefill attends to half of the prompt on average. A row of decode writes one
  page of the KV cache; a row of prefill as many as its new tokens fill.

  Args:
    c: a training configuration.
    shapes: the sizes of a call.
    prompt_tokens: mean prompt length.
  """
  page_size = c.rollout.page_size
  cached = max(0.0, prompt_tokens - c.rollout.prefill_tokens) / 2
  trip_counts: dict[str, dict[str, float]] = {
    name: {
      cost.PAGE: math.ceil(cached / page_size),
      cost.WRITTEN_PAGE: math.ceil(chunk / page_size),
    }
    for name, (_, chunk) in shapes.prefill_shapes.items()
  }
  return trip_counts | {
    "decode": {
      cost.TOKEN: c.rollout.decode_chunk,
      cost.PAGE: math.ceil(shapes.context / page_size),
      cost.WRITTEN_PAGE: 1,
    },
    "estimate": {cost.MICRO_BATCH: 1},
    "critic": {cost.OPTIMIZER_STEP: 1, cost.MICRO_BATCH: 1},
    "prepare": {cost.MICRO_BATCH: 1},
    "update": {cost.MICRO_BATCH: 1},
  }
