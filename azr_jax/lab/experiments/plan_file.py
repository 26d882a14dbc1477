"""Reads `experiments/NAME/experiment.toml` and checks its references."""

import pathlib
import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from azr_jax.config import settings as settings_lib
from azr_jax.config import user_files
from azr_jax.config.settings import Invalid, SettingsT
from azr_jax.lab.experiments.plan import (
  COMMANDS,
  NEXT,
  START,
  TRAIN,
  Amendment,
  Arm,
  ArmComparison,
  OutcomeSettings,
  Plan,
  PlanSettings,
  Preparation,
  ScoreSettings,
  Transition,
)

FILE = "experiment.toml"
# Exists in a clone only; an installed package has no such folder.
EXPERIMENTS = pathlib.Path(__file__).parents[3] / "experiments"
_MAX_NUMBER = 1e9
_NAME = re.compile(r"[a-z0-9_]+")
_REFERENCE = re.compile(rf"\{{((?:{NEXT})?\w+)\}}")


def read(folder: pathlib.Path) -> Plan:
  """Reads the plan of `experiments/NAME`.

  Raises:
    ValueError: the file is missing or damaged, or a value is not allowed. One
      line gives the file, key, value and what is expected.
  """
  tables = read_tables(folder)
  try:
    return parse(folder.resolve().name, tables)
  except Invalid as error:
    raise ValueError(f"{folder / FILE}: {error}") from None


def folder_of(name: str) -> pathlib.Path:
  """Returns an experiment's folder, given the folder or the name."""
  folder = pathlib.Path(name).expanduser()
  if "/" in name or (folder / FILE).is_file():
    return folder
  return EXPERIMENTS / name


def read_tables(folder: pathlib.Path) -> dict[str, Any]:
  """Parses the plan file in a folder.

  Raises:
    ValueError: the file is missing or is not TOML.
  """
  path = folder / FILE
  if not path.is_file():
    raise ValueError(f"{folder}: expected a folder with {FILE}")
  with user_files.reading(path, "an experiment in TOML"):
    return tomllib.loads(path.read_text(user_files.ENCODING))


def parse(name: str, tables: Mapping[str, Any]) -> Plan:
  """Builds the plan of a parsed file.

  Args:
    name: name of the experiment.
    tables: the parsed TOML.

  Raises:
    Invalid: a key is unknown, a value is not allowed, or a name has no table.
  """
  rest = dict(tables)
  rest = _with_texts(rest, _table(rest, "text"))
  shared = _table(rest, "set")
  arms = {
    key: _arm(key, table, shared) for key, table in _named(rest, "arms").items()
  }
  plan = Plan(
    name=name,
    preparations=_list(rest, "prepare", Preparation),
    arms=arms,
    scores=_built(rest, "scores", ScoreSettings),
    outcomes=_built(rest, "outcomes", OutcomeSettings),
    comparisons=_list(rest, "comparisons", ArmComparison),
    panels=_table(rest, "panels"),
    rehearse=_table(rest, "rehearse"),
    amendments=_list(rest, "amended", Amendment),
    transition=_transition(_table(rest, "transition")),
    about=settings_lib.build(PlanSettings, rest),
  )
  _check(plan)
  return plan


def references(value: object) -> set[str]:
  """Returns the names that a value refers to, without `{folder}`."""
  return {*_REFERENCE.findall(str(value))} - {"folder"}


def filled(value: Any, folders: Mapping[str, str]) -> Any:
  """Replaces each `{NAME}` in a value by the folder of that name."""
  if isinstance(value, list | tuple):
    return tuple(filled(one, folders) for one in value)
  if isinstance(value, str):
    return _REFERENCE.sub(lambda m: folders.get(m[1], m[0]), value)
  return value


def _with_texts(value: Any, texts: Mapping[str, str]) -> Any:
  """Replaces each `{NAME}` in a TOML value by its text."""
  if isinstance(value, dict):
    return {key: _with_texts(one, texts) for key, one in value.items()}
  if isinstance(value, list):
    return [_with_texts(one, texts) for one in value]
  return filled(value, texts)


def _table(tables: dict[str, Any], key: str) -> dict[str, Any]:
  table = tables.pop(key, {})
  if not isinstance(table, dict):
    raise Invalid(key, f"={table!r:.80}: expected a table")
  return table


def _named(tables: dict[str, Any], key: str) -> dict[str, dict[str, Any]]:
  """Returns a table of tables, whose names must be usable as folder names."""
  table = _table(tables, key)
  for name, one in table.items():
    if not isinstance(one, dict) or not _NAME.fullmatch(name):
      raise Invalid(
        f"{key}.{name}",
        f"={one!r:.80}: expected a table whose name consists of a-z, 0-9, _",
      )
  return table


def _arm(name: str, table: dict[str, Any], shared: dict[str, Any]) -> Arm:
  rest = dict(table)
  own = _table(rest, "set")
  config, command = rest.pop("config", ""), rest.pop("command", TRAIN)
  if rest or not isinstance(config, str) or not config:
    raise Invalid(
      f"arms.{name}", f"={table!r:.80}: expected only config, set and command"
    )
  if command not in COMMANDS:
    raise Invalid(
      f"arms.{name}.command", f"={command!r:.80}: expected one of {COMMANDS}"
    )
  return Arm(config, {**shared, **own} if command == TRAIN else own, command)


