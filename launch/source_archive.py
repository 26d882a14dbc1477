"""Packs the files of a repository that git does not ignore."""

import os
import pathlib
import shlex
import subprocess

_LIST = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")


def command(root: pathlib.Path, archive: str) -> str:
  """Returns what a shell packs a repository by, if no file is deleted."""
  pipe = f"{shlex.join(_LIST)} | {shlex.join(_tar(archive))}"
  return f"cd {shlex.quote(str(root))} && {pipe}"


def _tar(archive: str) -> list[str]:
  # With `--null`, both GNU's and BSD's tar take a name that begins with `-` for
  # a name and not for an option.
  return ["tar", "-czf", archive, "--null", "-T", "-"]


def listed(root: pathlib.Path) -> list[bytes]:
  """Returns the files below a folder, by their paths from it, as bytes.

  NUL ends each name in git's list, because git quotes the names of a list of
  lines, and a name may hold a newline.

  Args:
    root: a folder in a git repository.
  """
  names = subprocess.run(
    _LIST,
    cwd=root,
    check=True,
    capture_output=True,
  ).stdout.split(b"\0")
  folder = os.fsencode(root)
  return [
    name
    for name in names
    if name and os.path.isfile(os.path.join(folder, name))
  ]


def write(root: pathlib.Path, archive: str) -> None:
  """Writes the files that `listed` names to a compressed archive.

  Args:
    root: a folder in a git repository.
    archive: the path of the archive.
  """
  subprocess.run(
    _tar(archive),
    cwd=root,
    check=True,
    input=b"\0".join(listed(root)),
  )
