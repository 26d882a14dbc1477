"""Packs the files of a repository that git does not ignore.

Virtual environments are left out, whatever their name and even if git does not
ignore them: they take gigabytes and do not work on another machine.
"""

import os
import pathlib
import shlex
import subprocess
from collections.abc import Sequence

_LIST = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")


def command(root: pathlib.Path, archive: str) -> str:
  """Returns the shell command that packs a repository without deleted files."""
  pipe = f"{shlex.join(_list(root))} | {shlex.join(_tar(archive))}"
  return f"cd {shlex.quote(str(root))} && {pipe}"


def _list(root: pathlib.Path) -> list[str]:
  """Returns the command that lists the files to pack, run in the folder."""
  without = [f":(exclude,literal){folder}" for folder in _environments(root)]
  return [*_LIST, "--", ".", *without] if without else [*_LIST]


def _environments(root: pathlib.Path) -> list[str]:
  """Returns the virtual environments among the files that git lists."""
  folders = {
    parent
    for name in _names(root, _LIST)
    for parent in pathlib.Path(os.fsdecode(name)).parents
  }
  return sorted(
    str(folder)
    for folder in folders
    if folder.parts and (root / folder / "pyvenv.cfg").is_file()
  )


def _names(root: pathlib.Path, words: Sequence[str]) -> list[bytes]:
  """Returns the NUL-separated names that a git command prints."""
  done = subprocess.run(words, cwd=root, check=True, capture_output=True)
  return done.stdout.split(b"\0")


def _tar(archive: str) -> list[str]:
  # With `--null`, GNU and BSD tar do not take a name that starts with `-` for
  # an option.
  return ["tar", "-czf", archive, "--null", "-T", "-"]


def listed(root: pathlib.Path) -> list[bytes]:
  """Returns the relative paths of the files below a folder, as bytes.

  git ends names with NUL here. In a list of lines it would quote names, and a
  name may contain a newline.

  Args:
    root: a folder in a git repository.
  """
  names = _names(root, _list(root))
  folder = os.fsencode(root)
  return [
    name
    for name in names
    if name and os.path.isfile(os.path.join(folder, name))
  ]


def write(root: pathlib.Path, archive: str) -> None:
  """Writes the files that `listed` returns to a compressed archive.

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
