"""What a hostile program is, and short ways to write one.

These words in its texts are replaced by `hostile_run.py`: WATCH, a folder that
everybody may write to, with a file `kept` in it; PREFIX, how names of files
elsewhere begin; TRAINER, the process id of the trusted side; PORT, where that
side listens; HOST, the name of the machine; GOLD, a text that only the trusted
side knows.
"""

import dataclasses

# What importing a module says that was not loaded before the walls rose.
ABSENT = ("ModuleNotFoundError", "ImportError")
DENIED = ("PermissionError",)
# What becomes of a report that no honest child writes.
UNBELIEVED = ("NoReport", "MalformedReport")
# To the C library by way of a class, for the module `ctypes` is gone.
LIBC = """
import os
libc = next(
  kind for kind in object.__subclasses__() if kind.__name__ == "CDLL"
)(None)
"""


@dataclasses.dataclass(frozen=True)
class Case:
  """A program, and the verdicts that mean that it got nowhere.

  Attributes:
    code, inputs, runs, forbidden: those of the job.
    before: a program that each zygote runs first, on the gold; or nothing.
    copies: jobs at the same time; in an input, COPY is the job's number.
    statuses: the statuses that the verdict may have.
    errors: the errors that it may name if it is not `ok`; None for any.
    outputs: the outputs that it must have if it is `ok`; None for any.
  """

  code: str
  inputs: tuple[str, ...] = ("",)
  runs: int = 1
  forbidden: tuple[str, ...] = ()
  before: str = ""
  copies: int = 1
  statuses: tuple[str, ...] = ("error",)
  errors: tuple[str, ...] | None = None
  outputs: tuple[str, ...] | None = None

  def held(self, status, error, outputs):
    """Whether a verdict is one of those expected."""
    if status not in self.statuses:
      return False
    if status == "ok":
      return self.outputs is None or self.outputs == tuple(outputs)
    return self.errors is None or error in self.errors


def body(lines):
  """Lines as the body of a function."""
  return "".join(f"\n  {line}" for line in lines)


def denied(attempt, modules="os", errors=DENIED):
  """A statement that must raise."""
  code = f"import {modules}\ndef f():\n  {attempt}\n  return 'allowed'"
  return Case(code, errors=errors)


def absent(module):
  """A module that must not be there."""
  return denied("pass", module, ABSENT)


def gives(code, *outputs, inputs=("",), **options):
  """A program that does no harm if these are its outputs."""
  return Case(code, inputs, statuses=("ok",), outputs=outputs, **options)


def fails(code, *errors, inputs=("",), **options):
  """A program that must end in an error: one of these, or any."""
  return Case(code, inputs, errors=errors or None, **options)


def ends(code, inputs=("",)):
  """A program without an end."""
  return Case(code, inputs, statuses=("timeout",))


def refused(call, setup="", failure="-1"):
  """A call into the C library that must fail; or the library is out of reach.

  A system call that kills (signal 31) has failed too.
  """
  code = f"{LIBC}{setup}\ndef f():\n  return libc.{call}"
  errors = ("StopIteration", "Signal31")
  return Case(code, statuses=("ok", "error"), errors=errors, outputs=(failure,))
