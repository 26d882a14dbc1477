"""Where the outputs of a job's runs are compared: here, or in a child.

To parse a value of 64 KiB takes tens of milliseconds, and a job may have many
of them in each run. In the pool's own process, all other jobs would wait for
that. Therefore long outputs are compared by a trusted program that runs like
any other, in a process and with limits of its own. It sees the outputs of one
job only, and its answer is two bools.
"""

import pathlib
from collections.abc import Sequence

from azr_jax.executor import literals, source_limits
from azr_jax.executor.job import Job, Result
from azr_jax.executor.limits import Limits

MAX_INLINE_CHARS = 4096  # They take about a millisecond.
# The values of one job are at most 1 MiB in each run, which take a second.
LIMITS = Limits(call_s=60.0, run_s=60.0, sleep_s=60.0)
_PACKAGE = "azr_jax.executor"
_SOURCES = [
  (module.__name__, pathlib.Path(module.__file__).read_text(encoding="utf-8"))
  for module in (source_limits, literals)
]
# A program's process cannot read files, so it gets these modules as text.
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
  """Returns whether `compare` is quick."""
  outputs = [output for result in results for output in result.outputs]
  return sum(len(output or "") for output in outputs) <= MAX_INLINE_CHARS


def compare(results: Sequence[Result]) -> tuple[bool, bool]:
  """Returns what `literals.compare_runs` says about the results' outputs."""
  return literals.compare_runs([result.outputs for result in results])


def job(results: Sequence[Result]) -> Job:
  """Returns the job that compares the results; `read` reads its verdict."""
  outputs = repr(tuple(result.outputs for result in results))
  return Job("comparison", _CODE, (outputs,), entry="compare_runs")


def read(result: Result) -> tuple[bool, bool]:
  """Returns the comparison that the verdict of a `job` tells.

  Outputs that no process could compare in time are not values.
  """
  if result.status != "ok" or result.outputs[0] is None:
    return False, False
  are_values, are_equal = literals.literal_value(result.outputs[0])
  return are_values is True, are_equal is True
