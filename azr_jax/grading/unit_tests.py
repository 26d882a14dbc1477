"""Grades a program by unit tests such as `assert f(1) == 2`.

Such tests usually run in the process of the program under test. The program can
then cheat: patch a builtin, leave with `os._exit(0)`, or return an object that
equals everything. Here, as much as possible is checked outside that process:

1. `assertions.read_tests` splits the tests without running them.
2. A `compared` assertion becomes an input for the executor. Only the text of
   the value comes back, and this process compares it. If the assertion only
   needs the value's truth (`assert f(1)`, `assert f(1) is None`), only that
   comes back, so the value may be any object.
3. The `trusted` assertions run in a child after the program, as usual.
4. The answer is correct if every assertion holds.

Equality is Python's, because the authors of such tests rely on it:
`1 == 1.0 == True`, a Counter equals a dict, and NaN equals nothing. A list
still differs from a tuple.

**What can be forged.** A program cannot forge a compared assertion. The child
never holds the expected value, so a program that lies has to guess. An object
that equals everything passes no equality assertion, because it is not plain
data. A hostile program can forge a trusted assertion, because it shares a
process with the tests: it may return an object that equals everything, patch a
module that the tests use (`math.fabs`), trace the tests, or walk their frames.
Simpler attacks fail. The tests have separate builtins; the program cannot
shadow a builtin or define a name of the tests. Success is a value that only the
last line returns, so every early exit (`sys.exit(0)`, `os._exit(0)`, a crash)
fails. The report counts both kinds of assertions.

**What differs from running the tests directly.** The program's top level runs
again for each call, so no call sees a global that another call changed. Values
that are compared must be plain data (`executor/child/canonical.py`), so a named
tuple does not count as a tuple. Program and tests can import only the modules
in `executor/child/preload.py` and cannot read files. In trusted assertions, a
builtin takes precedence over a program's function of the same name, unless the
tests are known to be about that function (`Tests.called`).
"""

import collections
import dataclasses
import secrets
from collections.abc import Sequence
from concurrent.futures import Future

from azr_jax.executor import Executor, Job, Result, futures
from azr_jax.grading import harness, programs
from azr_jax.grading.assertions import Assertion, Tests
from azr_jax.grading.outcome import Outcome, limit_of

# The answer and the tests are string literals, so neither can affect how the
# other is parsed. Names that the answer could replace are bound before it runs.
_TRUSTED = """
def {entry}(token, run=exec, names=globals(), builtins=dict(__builtins__)):
{begin}
  begin()
  hidden = {{*builtins}} - {{*{called}}}
  run({code}, names)
  shown = {{k: v for k, v in names.items() if k not in hidden}}
  shown.update(__builtins__=builtins, __name__="__main__")
  run({tests}, shown)
  return token
"""

# (number of assertions that hold, the child's result, the executor limit that
# ended the child or "").
Part = tuple[int, Result, str]


@dataclasses.dataclass(frozen=True)
class Report:
  """The result of running an answer against its tests.

  Attributes:
    passed: the number of assertions that hold. Trusted assertions count
      together: either all of them hold or none does.
    compared: the number of assertions checked outside the child.
    trusted: the number of assertions checked inside the child.
    error: the first failure of a child, if any.
    outcome: correct if every assertion holds. Otherwise it says whether a limit
      ended a child.
    limit: the executor limit that made the answer incorrect
      (`outcome.limit_of`), empty if there is none.
  """

  passed: int
  compared: int
  trusted: int
  error: str | None
  outcome: Outcome
  limit: str = ""

  @property
  def correct(self) -> bool:
    """Whether every assertion holds."""
    return bool(self.outcome)

  def summary(self) -> str:
    """Returns the report as one line of text."""
    line = (
      f"{self.passed} of {self.compared + self.trusted} passed, "
      f"{self.compared} compared, {self.trusted} trusted"
    )
    return f"{line}; {self.error}" if self.error else line


def submit(executor: Executor, code: str, tests: Tests) -> "Future[Report]":
  """Starts grading a program.

  Args:
    executor: runs up to two children per function under test, one for
      assertions that need the value and one for those that need only its truth,
      and one more child for the trusted assertions.
    code: the program to grade.
    tests: tests from `assertions.read_tests`.
  """
  compared, trusted = len(tests.compared), tests.trusted_count
  if not programs.is_gradable(code):
    return futures.done(
      Report(0, compared, trusted, "NoProgram", Outcome.INCORRECT)
    )
  groups: dict[tuple[str, bool], list[Assertion]]
  groups = collections.defaultdict(list)
  for assertion in tests.compared:
    groups[assertion.entry, assertion.truthiness_only].append(assertion)
  parts = [
    _submit_compared(executor, code, function, truthiness_only, assertions)
    for (function, truthiness_only), assertions in groups.items()
  ]
  if trusted:
    parts.append(_submit_trusted(executor, code, tests))

  def add(parts: tuple[Part, ...]) -> Report:
    passed = sum(count for count, _, _ in parts)
    results = [result for _, result, _ in parts]
    error = next((result.error for result in results if result.error), None)
    outcome = Outcome.of(passed == compared + trusted, *results)
    limits = [
      limit for count, result, limit in parts if count < len(result.outputs)
    ]
    limit = limits[0] if limits and all(limits) else ""
    return Report(passed, compared, trusted, error, outcome, limit)

  return futures.then(futures.gather(parts), add)


def _submit_compared(
  executor: Executor,
  code: str,
  function: str,
  truthiness_only: bool,
  assertions: Sequence[Assertion],
) -> "Future[Part]":
  def compare(result: Result) -> Part:
    pairs = zip(assertions, result.outputs, strict=True)
    holds = [_holds(assertion, output) for assertion, output in pairs]
    return sum(holds), result, limit_of(holds, result)

  inputs = [assertion.arguments for assertion in assertions]
  called = harness.submit(
    executor, "unit_tests", code, function, inputs, truthiness_only
  )
  return futures.then(called, compare)


def _holds(assertion: Assertion, output: str | None) -> bool:
  if output is None:
    return False
  try:
    return bool(assertion.holds(harness.value(output)))
  except (TypeError, ValueError, ArithmeticError, RecursionError):
    return False  # No value, or the assertion itself raises: `abs('a' - 1)`.


def _submit_trusted(
  executor: Executor, code: str, tests: Tests
) -> "Future[Part]":
  token = ascii(secrets.token_hex())
  entry = f"run_{secrets.token_hex(8)}"
  program = _TRUSTED.format(
    entry=entry,
    begin=harness.BEGIN,
    code=ascii(code),
    tests=ascii(tests.trusted),
    called=sorted(tests.called),
  )

  def count(result: Result) -> Part:
    passed = result.outputs == (token,)
    limit = limit_of([passed], result)
    return (tests.trusted_count if passed else 0), result, limit

  return futures.then(
    executor.submit(Job("unit_tests", program, (token,), entry)), count
  )
