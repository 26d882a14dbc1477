"""Grading a program by unit tests: `assert f(1) == 2`.

Such tests are usually run in the process of the program that they judge, which
may then rewrite them: patch a builtin, leave with `os._exit(0)`, return an
object that equals everything. Here as much as possible is decided outside.

1. `assertions.read_tests` splits the tests; they are never run here;
2. a `compared` assertion becomes an input for the executor, and only the
   value's text comes back to be compared;
3. the `trusted` ones run in a child after the program, in the classic way;
4. the answer is correct if every assertion holds.

Equality is Python's own, for the authors of such tests rely on it:
`1 == 1.0 == True`, a Counter equals a dict, NaN equals nothing; a list still
differs from a tuple.

**What can be forged.** A compared assertion: not at all. The child never holds
the expected value, so a program that lies about its value has to guess it. A
trusted one: by a program that sets out to, for it lives in one process with
the tests: it may return an object that equals everything, patch a module that
they use (`math.fabs`), trace them, or walk their frames. The plainer ways do
not pay: the tests have builtins of their own, no name of the program hides one
or stands in for a name of the tests, and success is a value that only the last
line returns, so every way out (`sys.exit(0)`, `os._exit(0)`, a crash) fails.
The report counts both kinds: it shows how much of a verdict is trusted.

**What differs from running the tests.** Each call meets the program afresh, so
none sees what another left in a global. A value must be plain data
(`executor/canonical.py`): a named tuple does not pass for a tuple. Both sides
find only the modules of `executor/preload.py`, and no file. A name of the
program that is also a builtin is the builtin for trusted assertions, unless the
tests are known to be about it (`Tests.called`).
"""

import collections
import dataclasses
import secrets
from collections.abc import Sequence
from concurrent.futures import Future

from azr_jax.executor import Executor, Job, Result, futures
from azr_jax.grading import literals, programs, values
from azr_jax.grading.assertions import Assertion, Tests

# Both programs are texts here, so neither can swallow the other, and what the
# first might replace was bound before it ran.
_TRUSTED = """
def {entry}(token, run=exec, names=globals(), builtins=dict(__builtins__)):
  hidden = {{*builtins}} - {{*{called}}}
  run({code}, names)
  shown = {{k: v for k, v in names.items() if k not in hidden}}
  shown.update(__builtins__=builtins, __name__="__main__")
  run({tests}, shown)
  return token
"""

Part = tuple[int, str | None]  # Assertions that hold, a failed child's error.


@dataclasses.dataclass(frozen=True)
class Report:
  """What came of an answer.

  Attributes:
    passed: assertions that hold; the trusted ones hold all or none.
    compared: assertions that were decided outside the child.
    trusted: assertions that were decided in it.
    error: the first failure of a child, if any.
  """

  passed: int
  compared: int
  trusted: int
  error: str | None

  @property
  def correct(self) -> bool:
    """Whether every assertion holds."""
    return self.passed == self.compared + self.trusted

  def summary(self) -> str:
    """The report in one line."""
    line = (
      f"{self.passed} of {self.compared + self.trusted} passed, "
      f"{self.compared} compared, {self.trusted} trusted"
    )
    return f"{line}; {self.error}" if self.error else line


def submit(executor: Executor, code: str, tests: Tests) -> "Future[Report]":
  """Starts the grading of a program.

  Args:
    executor: the pool to run it in: one child for each function that the
      compared assertions call, and one for the trusted assertions.
    code: the program to judge.
    tests: from `assertions.read_tests`.

  Returns:
    The future of the report.
  """
  compared, trusted = len(tests.compared), tests.trusted_count
  if not programs.is_gradable(code):
    return futures.done(Report(0, compared, trusted, "NoProgram"))
  by_entry: dict[str, list[Assertion]] = collections.defaultdict(list)
  for assertion in tests.compared:
    by_entry[assertion.entry].append(assertion)
  parts = [
    _submit_compared(executor, code, entry, assertions)
    for entry, assertions in by_entry.items()
  ]
  if trusted:
    parts.append(_submit_trusted(executor, code, tests))

  def add(parts: tuple[Part, ...]) -> Report:
    passed = sum(count for count, _ in parts)
    error = next((error for _, error in parts if error), None)
    return Report(passed, compared, trusted, error)

  return futures.then(futures.gather(parts), add)


def _submit_compared(
  executor: Executor, code: str, entry: str, assertions: Sequence[Assertion]
) -> "Future[Part]":
  def judge(result: Result) -> Part:
    pairs = zip(assertions, result.outputs, strict=True)
    return sum(_holds(one, output) for one, output in pairs), result.error

  inputs = tuple(one.arguments for one in assertions)
  return futures.then(
    executor.submit(Job("unit_tests", code, inputs, entry)), judge
  )


def _holds(assertion: Assertion, output: str | None) -> bool:
  if output is None:
    return False
  try:
    value = values.plain_value(literals.typed_key(output))
    return bool(assertion.holds(value))
  except (TypeError, ValueError, ArithmeticError, RecursionError):
    return False  # No value, or an assertion that raises, as `abs('a' - 1)`.


def _submit_trusted(
  executor: Executor, code: str, tests: Tests
) -> "Future[Part]":
  token = ascii(secrets.token_hex())
  entry = f"run_{secrets.token_hex(8)}"
  program = _TRUSTED.format(
    entry=entry,
    code=ascii(code),
    tests=ascii(tests.trusted),
    called=sorted(tests.called),
  )

  def judge(result: Result) -> Part:
    passed = result.outputs == (token,)
    return (tests.trusted_count if passed else 0), result.error

  return futures.then(
    executor.submit(Job("unit_tests", program, (token,), entry)), judge
  )
