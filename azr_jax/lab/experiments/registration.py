"""Says which changes of a plan the runs that have begun allow."""

import hashlib
import json
import pathlib
from collections.abc import Collection
from typing import Any

from azr_jax.lab.experiments import plan_file

# Keys that may change after runs have begun: the budget, and a figure of what
# the runs have anyway.
_FREE = ("core_hours", "transition", "amended")

# Keys that decide what runs and scores are. They cannot be amended, but for
# arms that are added.
_OF_RUNS = ("text", "set", "prepare", "arms", "scores")


def check(path: pathlib.Path, source: pathlib.Path) -> None:
  """Checks that runs began with a plan, or with one that it amends.

  Args:
    path: the working directory, with the plan that its runs began with.
    source: the folder of the experiment.

  Raises:
    ValueError: runs began with another plan.
  """
  old, new = (
    _fixed_part(plan_file.read_tables(folder)) for folder in (path, source)
  )
  changed = [
    key for key in sorted({*old, *new}) if old.get(key) != new.get(key)
  ]
  was = fixed_plan_hash(path)
  is_amended = was in _accepted(source)
  has_its_runs = _runs_hash(path) in _accepted_runs(source)
  if changed and not (is_amended and has_its_runs):
    raise ValueError(
      f"{source / plan_file.FILE}: {', '.join(changed)} changed after the "
      f"runs of {path} began: expected the same plan, or another "
      f"--workdir; where none of {', '.join(_OF_RUNS)} has changed, or arms "
      "were added, a table [[amended]] with when, why, adds (the new arms) "
      f"and was = {was!r}"
    )


def fixed_plan_hash(folder: pathlib.Path) -> str:
  """Returns the SHA-256 of what of a folder's plan may not change."""
  return _hash(_fixed_part(plan_file.read_tables(folder)))


def _hash(tables: dict[str, Any]) -> str:
  return hashlib.sha256(json.dumps(tables).encode()).hexdigest()


def plan_hashes(folder: pathlib.Path) -> dict[str, str]:
  """Returns what a record of something kept says of the folder's plan."""
  return {"plan": fixed_plan_hash(folder), "plan_of_runs": _runs_hash(folder)}


def check_kept(source: pathlib.Path, kept: dict[str, Any]) -> None:
  """Checks that what is kept was made with a folder's plan.

  Args:
    source: the folder of the experiment.
    kept: a record with the `plan_hashes` of the plan it was made with.

  Raises:
    ValueError: the plan has changed since, and does not say that it did, or
      another plan's runs are not this one's.
  """
  if kept["plan_of_runs"] not in _accepted_runs(source):
    raise ValueError(
      "made with another plan than experiment.toml has now: expected the same "
      f"{', '.join(_OF_RUNS)}, or no such file"
    )
  if kept["plan"] not in _accepted(source):
    raise ValueError(
      "made with another plan than experiment.toml has now: expected the same "
      "plan, no such file, or a table [[amended]] with when, why and "
      f"was = {kept['plan']!r}"
    )


def _runs_hash(folder: pathlib.Path, without: Collection[str] = ()) -> str:
  """Returns the SHA-256 of what of a folder's plan decides its runs.

  Args:
    folder: has the plan.
    without: arms that are left out.
  """
  tables = plan_file.read_tables(folder)
  found = {key: tables.get(key) for key in _OF_RUNS}
  arms = tables["arms"].items()
  found["arms"] = {name: arm for name, arm in arms if name not in without}
  return _hash(found)


def _accepted_runs(source: pathlib.Path) -> set[str]:
  """Returns the hashes of runs that a folder's plan has, then and now.

  A plan before an amendment had none of the arms that it or a later one adds.
  """
  amendments = plan_file.read(source).amendments
  return {
    _runs_hash(source, {a for one in amendments[first:] for a in one.adds})
    for first in range(len(amendments) + 1)
  }


def _accepted(source: pathlib.Path) -> set[str]:
  """Returns the hashes of a folder's plan, and of those that it amends."""
  amendments = plan_file.read(source).amendments
  return {fixed_plan_hash(source), *(one.was for one in amendments)}


def _fixed_part(tables: dict[str, Any]) -> dict[str, Any]:
  return {k: v for k, v in tables.items() if k not in _FREE}
