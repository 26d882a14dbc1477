"""Reports errors: a few lines for a user's mistake, a traceback for a bug.

This module imports only the standard library, because the executor uses it.
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
# The bytecode of a `raise` statement.
_RAISE = opcode.opmap["RAISE_VARARGS"]


class UsageError(Exception):
  """The command line is invalid."""


class Parser(argparse.ArgumentParser):
  """A parser with one-line errors and the module's docstring as help."""

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


def guard(main: Callable[[], object]) -> None:
  """Runs a command that parses its own arguments, and reports its errors."""
  with reported(sys.argv):
    main()


def reported(argv: list[str]) -> "_Reported":
  """Returns a context that reports errors and ends the process.

  Args:
    argv: the command line. `--debug` is removed from it.
  """
  debug = "--debug" in argv
  if debug:
    argv.remove("--debug")
  # Make console scripts import from the working directory, like `python -m`.
  if "" not in sys.path and os.getcwd() not in sys.path:
    sys.path.insert(0, os.getcwd())
  return _Reported(debug)


class _Reported:
  """Turns errors that the user can fix into a few lines and an exit code."""

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
      # The program that reads the output, such as `head`, has exited.
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
  """Ends the process without shutting down the interpreter.

  XLA threads that are still compiling would crash during a shutdown.
  """
  sys.stdout.flush()
  sys.stderr.flush()
  os._exit(code)


def _leave(code: int) -> NoReturn:
  """Ends the process after threads that write a checkpoint are done."""
  sys.stdout.flush()
  sys.stderr.flush()
  sys.exit(code)


def _is_users(error: BaseException) -> bool:
  """Returns whether a user can fix an error without reading the code.

  Errors about files and missing packages are the user's. So are values that a
  `raise` statement in this package rejects. The same error from another library
  is a bug of this package, and so is one that a Python built-in or a NumPy
  function raises on a line of this package, such as `int` or `zip`.
  """
  if isinstance(error, ImportError):
    return not _is_inside(error.name)
  if isinstance(error, OSError):
    # Python's futures raise a TimeoutError without an errno.
    has_cause = error.errno is not None or not isinstance(error, TimeoutError)
    return has_cause or _is_raised_here(error)
  if isinstance(error, UsageError | MemoryError) or _is_exhausted(error):
    return True
  if not isinstance(error, ValueError | RuntimeError):
    return False
  # JAX removes its own frames, so its errors seem to come from our lines.
  return _is_raised_here(error) and not _is_of_jax(error)


def _is_raised_here(error: BaseException) -> bool:
  """Returns whether a `raise` statement in this package raised an error."""
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
  """Returns whether an error is of a class of JAX or jaxlib."""
  modules = {kind.__module__.split(".")[0] for kind in type(error).__mro__}
  return bool(modules & {"jax", "jaxlib"})


def _is_exhausted(error: BaseException) -> bool:
  """Returns whether a device, or the compiler for it, ran out of memory."""
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
