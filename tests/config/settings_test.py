"""Settings: which values a field accepts, and the error messages."""

import dataclasses
from typing import Any

import pytest

from azr_jax.config import overrides
from azr_jax.config import settings as settings_lib
from azr_jax.config.settings import Invalid, Settings, setting


@dataclasses.dataclass(frozen=True)
class Clock(Settings):
  """A section of a section."""

  steps: int = setting(10, "ticks", above=0)
  rates: tuple[float, ...] = setting((1.0,), "ticks per second", required=True)


@dataclasses.dataclass(frozen=True)
class Robot(Settings):
  """One field of every kind."""

  name: str = setting("", "what it is called")
  arms: int = setting(2, "number of arms", minimum=0, maximum=8)
  speed: float = setting(0.5, "metres per second", above=0, below=1)
  is_on: bool = setting(False, "whether it moves")
  colour: str = setting("red", "colour", choices=("red", "blue"))
  tools: tuple[str, ...] = setting((), "tools", subset_of=("saw", "drill"))
  task: str = setting("rest", "what it does", required=True)
  owner: str | None = setting(None, "whose it is")
  limits: tuple[int, ...] = setting(
    (1, 2),
    "limits",
    paper="(1, 2)",
    required=True,
    accepts=(lambda v: list(v) == sorted(v), "an ascending tuple"),
  )
  clock: Clock = Clock()

  def check(self):
    if self.arms == 0 and self.tools:
      raise self.invalid("tools", "() without arms")


@dataclasses.dataclass(frozen=True)
class Factory(Settings):
  """A section with a nested section whose default differs from its class's."""

  clock: Clock = Clock(steps=99, rates=(2.0, 3.0))
  robot: Robot = Robot(arms=4, clock=Clock(steps=7))


@pytest.mark.parametrize(
  "section, expected",
  [
    ({}, Factory()),
    ({"clock": {"rates": [5.0]}}, Factory(clock=Clock(99, (5.0,)))),
    (
      {"robot": {"clock": {"rates": [5.0]}}},
      Factory(robot=Robot(arms=4, clock=Clock(7, (5.0,)))),
    ),
  ],
)
def test_a_part_of_a_section_keeps_the_other_defaults(section, expected):
  assert settings_lib.build(Factory, section) == expected


def refusal(section, cls=Robot):
  with pytest.raises(Invalid) as caught:
    settings_lib.build(cls, section)
  return str(caught.value)


@pytest.mark.parametrize(
  "section",
  [
    {},
    {"name": "Robbie", "owner": None},
    {"owner": "Ada"},
    {"arms": 0},
    {"arms": 8},
    {"speed": 0.999},
    {"is_on": True},
    {"colour": "blue"},
    {"tools": ("drill", "saw")},
    {"limits": (7,)},
    {"clock": {"steps": 1, "rates": (2, 0.5)}},
  ],
)
def test_allowed_values_are_kept_and_others_have_their_defaults(section):
  made = settings_lib.as_dict(settings_lib.build(Robot, section))
  expected = settings_lib.as_dict(Robot())
  for key, value in section.items():
    is_section = isinstance(value, dict)
    expected[key] = expected[key] | value if is_section else value
  assert made == expected


@pytest.mark.parametrize(
  "section, message",
  [
    ({"name": 3}, "name=3: expected a string"),
    ({"arms": 2.0}, "arms=2.0: expected an integer of at least 0 and of at"),
    ({"arms": True}, "arms=True: expected an integer"),
    ({"arms": -1}, "arms=-1: expected an integer of at least 0 and of at most"),
    ({"arms": 9}, "arms=9: expected an integer of at least 0 and of at most 8"),
    ({"speed": 0}, "speed=0: expected a number above 0 and below 1"),
    ({"speed": 1.0}, "speed=1.0: expected a number above 0 and below 1"),
    ({"speed": "fast"}, "speed='fast': expected a number above 0"),
    ({"speed": float("nan")}, "speed=nan: expected a number above 0"),
    ({"speed": float("inf")}, "speed=inf: expected a number above 0"),
    ({"speed": 1e39}, "speed=1e+39: expected a number above 0"),
    ({"is_on": 1}, "is_on=1: expected True or False"),
    ({"colour": "green"}, "colour='green': expected one of ('red', 'blue')"),
    ({"tools": ("saw", "axe")}, "expected () or a choice of ('saw', 'drill')"),
    ({"tools": ("saw", "saw")}, "expected () or a choice of ('saw', 'drill')"),
    ({"tools": "saw"}, "tools='saw': expected () or a choice"),
    ({"task": ""}, "task='': expected a non-empty string"),
    ({"owner": 3}, "owner=3: expected str | None"),
    ({"limits": ()}, "limits=(): expected a non-empty tuple"),
    ({"limits": (2, 1)}, "limits=(2, 1): expected an ascending tuple"),
    ({"limits": (1, "a")}, "limits=(1, 'a'): expected a non-empty tuple, an"),
    ({"clock": 3}, "clock=3: expected a section"),
    ({"clock": {"steps": 0}}, "clock.steps=0: expected an integer above 0"),
    ({"clock": {"rates": (1.0, float("nan"))}}, "clock.rates=(1.0, nan): "),
    ({"clock": {"rates": (True,)}}, "clock.rates=(True,): expected"),
    ({"arms": 0, "tools": ("saw",)}, "tools=('saw',): expected () without"),
  ],
)
def test_a_value_that_is_not_allowed_is_named(section, message):
  assert message in refusal(section)


