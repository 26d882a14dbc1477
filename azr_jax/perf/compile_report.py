"""Compiles a run for named devices, and reports time, memory and their bounds.

Nothing runs on the devices: their compilers work on any x86 Linux machine.
"""

import dataclasses
import math
import pathlib
from collections.abc import Callable, Collection, Sequence
from typing import Any

from jax.sharding import Mesh

from azr_jax.models import load, presets
from azr_jax.models.config import ModelConfig
from azr_jax.models.settings import ModelSettings
from azr_jax.parallel import chips
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.perf import (
  compiled,
  compiled_costs,
  cost,
  floors,
  program_report,
  roofline,
)
from azr_jax.perf import lengths as lengths_lib
from azr_jax.perf import programs as programs_lib
from azr_jax.perf import topology as topology_lib
from azr_jax.rollout import engine
from azr_jax.trainer import build
from azr_jax.trainer.settings import ExperimentSettings, TrainSettings

# Memory of a device that the compiler reports as reserved for itself.
RESERVED_BYTES = 0.3e9
# Assumed mean tokens of a prompt and of a completion.
MEAN_TOKENS = 1024


def config_of(c: ModelSettings) -> ModelConfig:
  """Returns the config of a run's model, which need not exist yet."""
  if c.preset and not pathlib.Path(c.source).expanduser().is_dir():
    return presets.PRESETS[c.preset]
  return load.config_of(c.source, c.cache_dir)


def compile_check(
  settings: ExperimentSettings,
  topology: str,
  prompt_tokens: float | None = None,
  new_tokens: float | None = None,
  lengths: Sequence[str] = (),
  each: Callable[[str], None] = lambda name: None,
  only: Collection[str] = (),
) -> tuple[dict[str, Any], bool]:
  """Compiles every program of a run, and estimates the time of a step.

  Args:
    settings: a training configuration.
    topology: e.g. v5p:4x4x2 or h200:8.
    prompt_tokens: mean tokens of a prompt, for the estimate; None takes
      `MEAN_TOKENS`, or the largest bucket if that is less.
    new_tokens: mean tokens of a completion; None takes `MEAN_TOKENS`, or the
      longest completion if that is less.
    lengths: distributions of completions to forecast a step's seconds at, by
      `lengths.parse`; (): `new_tokens` for all.
    each: called with the name of each program before it is compiled.
    only: names of the programs to compile; (): all of them.

  Returns:
    The report, and whether every program compiles and fits into a device's
    memory.

  Raises:
    ValueError: the topology or the distribution is unknown.
  """
  c = settings.trunk
  if prompt_tokens is None:
    prompt_tokens = min(MEAN_TOKENS, c.rollout.prompt_buckets[-1])
  if new_tokens is None:
    new_tokens = min(MEAN_TOKENS, c.rollout.max_tokens)
  drawn = {
    name: lengths_lib.parse(name, c.rollout.max_tokens)
    for name in lengths or (f"equal:{new_tokens:.0f}",)
  }
  chip = topology_lib.chip_of(topology)
  devices = topology_lib.devices(topology)
  mesh = mesh_lib.make_mesh(c.mesh.sizes(), devices)
  sampling = build.rollout_mesh(c.rollout.mesh, mesh)
  config = config_of(c.model)
  load = roofline.step_load(settings, prompt_tokens, new_tokens)
  options = topology_lib.compiler_options(topology)
  programs = compiled.compile_all(c, config, mesh, options, each, only)
  shapes = make_shapes(c, mesh, sampling, prompt_tokens + new_tokens / 2)
  trips = assumed_trips(c, shapes, prompt_tokens)
  by_name = {program.name: program for program in programs}
  reports = _reports(programs, config, chip, shapes, trips)
  estimate = roofline.estimate(
    c,
    config,
    chip,
    len(devices),
    sampling.shape["tensor"],
    shapes.rows,
    load,
    by_name["update"].collectives if "update" in by_name else {},
  )
  report: dict[str, Any] = {
    "topology": topology,
    "devices": len(devices),
    "mesh": dict(mesh.shape),
    "rollout_mesh": dict(sampling.shape),
    "hbm_gib": chip.hbm_bytes / chips.GIB,
    "clock_hz": chip.clock_hz,
    "assumed_trips": trips,
    "programs": reports,
    "estimate": dataclasses.asdict(estimate) | {"step_s": estimate.step_s},
    "assumed": roofline.assumptions(load),
  }
  can_forecast = chip.clock_hz and not only
  if can_forecast and not any(program.error for program in programs):
    counts = engine.slot_counts(c.rollout.slots, sampling)
    report["forecasts"] = {
      name: compiled_costs.foretell(by_name, chip, c, shapes, counts, load, one)
      for name, one in drawn.items()
    }
  return report, all(program["fits"] for program in reports.values())