def _transition(table: dict[str, Any]) -> Transition | None:
  """Returns the table `[transition]`, or None without it."""
  if not table:
    return None
  rest = dict(table)
  lines = _named(rest, "lines")
  outcome, axis = rest.pop("outcome", ""), rest.pop("axis", "")
  values = [list(line.values()) for line in lines.values()]
  if (
    rest
    or not values
    or not all(map(len, values))
    or not all(isinstance(text, str) and text for text in (outcome, axis))
    or not all(_is_number(x) for line in values for x in line)
  ):
    raise Invalid(
      "transition",
      f"={table!r:.80}: expected outcome, axis, and lines of numbers by arm",
    )
  return Transition(outcome, axis, lines)


def _is_number(value: object) -> bool:
  is_one = isinstance(value, int | float) and not isinstance(value, bool)
  return is_one and abs(value) <= _MAX_NUMBER


def _built(
  tables: dict[str, Any], key: str, cls: type[SettingsT]
) -> dict[str, SettingsT]:
  return {
    name: _build(f"{key}.{name}", cls, table)
    for name, table in _named(tables, key).items()
  }


def _list(
  tables: dict[str, Any], key: str, cls: type[SettingsT]
) -> list[SettingsT]:
  found = tables.pop(key, [])
  if not isinstance(found, list):
    raise Invalid(key, f"={found!r:.80}: expected [[{key}]] tables")
  return [_build(f"{key}[{i}]", cls, one) for i, one in enumerate(found)]


def _build(
  section: str, cls: type[SettingsT], table: dict[str, Any]
) -> SettingsT:
  try:
    return settings_lib.build(cls, table)
  except Invalid as error:
    raise error.inside(section) from None


def _check(plan: Plan) -> None:
  """Raises Invalid for a reference that no table defines."""
  if not plan.arms:
    raise Invalid("arms", "={}: expected one arm or more")
  _check_references(plan)
  for name, score in plan.scores.items():
    _known(f"scores.{name}.arms", score.arms, plan.arms)
  for name, outcome in plan.outcomes.items():
    if outcome.score:
      _known(f"outcomes.{name}.score", [outcome.score], plan.scores)
  _check_transition(plan)
  for number, one in enumerate(plan.comparisons):
    _check_comparison(plan, f"comparisons[{number}]", one)
  for number, amendment in enumerate(plan.amendments):
    _known(f"amended[{number}].adds", amendment.adds, plan.arms)


def _check_references(plan: Plan) -> None:
  """Raises Invalid if a key of an arm refers to an unknown name."""
  prepared = [one.name for one in plan.preparations]
  if plan.read_arms() and len(plan.about.seeds) < 2:
    raise Invalid(
      "seeds", f"={plan.about.seeds}: expected two or more with {{{NEXT}ARM}}"
    )
  sources = [
    f"{NEXT}{name}" for name, arm in plan.arms.items() if not arm.sources()
  ]
  for name, arm in plan.arms.items():
    for key, value in arm.overrides.items():
      if unknown := references(value) - {*prepared, *sources}:
        raise Invalid(
          f"arms.{name}.set.{key}",
          f"={value!r}: expected preparations of {prepared} or runs of "
          f"{sources}, not {unknown}",
        )


def _check_transition(plan: Plan) -> None:
  """Raises Invalid if the transition's outcome or a line's arm is unknown."""
  if plan.transition is None:
    return
  _known("transition.outcome", [plan.transition.outcome], plan.outcomes)
  for name, line in plan.transition.lines.items():
    _known(f"transition.lines.{name}", [*line], plan.arms)


def _check_comparison(plan: Plan, where: str, one: ArmComparison) -> None:
  """Raises Invalid if a comparison's arms, outcome or scores are unknown."""
  _known(f"{where}.outcome", [one.outcome], plan.outcomes)
  score = plan.outcomes[one.outcome].score
  arms = [one.arm, *([one.base] if one.base not in ("", START) else [])]
  _known(f"{where}.arm", arms, plan.arms)
  if one.base == START and not (score and plan.scores[score].start):
    raise Invalid(
      f"{where}.base", f"={START!r}: expected the outcome of a score with start"
    )
  added = {arm for amendment in plan.amendments for arm in amendment.adds}
  if one.primary and added & {*arms}:
    raise Invalid(
      f"{where}.primary",
      f"=True: expected False with an arm that was added, {added & {*arms}}",
    )
  for arm in arms:
    if score and score not in plan.scores_of(arm):
      raise Invalid(f"{where}.arm", f"={arm!r}: expected an arm of {score!r}")


def _known(key: str, names: Sequence[str], known: Mapping[str, Any]) -> None:
  for name in names:
    if name not in known:
      raise Invalid(key, f"={name!r}: expected one of {[*known]}")
