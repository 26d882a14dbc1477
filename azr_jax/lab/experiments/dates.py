"""Dates of a plan and of its runs, by the git repository that holds the plan.

A run starts after the commit of its code. A plan that was committed before that
commit is therefore older than the run.
"""

import datetime
import pathlib
import subprocess
import tomllib
from collections.abc import Sequence

from azr_jax.lab.experiments import plan_file, registration

_TIMEOUT_S = 10.0


def of_plan(source: pathlib.Path) -> datetime.datetime | None:
  """Returns when the plan was first committed as it was before amendments.

  Args:
    source: the folder of the plan.

  Returns:
    The date of the first commit with the plan, or with one that it amends. None
    if no commit has it, or there is no repository.
  """
  lines = _git(
    source, "log", "--full-history", "--format=%H %cI", "--", plan_file.FILE
  )
  accepted, found = registration.accepted(source), []
  for line in (lines or "").splitlines():
    commit, date = line.split()
    text = _git(source, "show", f"{commit}:./{plan_file.FILE}")
    if text and _hash(text) in accepted:
      found.append(datetime.datetime.fromisoformat(date))
  return min(found, default=None)


def of_commits(
  source: pathlib.Path, commits: Sequence[str]
) -> datetime.datetime | None:
  """Returns the date of the oldest of the commits that ran jobs.

  Args:
    source: the folder of the plan.
    commits: hashes, maybe with "-dirty".

  Returns:
    None if there are no commits, or git does not know one of them.
  """
  names = [commit.removesuffix("-dirty") for commit in commits]
  dates = [_git(source, "log", "-1", "--format=%cI", name) for name in names]
  if not dates or None in dates:
    return None
  return min(datetime.datetime.fromisoformat(str(date)) for date in dates)


def _hash(text: str) -> str | None:
  try:
    return registration.hash_of(tomllib.loads(text))
  except tomllib.TOMLDecodeError:
    return None


def _git(folder: pathlib.Path, *arguments: str) -> str | None:
  """Returns what git prints in a folder, or None if it fails."""
  try:
    return subprocess.run(
      ["git", *arguments],
      cwd=folder,
      capture_output=True,
      check=True,
      text=True,
      timeout=_TIMEOUT_S,
    ).stdout.strip()
  except (OSError, subprocess.SubprocessError):
    return None
