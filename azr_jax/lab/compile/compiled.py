"""Compiles every device program ahead of time; reports memory and cost."""

import dataclasses
import re
import time
from collections.abc import Callable, Collection, Mapping

import jax
from jax.sharding import Mesh

from azr_jax.lab.compile import collectives, hlo
from azr_jax.lab.compile import cost as cost_lib
from azr_jax.lab.compile import large as large_lib
from azr_jax.lab.compile.programs import Program, make_programs, start_programs
from azr_jax.models.config import ModelConfig
from azr_jax.trainer.settings import TrainSettings

_OVERFLOW = re.compile(r"Used ([\d.]+)([GMK]) of ([\d.]+)([GMK]) hbm")
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}


@dataclasses.dataclass(frozen=True)
class Compiled:
  """The memory and the work of one program on one device of the mesh.

  Attributes:
    name: name of the program; see `abstract.Program`.
    program_bytes: arguments, results and scratch memory together.
    resident_bytes: memory that other arrays take while the program runs.
    scratch_bytes: the part of `program_bytes` that is neither an argument nor a
      result.
    flops: FLOPs as the compiler counts them, each loop's body once.
    bytes: bytes read and written, each loop's body once.
    cost: cycles, kernels and collectives, with loops multiplied out.
    large: results outside kernels that are as large as the cache or as an
      [S, S] array.
    compile_s: seconds of compilation.
    overflow: whether the compiler could not fit the program into memory.
    error: first line of the error if it does not compile, else empty.
  """

  name: str
  program_bytes: float = 0.0
  resident_bytes: float = 0.0
  scratch_bytes: float = 0.0
  flops: float = 0.0
  bytes: float = 0.0
  cost: cost_lib.Cost = dataclasses.field(default_factory=cost_lib.Cost)
  large: tuple[large_lib.LargeResult, ...] = ()
  compile_s: float = 0.0
  overflow: bool = False
  error: str = ""

  @property
  def peak_bytes(self) -> float:
    """Bytes of device memory in use while the program runs."""
    return self.program_bytes + self.resident_bytes

  @property
  def collectives(self) -> dict[str, collectives.Total]:
    """The collectives by kind; a loop of unknown length counts once."""
    return collectives.totals(self.cost.at({}).collectives)


def compile_all(
  c: TrainSettings,
  config: ModelConfig,
  mesh: Mesh,
  options: Mapping[str, str] | None = None,
  on_program: Callable[[str], None] = lambda name: None,
  program_names: Collection[str] = (),
) -> list[Compiled]:
  """Compiles every program that a run uses to start, to restore and to train.

  Args:
    c: a training configuration.
    config: the model's config.
    mesh: a mesh of real devices, or of the devices of a topology.
    options: XLA compiler options.
    on_program: called with the name of each program before it is compiled.
    program_names: the programs to compile; () compiles all.

  Raises:
    ValueError: `program_names` contains an unknown name.
  """
  programs = [
    *start_programs(c, config, mesh),
    *make_programs(c, config, mesh),
  ]
  names = [program.name for program in programs]
  if unknown := sorted({*program_names} - {*names}):
    raise ValueError(f"programs={unknown[0]!r}: expected some of {names}")
  found = []
  for program in programs:
    if program_names and program.name not in program_names:
      continue
    on_program(program.name)
    found.append(_compile(program, dict(options or {}), c.learner.row_length))
  return found


def _compile(
  program: Program, options: dict[str, bool | str], row_length: int
) -> Compiled:
  """Compiles one program, which may need more memory than a device has."""
  failed = Compiled(program.name, resident_bytes=program.resident_bytes)
  if program.lower is None:
    return failed
  start = time.perf_counter()
  try:
    executable = program.lower().compile(compiler_options=options or None)
  except (jax.errors.JaxRuntimeError, NotImplementedError) as error:
    failed = dataclasses.replace(failed, compile_s=time.perf_counter() - start)
    overflow = _OVERFLOW.search(str(error))
    if overflow is None:
      line = str(error).strip().splitlines()[0]
      return dataclasses.replace(failed, error=line or type(error).__name__)
    used = float(overflow.group(1)) * _UNITS[overflow.group(2)]
    return dataclasses.replace(failed, program_bytes=used, overflow=True)
  seconds = time.perf_counter() - start
  memory = executable.memory_analysis()
  text = executable.as_text()
  assert memory is not None and text is not None
  counted = executable.cost_analysis() or {}
  parsed = hlo.parse(text)
  rows = program.name in ("score", "estimate", "critic", "prepare", "update")
  return Compiled(
    name=program.name,
    program_bytes=memory.argument_size_in_bytes
    + memory.output_size_in_bytes
    - memory.alias_size_in_bytes
    + memory.temp_size_in_bytes
    + memory.generated_code_size_in_bytes,
    resident_bytes=program.resident_bytes,
    scratch_bytes=memory.temp_size_in_bytes,
    flops=counted.get("flops", 0.0),
    bytes=counted.get("bytes accessed", 0.0),
    cost=cost_lib.cost(parsed),
    large=tuple(
      large_lib.large_results(
        parsed, program.cache_bytes, row_length if rows else 0
      )
    ),
    compile_s=seconds,
  )
