"""Compares the outputs of a job's runs, long ones in a child process.

Parsing a value of 64 KiB takes tens of milliseconds, and each run of a job may
return many of them. In the pool's own process, all other jobs would have to
wait. So a trusted program compares long outputs: it runs like any other, with a
process and limits of its own. It sees the outputs of one job only, and its
answer is two bools.
"""

import pathlib
from collections.abc import Sequence

from azr_jax.executor import literals, source_limits
from azr_jax.executor.job import Job, Result
from azr_jax.executor.limits import Limits

MAX_INLINE_CHARS = 4096  # About a millisecond of parsing.
# Each run returns at most 1 MiB of values, about a second of parsing.
LIMITS = Limits(call_s=60.0, run_s=60.0, sleep_s=60.0)
_PACKAGE = "azr_jax.executor"
_SOURCES = [
  (module.__name__, pathlib.Path(module.__file__).read_text(encoding="utf-8"))
  for module in (source_limits, literals)
]
# A sandboxed process cannot read files, so it gets these modules as source.
_CODE = f"""
import sys, types
package = sys.modules["{_PACKAGE}"] = types.ModuleType("{_PACKAGE}")
sys.modules["azr_jax"] = types.ModuleType("azr_jax")
for name, source in {_SOURCES!r}:
  module = sys.modules[name] = types.ModuleType(name)
  setattr(package, name.rpartition(".")[2], module)
  exec(compile(source, name, "exec", 0, True), vars(module))
compare_runs = package.literals.compare_runs
"""


def is_short(results: Sequence[Result]) -> bool:
  """Returns whether the outputs are short enough to compare in this process."""
  outputs = [output for result in results for output in result.outputs]
  return sum(len(output or "") for output in outputs) <= MAX_INLINE_CHARS


def compare(results: Sequence[Result]) -> tuple[bool, bool]:
  """Returns `literals.compare_runs` of the results' outputs."""
  return literals.compare_runs([result.outputs for result in results])


def job(results: Sequence[Result]) -> Job:
  """Returns the job that compares the results; `read` reads its verdict."""
  outputs = repr(tuple(result.outputs for result in results))
  return Job("comparison", _CODE, (outputs,), entry="compare_runs")


def read(result: Result) -> tuple[bool, bool]:
  """Returns the answer of a `job`, as `literals.compare_runs` returns it.

  If the comparison ran out of time, the outputs do not count as values.
  """
  if result.status != "ok" or result.outputs[0] is None:
    return False, False
  are_values, are_equal = literals.literal_value(result.outputs[0])
  return are_values is True, are_equal is True
