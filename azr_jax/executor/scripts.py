"""Scripts: programs that are run for their output, not for a value.

A script is the input of a job with a trusted program, which runs the script and
captures its output. The start and the end of the output come back as text of
bounded size.
"""

import dataclasses
from collections.abc import Hashable

from azr_jax.executor import literals
from azr_jax.executor.job import Job, Result

# Libraries that scripts may use besides the standard library.
LIBRARIES = ("numpy", "sympy", "scipy", "networkx", "pandas")
RUNNER = "script_runner"
_MAX_OMITTED_CHARS = 10**12


@dataclasses.dataclass(frozen=True)
class Printed:
  """The kept part of one of a script's output streams.

  Attributes:
    head: the first characters; all of them if `omitted` is 0 and `tail` empty.
    omitted: the number of dropped characters between head and tail.
    tail: the last characters.
  """

  head: str = ""
  omitted: int = 0
  tail: str = ""

  def __str__(self) -> str:
    gap = f"\n... {self.omitted} characters omitted ...\n"
    return self.head + (gap if self.omitted else "") + self.tail


@dataclasses.dataclass(frozen=True)
class ScriptResult:
  """The outcome of a script.

  Attributes:
    status: `ok`, `error` or `timeout`, as in `job.STATUSES`.
    output: the standard output.
    errors: the standard error, including any traceback.
  """

  status: str
  output: Printed = Printed()
  errors: Printed = Printed()


def script_job(script: str, libraries: tuple[str, ...] = ()) -> Job:
  """Returns a job that runs a script; `read_result` reads its verdict."""
  return Job(
    id="script",
    code=f"from {RUNNER} import f",
    inputs=(ascii(script),),
    libraries=(RUNNER, *libraries),
  )


def read_result(result: Result) -> ScriptResult:
  """Converts the verdict of a `script_job` to a `ScriptResult`.

  A script can forge this report and so lie about its output. That gains it
  nothing, because it could have printed the same.
  """
  if result.status != "ok" or result.outputs[0] is None:
    status = "timeout" if result.status == "timeout" else "error"
    return ScriptResult(status, errors=Printed(result.error or ""))
  try:
    match literals.typed_key(result.outputs[0]):
      case ("tuple", (("bool", failed), output, errors)):
        status = "error" if failed else "ok"
        return ScriptResult(status, _printed(output), _printed(errors))
  except ValueError:
    pass
  return ScriptResult("error", errors=Printed("MalformedReport"))


def _printed(key: Hashable) -> Printed:
  """Returns one output stream of a report.

  Raises:
    ValueError: the runner never writes such a report.
  """
  match key:
    case (
      "tuple",
      (("str", str(head)), ("int", str(number)), ("str", str(tail))),
    ):
      omitted = int(number, 16)
      if 0 <= omitted < _MAX_OMITTED_CHARS:
        return Printed(_encodable(head), omitted, _encodable(tail))
  raise ValueError("expected two texts and a number of characters")


def _encodable(text: str) -> str:
  """Replaces lone surrogates, which tokenizers do not accept."""
  return text.encode("utf-8", "replace").decode("utf-8")
