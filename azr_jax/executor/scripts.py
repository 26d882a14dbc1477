"""Scripts: programs that are run for what they print, not for a value.

A script is data of a job whose program is ours: it runs the script with its
output caught, so that whatever is printed, however much, comes back as text of
bounded size, its beginning and its end.
"""

import ast
import dataclasses

from azr_jax.executor.job import Job, Result

# What scripts may be given beside the standard library.
LIBRARIES = ("numpy", "sympy")
# Of what is kept of one stream: as many characters from its end, too.
KEPT_CHARS = 8000
_MOST_OMITTED = 10**12

_RUNNER = '''
import io, linecache, random, sys, threading, time, traceback

KEPT = 8000
MOST_ASCII = 24_000  # A verdict's value is limited, in escaped characters.
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
    room = KEPT - len(self.head)
    if room:
      self.head += text[:room]
    # What goes past the head only: the two never overlap.
    self.tail += text[room:][-KEPT:]
    if len(self.tail) > 9 * KEPT:  # Seldom, for it copies.
      self.tail = self.tail[-KEPT:]
    return len(text)

  def kept(self):
    head, tail = self.head, self.tail[-KEPT:]
    if not tail and len(ascii(head)) > MOST_ASCII:
      head, tail = head[:len(head) // 2], head[len(head) // 2:]
    while len(ascii(head)) + len(ascii(tail)) > MOST_ASCII:
      head, tail = head[:len(head) * 3 // 4], tail[-(len(tail) * 3 // 4):]
    return head, self.total - len(head) - len(tail), tail

def report(error):
  """As an interpreter prints it, without the frames of this runner."""
  steps = error.__traceback__
  while steps is not None and steps.tb_frame.f_code.co_filename != NAME:
    steps = steps.tb_next
  return "".join(traceback.format_exception(type(error), error, steps))

def f(script):
  sys.stdout, sys.stderr = streams = Stream(), Stream()
  lines = (script + "\\n").splitlines(keepends=True)  # As from a file.
  linecache.cache[NAME] = len(script), None, lines, NAME
  scope = {"__name__": "__main__", "__builtins__": __builtins__}
  scope |= {"exit": sys.exit, "quit": sys.exit}
  # The system call is denied; waiting for a lock is not.
  time.sleep = lambda seconds: threading.Event().wait(seconds) or None
  random.seed(0)  # So that a resumed run sees what it would have seen.
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
  """One stream of a script: its beginning, what was left out, and its end.

  Attributes:
    head: the first characters; all of them if `omitted` is 0 and `tail` empty.
    omitted: how many characters are not kept.
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
  """What a script did.

  Attributes:
    status: `ok`, or `error`, `timeout` as of `job.STATUSES`.
    output: what it printed.
    errors: what it printed to the error stream, with its traceback.
  """

  status: str
  output: Printed = Printed()
  errors: Printed = Printed()


def script_job(script: str, libraries: tuple[str, ...] = ()) -> Job:
  """The job that runs a script; `read_result` reads its verdict."""
  return Job(
    id="script", code=_RUNNER, inputs=(ascii(script),), libraries=libraries
  )


def read_result(result: Result) -> ScriptResult:
  """Reads the verdict of a `script_job`.

  A script can forge this report like any other; it then lies about what it
  printed, which it might have printed as well.
  """
  if result.status != "ok" or result.outputs[0] is None:
    status = "timeout" if result.status == "timeout" else "error"
    return ScriptResult(status, errors=Printed(result.error or ""))
  try:
    failed, output, errors = ast.literal_eval(result.outputs[0])
    streams = [_printed(*output), _printed(*errors)]
  except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
    return ScriptResult("error", errors=Printed("MalformedReport"))
  return ScriptResult("error" if failed is True else "ok", *streams)


def _printed(head: object, omitted: object, tail: object) -> Printed:
  """Raises ValueError for what no runner reports."""
  if (
    type(head) is not str
    or type(tail) is not str
    or type(omitted) is not int
    or not 0 <= omitted < _MOST_OMITTED
  ):
    raise ValueError("expected two texts and a number of characters")
  return Printed(_encodable(head), omitted, _encodable(tail))


def _encodable(text: str) -> str:
  """Text without half characters, which no tokenizer takes."""
  return text.encode("utf-8", "replace").decode("utf-8")
