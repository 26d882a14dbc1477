"""Packs the files of a repository that git does not ignore."""

import os
import pathlib
import subprocess


def listed(root: pathlib.Path) -> list[bytes]:
  """Returns the files below a folder, by their paths from it, as bytes.

  NUL ends each name in git's list, because git quotes the names of a list of
  lines, and a name may hold a newline.

  Args:
    root: a folder in a git repository.
  """
  names = subprocess.run(
    ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
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

  With `--null`, both GNU's and BSD's tar take a name that begins with `-` for a
  name and not for an option.

  Args:
    root: a folder in a git repository.
    archive: the path of the archive.
  """
  subprocess.run(
    ["tar", "-czf", archive, "--null", "-T", "-"],
    cwd=root,
    check=True,
    input=b"\0".join(listed(root)),
  )