def test_a_choice_that_must_not_be_empty():
  @dataclasses.dataclass(frozen=True)
  class Chosen(Settings):
    tools: tuple[str, ...] = setting(
      ("saw",), "tools", subset_of=("saw", "axe"), required=True
    )

  message = "tools=(): expected a non-empty choice of ('saw', 'axe')"
  assert refusal({"tools": ()}, Chosen) == message


def test_fields_are_checked_where_a_class_is_made_by_hand():
  with pytest.raises(Invalid, match="arms=9"):
    Robot(arms=9)
  with pytest.raises(Invalid, match="clock=3: expected a section"):
    wrong: Any = 3
    Robot(clock=wrong)


@pytest.mark.parametrize(
  "section, message",
  [
    ({"colur": "red"}, "colur is an unknown key (value 'red'): did you mean"),
    ({"colur": "red"}, "did you mean 'colour'?"),
    (
      {"clok": {"steps": 1}},
      "clok is an unknown section: did you mean 'clock'",
    ),
    ({"clock": {"step": 1}}, "clock.step is an unknown key (value 1): did you"),
    ({"clock": {"zzz": 1}}, "clock.zzz is an unknown key (value 1): expected"),
    ({"clock": {"zzz": 1}}, "expected ['rates', 'steps']"),
  ],
)
def test_an_unknown_key_is_named_with_the_nearest(section, message):
  assert message in refusal(section)


def test_a_whole_config_has_its_prefix_in_errors():
  with pytest.raises(Invalid, match=r"^config\.clock\.steps=0: expected"):
    overrides.build(Robot, {"clock": {"steps": 0}})


def test_lists_become_tuples():
  made = settings_lib.build(
    Robot, {"tools": ["saw"], "clock": {"rates": [1, 2.5]}}
  )
  assert made.tools == ("saw",)
  assert made.clock.rates == (1, 2.5)
  assert hash(made) == hash(
    settings_lib.build(Robot, {"tools": ("saw",), "clock": {"rates": (1, 2.5)}})
  )


def test_a_dictionary_of_settings_makes_the_same_settings():
  made = Robot(tools=("saw",), clock=Clock(steps=3))
  as_dict = settings_lib.as_dict(made)
  assert list(as_dict) == [field.name for field in dataclasses.fields(Robot)]
  assert as_dict["clock"] == {"steps": 3, "rates": (1.0,)}
  assert settings_lib.build(Robot, as_dict) == made
  config = overrides.to_config(made)
  assert config.clock.steps == 3
  assert overrides.build(Robot, config) == made
  flat = overrides.flatten(config)
  assert flat["clock.rates"] == (1.0,) and flat["arms"] == 2


def test_every_key_is_described():
  rows = {row.key: row for row in settings_lib.describe(Robot(arms=3), "r.")}
  assert list(rows)[:2] == ["r.name", "r.arms"]
  assert list(rows)[-2:] == ["r.clock.steps", "r.clock.rates"]
  assert "r.clock" not in rows
  arms, limits = rows["r.arms"], rows["r.limits"]
  assert (arms.default, arms.doc, arms.paper) == (3, "number of arms", "")
  assert arms.kind == "an integer of at least 0 and of at most 8"
  assert limits.paper == "(1, 2)"
  assert limits.kind == "a non-empty tuple, an ascending tuple"
  assert rows["r.is_on"].kind == "True or False"
  assert rows["r.clock.rates"].kind == "a non-empty tuple"
  assert [row.key for row in rows.values() if row.is_changed] == ["r.arms"]