def _reports(
  programs: Sequence[compiled.Compiled],
  config: ModelConfig,
  chip: chips.Chip,
  shapes: floors.Shapes,
  trips: dict[str, dict[str, float]],
) -> dict[str, dict[str, Any]]:
  """Returns each program's report, and whether it fits into memory."""
  token_floors = floors.decode_token(config, chip, shapes)
  usable_bytes = chip.hbm_bytes - RESERVED_BYTES
  reports = {}
  for program in programs:
    report = program_report.program_report(
      program,
      chip,
      floors.floors(program.name, config, chip, shapes),
      token_floors,
      trips.get(program.name, {}),
    )
    failed = program.overflow or program.error
    report["fits"] = not failed and program.peak_bytes <= usable_bytes
    reports[program.name] = report
  return reports


def make_shapes(
  c: TrainSettings, mesh: Mesh, sampling: Mesh, context: float
) -> floors.Shapes:
  """Returns what one call of each program does.

  Args:
    c: a training configuration.
    mesh: the learner's mesh.
    sampling: the mesh of sampling, of the same devices.
    context: mean tokens that a decoding slot holds.
  """
  r = c.rollout
  reads = {}
  for width in r.prefill_widths:
    rows = max(1, r.prefill_tokens // width)
    rows = mesh_lib.padded_rows(rows, sampling)
    reads[programs_lib.prefill_name(r, width)] = (rows, width)
  return floors.Shapes(
    chips=mesh.size,
    tensor=sampling.shape["tensor"],
    row_length=c.learner.row_length,
    rows=mesh_lib.padded_rows(c.learner.micro_rows, mesh),
    slots=mesh_lib.padded_rows(r.slots, sampling),
    context=context,
    decode_steps=r.decode_chunk,
    prefill_shapes=reads,
    dtype=c.model.dtype,
  )


def assumed_trips(
  c: TrainSettings, shapes: floors.Shapes, prompt_tokens: float
) -> dict[str, dict[str, float]]:
  """Returns, by program, the iterations of loops of unknown length.

  Attention of decode reads what slots hold in the middle of their completions;
  a prompt is read from its first part on. Each row writes a page of the cache,
  or as many as it has tokens for.

  Args:
    c: a training configuration.
    shapes: what a call does.
    prompt_tokens: mean tokens of a prompt.
  """
  page = c.rollout.cache_chunk
  before = max(0.0, prompt_tokens - c.rollout.prefill_tokens) / 2
  trips: dict[str, dict[str, float]] = {
    name: {
      cost.PAGE: math.ceil(before / page),
      cost.WRITTEN_PAGE: math.ceil(width / page),
    }
    for name, (_, width) in shapes.prefill_shapes.items()
  }
  return trips | {
    "decode": {
      cost.TOKEN: c.rollout.decode_chunk,
      cost.PAGE: math.ceil(shapes.context / page),
      cost.WRITTEN_PAGE: 1,
    },
    "critic": {cost.MICRO_BATCH: 1},
    "prepare": {cost.MICRO_BATCH: 1},
    "update": {cost.MICRO_BATCH: 1},
  }
