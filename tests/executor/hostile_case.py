"""The type of a hostile program, and functions that make common ones.

`hostile_run.py` replaces these words in a program's texts:

| word | replaced by |
| --- | --- |
| WATCH | a folder that everybody may write to, with a file `kept` in it |
| PREFIX | the prefix of file names in other folders |
| TRAINER | the process id of the trusted side |
| PORT | the port where the trusted side listens |
| HOST | the name of the machine |
| SECRET | a text that only the trusted side knows |
| COPY | the number of the job, in an input |
"""

import dataclasses

# Errors of importing a module that was not loaded before the sandbox.
ABSENT = ("ModuleNotFoundError", "ImportError")
DENIED = ("PermissionError",)
# Errors of a report that no honest child writes.
UNBELIEVED = ("NoReport", "MalformedReport")
# A class leads to the C library, although the module `ctypes` is removed.
LIBC = """
import os
libc = next(
  kind for kind in object.__subclasses__() if kind.__name__ == "CDLL"
)(None)
"""


@dataclasses.dataclass(frozen=True)
class Case:
  """A program, and the verdicts which show that it did no harm.

  Attributes:
    code, inputs, runs, forbidden: the fields of the job.
    before: a program that each zygote runs first, on the secret; or empty.
    shares: whether its calls always share a process.
    copies: number of jobs that run at the same time.
    statuses: the statuses that the verdict may have.
    errors: the errors that it may name if it is not `ok`; None for any.
    outputs: the outputs that it must have if it is `ok`; None for any.
  """

  code: str
  inputs: tuple[str, ...] = ("",)
  runs: int = 1
  forbidden: tuple[str, ...] = ()
  before: str = ""
  shares: bool = False
  copies: int = 1
  statuses: tuple[str, ...] = ("error",)
  errors: tuple[str, ...] | None = None
  outputs: tuple[str, ...] | None = None

  def held(self, status, error, outputs):
    """Returns whether a verdict is one of those expected."""
    if status not in self.statuses:
      return False
    if status == "ok":
      return self.outputs is None or self.outputs == tuple(outputs)
    return self.errors is None or error in self.errors


def body(lines):
  """Returns lines as the body of a function."""
  return "".join(f"\n  {line}" for line in lines)


def denied(attempt, modules="os", errors=DENIED):
  """Returns a case whose statement must raise."""
  code = f"import {modules}\ndef f():\n  {attempt}\n  return 'allowed'"
  return Case(code, errors=errors)


def absent(module):
  """Returns a case that imports a module which must not be there."""
  return denied("pass", module, ABSENT)


def gives(code, *outputs, inputs=("",), **options):
  """Returns a case that does no harm if these are its outputs."""
  return Case(code, inputs, statuses=("ok",), outputs=outputs, **options)


def fails(code, *errors, inputs=("",), **options):
  """Returns a case that must end in one of these errors, or in any."""
  return Case(code, inputs, errors=errors or None, **options)


def ends(code, inputs=("",)):
  """Returns a case that does not end."""
  return Case(code, inputs, statuses=("timeout",))


def refused(call, setup="", failure="-1"):
  """Returns a case whose call into the C library must fail.

  It also holds if the library is out of reach, or if the call kills the
  process (signal 31).
  """
  code = f"{LIBC}{setup}\ndef f():\n  return libc.{call}"
  errors = ("StopIteration", "Signal31")
  return Case(code, statuses=("ok", "error"), errors=errors, outputs=(failure,))
