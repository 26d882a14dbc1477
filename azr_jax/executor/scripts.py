"""Scripts: programs that are run for what they print, not for a value.

A script is the input of a job whose program is trusted. That program runs the
script and captures its output, so the beginning and the end of what it prints
come back as text of bounded size.
"""

import dataclasses
from collections.abc import Hashable

from azr_jax.executor import literals
from azr_jax.executor.job import Job, Result

# Libraries that scripts may use beside the standard library.
LIBRARIES = ("numpy", "sympy")
# Characters that are kept from the beginning of a stream, and from its end.
KEPT_CHARS = 8000
_MAX_OMITTED_CHARS = 10**12

_RUNNER = '''
import io, linecache, random, sys, threading, time, traceback

KEPT = 8000
MAX_ASCII = 24_000  # A value's text is limited, in escaped characters.
NAME = "run.py"

class Stream(io.TextIOBase):
  """Keeps the beginning and the end of what is written."""

  def __init__(self):
    self.head, self.tail, self.total = "", "", 0

  def writable(self):
    return True

  def write(self, text):
    if type(text) is not str:
      raise TypeError(f"write() takes a string, not {type(text).__name__}")
    self.total += len(text)
    free = KEPT - len(self.head)
    if free:
      self.head += text[:free]
    # The tail has only characters that are not in the head.
    self.tail += text[free:][-KEPT:]
    if len(self.tail) > 9 * KEPT:  # Rarely, because it copies.
      self.tail = self.tail[-KEPT:]
    return len(text)

  def kept(self):
    head, tail = self.head, self.tail[-KEPT:]
    if not tail and len(ascii(head)) > MAX_ASCII:
      head, tail = head[:len(head) // 2], head[len(head) // 2:]
    while len(ascii(head)) + len(ascii(tail)) > MAX_ASCII:
      head, tail = head[:len(head) * 3 // 4], tail[-(len(tail) * 3 // 4):]
    return head, self.total - len(head) - len(tail), tail

def report(error):
  """Returns the traceback as Python prints it, without this runner's frames."""
  steps = error.__traceback__
  while steps is not None and steps.tb_frame.f_code.co_filename != NAME:
    steps = steps.tb_next
  return "".join(traceback.format_exception(type(error), error, steps))

def f(script):
  sys.stdout, sys.stderr = streams = Stream(), Stream()
  lines = (script + "\\n").splitlines(keepends=True)
  linecache.cache[NAME] = len(script), None, lines, NAME
  scope = {"__name__": "__main__", "__builtins__": __builtins__}
  scope |= {"exit": sys.exit, "quit": sys.exit}
  # The system call to sleep is denied; waiting for a lock is allowed.
  time.sleep = lambda seconds: threading.Event().wait(seconds) or None
  random.seed(0)  # A resumed run must see the same numbers.
  failed = True
  try:
    exec(compile(script, NAME, "exec"), scope)
    failed = False
  except SystemExit as error:
    failed = error.code not in (None, 0)
    if isinstance(error.code, str):
      streams[1].write(error.code)
  except BaseException as error:
    streams[1].write(report(error))
  return failed, streams[0].kept(), streams[1].kept()
'''.replace("KEPT = 8000", f"KEPT = {KEPT_CHARS}")


@dataclasses.dataclass(frozen=True)
class Printed:
  """The kept part of a script's stream.

  Attributes:
    head: the first characters; all of them if `omitted` is 0 and `tail` empty.
    omitted: number of characters between head and tail that are not kept.
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
    output: its standard output.
    errors: its standard error, with its traceback.
  """

  status: str
  output: Printed = Printed()
  errors: Printed = Printed()


def script_job(script: str, libraries: tuple[str, ...] = ()) -> Job:
  """Returns the job that runs a script; `read_result` reads its verdict."""
  return Job(
    id="script", code=_RUNNER, inputs=(ascii(script),), libraries=libraries
  )


def read_result(result: Result) -> ScriptResult:
  """Returns what the verdict of a `script_job` says.

  A script can forge this report. It then lies about its output, which gains it
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
  """Returns one stream of a report.

  Raises:
    ValueError: the report has fields that the runner never writes.
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
