"""Reports errors: a few lines for a user's mistake, a traceback for a bug.

This module uses the standard library alone, because the executor does.
"""

import argparse
import errno
import opcode
import os
import pathlib
import sys
from collections.abc import Callable
from typing import NoReturn

import azr_jax
from azr_jax.config import extras

VERSION = f"azr_jax {azr_jax.__version__}"
_PACKAGE = pathlib.Path(__file__).parents[1]
USER_FAULT, INTERRUPTED = 2, 130
# XLA's status when memory runs out.
_EXHAUSTED = "RESOURCE_EXHAUSTED"
# The instruction of a `raise` statement.
_RAISE = opcode.opmap["RAISE_VARARGS"]


class UsageError(Exception):
  """The command line is not what the command expects."""


class Parser(argparse.ArgumentParser):
  """A parser whose errors are one line; its help is the module's docstring."""

  def __init__(self, description: str | None = None, prog: str | None = None):
    super().__init__(
      prog,
      description=description,
      formatter_class=argparse.RawDescriptionHelpFormatter,
      allow_abbrev=False,
    )
    self.add_argument("--version", action="version", version=VERSION)
    self.add_argument(
      "--debug", action="store_true", help="show the traceback of an error"
    )

  def error(self, message: str) -> NoReturn:
    """Raises a UsageError, which `guard` prints."""
    raise UsageError(f"{message}; --help shows the arguments")


def guard(main: Callable[[], None]) -> None:
  """Runs a command that parses its arguments itself, and reports its errors."""
  with reported(sys.argv):
    main()


def reported(argv: list[str]) -> "_Reported":
  """Returns a context that reports errors and ends the process.

  Args:
    argv: the command line, out of which `--debug` is taken.
  """
  debug = "--debug" in argv
  if debug:
    argv.remove("--debug")
  # A console script imports from the working directory, as `python -m` does.
  if "" not in sys.path and os.getcwd() not in sys.path:
    sys.path.insert(0, os.getcwd())
  return _Reported(debug)


class _Reported:
  """Turns errors that the user can mend into a few lines and an exit code."""

  def __init__(self, debug: bool):
    self._debug = debug

  def __enter__(self) -> "_Reported":
    return self

  def __exit__(
    self,
    kind: type[BaseException] | None,
    error: BaseException | None,
    trace: object,
  ) -> bool:
    del kind, trace
    if error is None or isinstance(error, SystemExit):
      return False
    if isinstance(error, BrokenPipeError):
      # The program that reads the output, such as `head`, has ended.
      os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
      sys.exit(0)
    if isinstance(error, KeyboardInterrupt):
      if self._debug:
        return False
      notes = getattr(error, "__notes__", ())
      print(": ".join(("interrupted", *notes)), file=sys.stderr)
      _end_at_once(INTERRUPTED)
    if self._debug or not _is_users(error):
      return False
    print(f"error: {_text(error)}", file=sys.stderr)
    _leave(USER_FAULT)


def _end_at_once(code: int) -> None:
  """Ends the process without the interpreter's own end.

  Threads of XLA that still compile would crash it there.
  """
  sys.stdout.flush()
  sys.stderr.flush()
  os._exit(code)


def _leave(code: int) -> NoReturn:
  """Ends the process; threads that write a checkpoint are waited for."""
  sys.stdout.flush()
  sys.stderr.flush()
  sys.exit(code)


def _is_users(error: BaseException) -> bool:
  """Returns whether a user can mend an error without reading the code.

  Errors of files and missing packages are the user's. So is a value that a
  `raise` statement of this package refuses. The same error from another library
  is a bug of this package, and so is one that Python's own functions raise on a
  line of it: `int`, `zip`, a NumPy function.
  """
  if isinstance(error, ImportError):
    return not _is_inside(error.name)
  if isinstance(error, OSError):
    # The futures of Python raise a timeout that no system call has.
    has_cause = error.errno is not None or not isinstance(error, TimeoutError)
    return has_cause or _is_raised_here(error)
  if isinstance(error, UsageError | MemoryError) or _is_exhausted(error):
    return True
  if not isinstance(error, ValueError | RuntimeError):
    return False
  # JAX cuts its own frames off, so that its errors seem to be of our lines.
  return _is_raised_here(error) and not _is_of_jax(error)


def _is_raised_here(error: BaseException) -> bool:
  """Returns whether a `raise` statement of this package raised an error."""
  last = error.__traceback__
  if last is None:
    return False
  while last.tb_next is not None:
    last = last.tb_next
  code = last.tb_frame.f_code
  if _PACKAGE not in pathlib.Path(code.co_filename).parents:
    return False
  return code.co_code[last.tb_lasti] == _RAISE


def _is_of_jax(error: BaseException) -> bool:
  """Returns whether JAX or one of its compiled parts defines an error."""
  modules = {kind.__module__.split(".")[0] for kind in type(error).__mro__}
  return bool(modules & {"jax", "jaxlib"})


def _is_exhausted(error: BaseException) -> bool:
  """Returns whether a device, or a compiler for it, ran out of memory."""
  return _is_of_jax(error) and _EXHAUSTED in str(error)


def _is_inside(module: str | None) -> bool:
  return bool(module) and str(module).split(".")[0] == _PACKAGE.name


def _text(error: BaseException) -> str:
  """Returns at most three lines about an error."""
  if isinstance(error, OSError) and error.errno == errno.ENOSPC:
    where = f" while writing {error.filename}" if error.filename else ""
    return f"the disk is full{where}: free some space; the same command resumes"
  if isinstance(error, OSError) and error.strerror and error.filename:
    return f"{error.filename}: {error.strerror[0].lower()}{error.strerror[1:]}"
  if isinstance(error, ModuleNotFoundError) and error.name:
    return extras.missing(error.name)
  text = str(error).strip() or type(error).__name__
  if _is_exhausted(error):
    text = text[text.index(_EXHAUSTED) + len(_EXHAUSTED) :].strip(": \n")
    return ": ".join(["out of memory", *text.splitlines()[:1]])
  return "\n".join(text.splitlines()[:3])
