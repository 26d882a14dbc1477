"""Ahead-of-time compilation of every device program, and what each needs."""

import dataclasses
import re
import time

import jax
from jax.sharding import Mesh

from azr_jax.models.config import ModelConfig
from azr_jax.perf import hlo
from azr_jax.perf.programs import Program, make_programs, start_programs
from azr_jax.trainer.settings import TrainSettings

_OVERFLOW = re.compile(r"Used ([\d.]+)([GMK]) of ([\d.]+)([GMK]) hbm")
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}


@dataclasses.dataclass(frozen=True)
class Compiled:
  """What one program needs on one device of the mesh.

  Attributes:
    name: the program's name; see `programs.Program`.
    program_bytes: arguments, results and scratch memory, at the same time.
    resident_bytes: memory that other arrays take while the program runs.
    flops: operations as the compiler counts them, each loop's body once.
    bytes: bytes read and written, each loop's body once.
    collectives: what `hlo.collectives` returned.
    compile_s: seconds that compiling took.
    overflow: whether the compiler found no way to fit the program into memory.
  """

  name: str
  program_bytes: float
  resident_bytes: float
  flops: float
  bytes: float
  collectives: dict[str, hlo.Collective]
  compile_s: float
  overflow: bool

  @property
  def peak_bytes(self) -> float:
    """Bytes of the device's memory in use while the program runs."""
    return self.program_bytes + self.resident_bytes


def compile_all(
  c: TrainSettings, config: ModelConfig, mesh: Mesh
) -> list[Compiled]:
  """Compiles every program that a run uses: to start, to restore, in a step.

  Args:
    c: a training configuration.
    config: the model's config.
    mesh: a mesh of real devices, or of those of a topology.
  """
  programs = [
    *start_programs(c, config, mesh),
    *make_programs(c, config, mesh),
  ]
  return [_compile(program) for program in programs]


def _compile(program: Program) -> Compiled:
  """Compiles one program, which may need more memory than a device has."""
  if program.lower is None:
    return Compiled(program.name, 0, program.resident_bytes, 0, 0, {}, 0, False)
  start = time.perf_counter()
  try:
    executable = program.lower().compile()
  except jax.errors.JaxRuntimeError as error:
    overflow = _OVERFLOW.search(str(error))
    if overflow is None:
      raise
    used = float(overflow.group(1)) * _UNITS[overflow.group(2)]
    seconds = time.perf_counter() - start
    return Compiled(
      program.name, used, program.resident_bytes, 0, 0, {}, seconds, True
    )
  seconds = time.perf_counter() - start
  memory = executable.memory_analysis()
  text = executable.as_text()
  assert memory is not None and text is not None
  costs = executable.cost_analysis() or {}
  return Compiled(
    name=program.name,
    program_bytes=memory.argument_size_in_bytes
    + memory.output_size_in_bytes
    - memory.alias_size_in_bytes
    + memory.temp_size_in_bytes
    + memory.generated_code_size_in_bytes,
    resident_bytes=program.resident_bytes,
    flops=costs.get("flops", 0.0),
    bytes=costs.get("bytes accessed", 0.0),
    collectives=hlo.collectives(text),
    compile_s=seconds,
    overflow=False,
  )
