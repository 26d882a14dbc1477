"""Runs gcloud commands, or prints them, in the track of the SDK that is there.

A command that an SDK has in its main track may be in `beta` or `alpha` alone in
another. The help of the SDK, which needs no network, says which.
"""

import dataclasses
import re
import shlex
import subprocess
import sys

import gcloud

_TRACKS = ("", "beta", "alpha")
_ERROR_CHARS = 2000
_MISSING = "gcloud is not installed: see cloud.google.com/sdk"
# The SDK ends with this status if it does not understand a command line.
_REFUSED = 2


class CommandError(RuntimeError):
  """A gcloud command failed, or would fail; the message says why.

  Attributes:
    is_final: whether the same command would fail in the same way again.
  """

  def __init__(self, message: str, is_final: bool = False):
    super().__init__(message)
    self.is_final = is_final


@dataclasses.dataclass
class Sdk:
  """The Google Cloud SDK of this machine.

  Attributes:
    dry_run: whether commands are printed and not run.
  """

  dry_run: bool
  _help: dict[tuple[str, ...], str] = dataclasses.field(default_factory=dict)

  def run(
    self,
    command: gcloud.Command,
    quiet: bool = False,
    text: str | None = None,
    source: str = "",
  ) -> str:
    """Prints a command, runs it, and returns its output.

    Args:
      command: what to run.
      quiet: print it only in a dry run, because it is repeated every minute.
      text: what it reads from its standard input, which is never printed.
      source: the shell command, printed instead, that writes such a text.

    Raises:
      CommandError: the command failed, or this SDK does not have it.
    """
    argv = self.argv(command)
    if self.dry_run or not quiet:
      pipe = f"{source} | " if source else ""
      print(f"{pipe}{shlex.join(argv)}", flush=True)
    if self.dry_run:
      return ""
    done = _run(argv, text)
    if done.returncode:
      raise CommandError(
        f"{shlex.join(argv)}\n{done.stderr.strip()[-_ERROR_CHARS:]}",
        done.returncode == _REFUSED and "ERROR: (gcloud" in done.stderr,
      )
    return done.stdout.strip()

  def argv(self, command: gcloud.Command) -> list[str]:
    """Returns a command line that this SDK understands.

    Raises:
      CommandError: no track has the command, or one of its flags.
    """
    if not command.probed:
      return command.argv()
    try:
      tracks = [t for t in _TRACKS if self._has(t, command)]
    except CommandError:
      if self.dry_run:
        return command.argv()
      raise
    if not tracks:
      raise CommandError(
        f"no track of this gcloud has {shlex.join(command.argv(''))}: "
        "expected a newer SDK (gcloud components update)",
        is_final=True,
      )
    return command.argv(tracks[0])

  def _has(self, track: str, command: gcloud.Command) -> bool:
    """Returns whether a track has a command with all of its flags."""
    path = (*([track] * bool(track)), *command.path)
    if path not in self._help:
      done = _run(["gcloud", *path, "--help"])
      self._help[path] = "" if done.returncode else done.stdout
    names = re.findall(r"--[a-z0-9][a-z0-9-]*", self._help[path])
    return bool(names) and command.flags <= {*names}


def _run(
  argv: list[str], text: str | None = None
) -> subprocess.CompletedProcess[str]:
  """Runs a program that asks nothing, because its input is closed or given."""
  try:
    return subprocess.run(
      argv,
      stdin=subprocess.DEVNULL if text is None else None,
      input=text,
      capture_output=True,
      text=True,
      check=False,
    )
  except FileNotFoundError:
    raise CommandError(_MISSING, is_final=True) from None


def warn(text: str) -> None:
  """Prints what the user should know, though nothing stops."""
  print(f"warning: {text}", file=sys.stderr, flush=True)
