"""Decides which changes of a plan are allowed after its runs have started."""

import hashlib
import json
import pathlib
from collections.abc import Collection
from typing import Any

from azr_jax.lab.experiments import plan_file
from azr_jax.lab.experiments.plan import NEXT

# Keys that may change after runs have started: they affect the budget and the
# figure, but not the results.
_FREE = ("core_hours", "transition", "amended")

# Keys that determine runs and scores. Amendments may not change them, except to
# add arms.
_OF_RUNS = ("text", "set", "prepare", "arms", "scores")


def check(path: pathlib.Path, source: pathlib.Path) -> None:
  """Checks that runs started with a plan, or with one that it amends.

  Args:
    path: the working directory, with the plan that its runs started with.
    source: the folder of the experiment.

  Raises:
    ValueError: the runs started with another plan.
  """
  old, new = (
    _fixed_part(plan_file.read_tables(folder)) for folder in (path, source)
  )
  changed = [
    key for key in sorted({*old, *new}) if old.get(key) != new.get(key)
  ]
  was = fixed_plan_hash(path)
  is_amended = was in accepted(source)
  has_its_runs = _runs_hash(path) in _accepted_runs(source)
  if changed and not (is_amended and has_its_runs):
    raise ValueError(
      f"{source / plan_file.FILE}: {', '.join(changed)} changed after the "
      f"runs of {path} started: expected the same plan, or another --workdir; "
      f"if none of {', '.join(_OF_RUNS)} changed, or arms were added, add a "
      "table [[amended]] with when, why, adds (the new arms) "
      f"and was = {was!r}"
    )


def fixed_plan_hash(folder: pathlib.Path) -> str:
  """Returns the SHA-256 of the fixed part of a folder's plan."""
  return hash_of(plan_file.read_tables(folder))


def hash_of(tables: dict[str, Any]) -> str:
  """Returns the SHA-256 of the fixed part of a plan's tables."""
  return _hash(_fixed_part(tables))


def accepted(source: pathlib.Path) -> set[str]:
  """Returns the hashes of a folder's plan and of the plans that it amends."""
  amendments = plan_file.read(source).amendments
  return {fixed_plan_hash(source), *(one.was for one in amendments)}


def _hash(tables: dict[str, Any]) -> str:
  return hashlib.sha256(json.dumps(tables).encode()).hexdigest()


def plan_hashes(folder: pathlib.Path) -> dict[str, str]:
  """Returns the hashes of a folder's plan that archived records carry."""
  return {"plan": fixed_plan_hash(folder), "plan_of_runs": _runs_hash(folder)}


def check_kept(source: pathlib.Path, kept: dict[str, Any]) -> None:
  """Checks that an archived record was made with a folder's plan.

  Args:
    source: the folder of the experiment.
    kept: a record with the `plan_hashes` of its plan.

  Raises:
    ValueError: the plan has changed since without an amendment, or the record
      belongs to another plan's runs.
  """
  if kept["plan_of_runs"] not in _accepted_runs(source):
    raise ValueError(
      "made with another plan than experiment.toml has now: expected the same "
      f"{', '.join(_OF_RUNS)}, or no such file"
    )
  if kept["plan"] not in accepted(source):
    raise ValueError(
      "made with another plan than experiment.toml has now: expected the same "
      "plan, no such file, or a table [[amended]] with when, why and "
      f"was = {kept['plan']!r}"
    )


def _runs_hash(folder: pathlib.Path, without: Collection[str] = ()) -> str:
  """Returns the SHA-256 of the part of a plan that determines its runs.

  Args:
    folder: the folder with the plan.
    without: arms to leave out.
  """
  tables = plan_file.read_tables(folder)
  found = {key: tables.get(key) for key in _OF_RUNS}
  arms = tables["arms"].items()
  # With another last seed, `{next:ARM}` would be another run.
  if f"{{{NEXT}" in json.dumps(tables["arms"]):
    found["seeds"] = tables.get("seeds")
  found["arms"] = {name: arm for name, arm in arms if name not in without}
  return _hash(found)


def _accepted_runs(source: pathlib.Path) -> set[str]:
  """Returns the run hashes of a folder's plan, now and before each amendment.

  Before an amendment, the plan lacked the arms that it or a later one adds.
  """
  amendments = plan_file.read(source).amendments
  return {
    _runs_hash(source, {a for one in amendments[first:] for a in one.adds})
    for first in range(len(amendments) + 1)
  }


def _fixed_part(tables: dict[str, Any]) -> dict[str, Any]:
  return {k: v for k, v in tables.items() if k not in _FREE}
