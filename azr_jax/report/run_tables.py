"""Tables about the runs: config, code, devices, dates and length."""

import datetime
import re
from collections.abc import Mapping, Sequence
from typing import Any

from azr_jax.report import html_parts
from azr_jax.report.html_parts import Cell
from azr_jax.report.reading import LoggedRun

_MAX_OPEN_ROWS = 12  # longer tables of differences are folded
# Patterns of the settings that readers look for first.
_MAIN_SETTINGS = (
  "system|seed|train[.]steps|model[.](source|preset|dtype)",
  "learner[.](estimator|policy_loss|epochs|clip_low|clip_high|kl_coef)",
  "(optimizer|critic[.]optimizer)[.](learning_rate|warmup_steps|decay)",
  "rollout[.](max_tokens|temperature|max_staleness|slots)",
  r"\w+[.](prompts|group_size|samples|data|train_data)",
  "evaluation[.](benchmarks|every|samples|temperature)",
)
_UNKNOWN = "not recorded"
# Number of last steps whose mean time predicts the remaining time.
_LAST_STEPS = 10


def about(runs: Sequence[LoggedRun]) -> str:
  """Returns tables of the runs, their settings and their differences."""
  shown = _facts_table(runs) + _differences(runs)
  main = "|".join(f"(?:{pattern})" for pattern in _MAIN_SETTINGS)
  keys = sorted({key for run in runs for key in run.config})
  settings = [key for key in keys if re.fullmatch(main, key)]
  if settings:
    shown += html_parts.folded("main settings", _settings(runs, settings))
  if keys:
    shown += html_parts.folded(
      f"all {len(keys)} settings", _settings(runs, keys)
    )
  return shown


def _facts_table(runs: Sequence[LoggedRun]) -> str:
  """Returns a table of the facts that runs share, and one of the others."""
  facts = [_facts(run) for run in runs]
  same, differing = [], []
  for key, first in facts[0].items():
    row: list[Cell] = [key, *(one[key] for one in facts)]
    if len({*row[1:]}) > 1:
      differing.append(row)
    elif first != _UNKNOWN:
      same.append(row[:2])
  shown = html_parts.table(["", ""], same)
  if differing:
    shown += html_parts.table(["", *_columns(runs)], differing)
  return shown


def _facts(run: LoggedRun) -> dict[str, str]:
  """Returns facts about a run, by their captions."""
  config = run.config
  total = config.get("train.steps")
  seconds = [v for v in run.values.get("time/step", []) if v is not None]
  first = run.starts[0] if run.starts else {}
  last = run.starts[-1] if run.starts else {}
  return {
    "system": str(config.get("system", _UNKNOWN)),
    "model": str(config.get("model.source", _UNKNOWN)),
    "steps": f"{run.done} of {total}" if total else str(run.done),
    "time in steps": _duration(sum(seconds)),
    "time per step": f"{sum(seconds) / len(seconds):.2f} s"
    if seconds
    else _UNKNOWN,
    "time left": _left(run, seconds),
    "started": _date(first.get("time")),
    "last metrics": _date_of(run.updated),
    "resumed": f"{len(run.starts) - 1} times" if run.starts else _UNKNOWN,
    "commit": _all_different(run, _commit),
    "devices": _all_different(run, _devices),
    "JAX, Python": f"{last['jax']}, {last['python']}"
    if {"jax", "python"} <= last.keys()
    else _UNKNOWN,
  }


def _left(run: LoggedRun, seconds: Sequence[float]) -> str:
  """Returns the remaining steps and time at the speed of the last steps."""
  total = run.config.get("train.steps")
  if not isinstance(total, int) or not seconds or run.done >= total:
    return _UNKNOWN
  left = total - run.done
  recent = seconds[-_LAST_STEPS:]
  return f"{left} steps, {_duration(left * sum(recent) / len(recent))}"


def _duration(seconds: float) -> str:
  """Formats seconds as hours and minutes."""
  if seconds < 3600:
    return f"{seconds / 60:.1f} min"
  return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60)} min"


def _date(text: object) -> str:
  """Formats the date when a run was started."""
  try:
    return _date_of(datetime.datetime.fromisoformat(str(text)).timestamp())
  except ValueError:
    return _UNKNOWN


def _date_of(seconds: float) -> str:
  date = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
  return f"{date:%Y-%m-%d %H:%M} UTC"


def _commit(start: Mapping[str, Any]) -> str:
  commit, version = start.get("commit"), start.get("version")
  return str(commit or (version and f"version {version}") or _UNKNOWN)


def _devices(start: Mapping[str, Any]) -> str:
  """Returns the devices by type, the CPU cores and the CPU's model."""
  devices = start.get("devices")
  if not isinstance(devices, dict):
    return _UNKNOWN
  words = ", ".join(f"{count} x {kind}" for kind, count in devices.items())
  processes = start.get("processes", 1)
  if processes != 1:
    words += f", {processes} processes"
  words += f", {start.get('cores', '?')} cores"
  cpu = start.get("cpu")
  return f"{words} ({cpu})" if cpu else words


def _all_different(run: LoggedRun, describe: Any) -> str:
  """Returns a property of a run's starts, without repetitions."""
  found = dict.fromkeys(describe(start) for start in run.starts)
  return ", then ".join(found) or _UNKNOWN


def _columns(runs: Sequence[LoggedRun]) -> list[str]:
  """Returns the column names of the runs, or [""] for one run."""
  return [run.name for run in runs] if len(runs) > 1 else [""]


def _settings(runs: Sequence[LoggedRun], keys: Sequence[str]) -> str:
  return html_parts.table(
    ["setting", *_columns(runs)],
    [[key, *(str(run.config.get(key, "-")) for run in runs)] for key in keys],
  )


def _differences(runs: Sequence[LoggedRun]) -> str:
  """Returns a table of the config keys that differ between the runs, or ""."""
  # Compare runs of different systems only by the keys that they all have.
  systems = {run.config.get("system") for run in runs}
  keys = sorted(
    {key for run in runs for key in run.config}
    if len(systems) == 1
    else set.intersection(*({*run.config} for run in runs))
  )
  differing = [
    key for key in keys if len({repr(run.config.get(key)) for run in runs}) > 1
  ]
  if not differing:
    return ""
  count = len(differing)
  return html_parts.folded(
    f"{count} difference{'s' * (count > 1)} of settings",
    _settings(runs, differing),
    is_open=count <= _MAX_OPEN_ROWS,
  )


def seed_groups(runs: Sequence[LoggedRun]) -> dict[str, list[LoggedRun]]:
  """Groups runs that differ only in their seed.

  Repeated runs of one seed are not independent evidence, so only the first one
  counts.

  Returns:
    The runs of each group by the group's name. {} if no two runs form a group.
  """
  groups: dict[str, dict[Any, LoggedRun]] = {}
  for run in runs:
    rest = {k: v for k, v in run.config.items() if k != "seed"}
    by_seed = groups.setdefault(repr(sorted(rest.items(), key=str)), {})
    by_seed.setdefault(run.config.get("seed"), run)
  several = [[*one.values()] for one in groups.values() if len(one) > 1]
  return {
    f"{members[0].name} and {len(members) - 1} more": members
    for members in several
  }
