"""Runs or prints gcloud commands, in the right track of the installed SDK.

A command in the main track of one SDK may only be in `beta` or `alpha` of
another. The SDK's help, which needs no network, says which.
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
# The exit status of the SDK for a command line that it does not understand.
_REFUSED = 2


class CommandError(RuntimeError):
  """A gcloud command failed, or would fail. The message says why.

  Attributes:
    is_final: whether the same command would fail again in the same way.
  """

  def __init__(self, message: str, is_final: bool = False):
    super().__init__(message)
    self.is_final = is_final


@dataclasses.dataclass
class Sdk:
  """The Google Cloud SDK of this machine.

  Attributes:
    dry_run: whether commands are only printed.
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
      command: the command to run.
      quiet: print it only in a dry run, because it is repeated every minute.
      text: the standard input of the command, which is never printed.
      source: the shell command to print in place of `text`, which produces it.

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
  """Runs a program that cannot prompt: its input is closed or given."""
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
  """Prints a warning. The command continues."""
  print(f"warning: {text}", file=sys.stderr, flush=True)
