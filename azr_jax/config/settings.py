"""Settings: frozen dataclasses whose fields declare the values they accept.

Each part of the code declares its settings in its own class:

  @dataclasses.dataclass(frozen=True)
  class PolicySettings(Settings):
    temperature: float = setting(1.0, "divides the logits", above=0)

A config section overrides some of the values, and `build` turns the section
into an instance. An invalid value raises `Invalid`, whose message has the key,
the value and what was expected. This module imports only the standard library
and its neighbours.
"""

import dataclasses
import functools
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from azr_jax.config import named, suggestions

# A number, a string, a bool, or a tuple of these.
Value = Any
Check = Callable[[Any], bool]
# The largest float32, because devices compute in float32. NaN fails `<=` too.
_MAX_FLOAT = float.fromhex("0x1.fffffep+127")
# The key of a field's `Spec` in the field's metadata.
_SPEC = "setting"


class Invalid(ValueError):
  """A configuration key is unknown, or its value is not allowed.

  Attributes:
    key: the dotted path, such as `config.rollout.slots`.
    problem: the rest of the message: the value, and what was expected.
  """

  def __init__(self, key: str, problem: str):
    super().__init__(f"{key}{problem}")
    self.key, self.problem = key, problem

  def inside(self, section: str) -> "Invalid":
    """Returns the same error with the section prepended to the key."""
    return Invalid(f"{section}.{self.key}", self.problem)


@dataclasses.dataclass(frozen=True)
class Spec:
  """Documentation of a field, and tests of its value.

  Attributes:
    doc: what the field does, with its unit, in one line.
    paper: the value in the system's paper, as text; "" if not stated.
    tests: the tests that a value of the field's type must pass, each with its
      description.
    expert: whether `--help` omits the field while it has its default.
    load: loads the object of a MODULE:NAME value; None if the field takes no
      such names.
  """

  doc: str
  paper: str
  tests: tuple[tuple[Check, str], ...]
  expert: bool = False
  load: Callable[[str], Any] | None = None

  @property
  def expected(self) -> str:
    """The tests in words, or "" if every value of the type is allowed."""
    return ", ".join(expected for _, expected in self.tests)

  def failed(self, value: Value) -> str:
    """Returns the description of the first test that fails, or ""."""
    return next(
      (expected for test, expected in self.tests if not test(value)), ""
    )


def setting(
  default: Value,
  doc: str,
  *,
  paper: str = "",
  above: float | None = None,
  minimum: float | None = None,
  below: float | None = None,
  maximum: float | None = None,
  choices: Sequence[str] = (),
  or_named: Callable[[str], Any] | None = None,
  subset_of: Sequence[Any] = (),
  required: bool = False,
  accepts: tuple[Check, str] | None = None,
  expert: bool = False,
) -> Any:
  """Declares a field of a `Settings` class.

  Args:
    default: the value if a config does not set the field.
    doc: what the field does, with its unit, in one line.
    paper: the paper's value, if it differs from the default or is worth
      stating.
    above: numbers must be larger than this.
    minimum: numbers must be this or larger.
    below: numbers must be smaller than this.
    maximum: numbers must be this or smaller.
    choices: the allowed names.
    or_named: also allows MODULE:NAME, as in `named.py`. Loads the named object,
      or raises ValueError with what was expected.
    subset_of: the values a tuple may hold, each at most once.
    required: strings and tuples must not be empty.
    accepts: another test, with its description.
    expert: few runs change the field, so only `--helpfull` shows it.
  """
  tests: list[tuple[Check, str]] = []
  bounds = [
    (above, "above", lambda v: v > above),
    (minimum, "of at least", lambda v: v >= minimum),
    (below, "below", lambda v: v < below),
    (maximum, "of at most", lambda v: v <= maximum),
  ]
  bounds = [bound for bound in bounds if bound[0] is not None]
  if bounds:
    expected = " and ".join(f"{name} {limit}" for limit, name, _ in bounds)
    kind = "an integer" if isinstance(default, int) else "a number"
    tests.append(
      (lambda v: all(holds(v) for _, _, holds in bounds), f"{kind} {expected}")
    )
  if choices:
    is_open = or_named is not None
    expected = f"one of {tuple(choices)}" + ", or MODULE:NAME" * is_open
    tests.append(
      (lambda v: v in choices or (is_open and named.is_spec(v)), expected)
    )
  if subset_of:
    expected = "a non-empty choice" if required else "() or a choice"
    tests.append(
      (
        lambda v: (
          len(set(v)) == len(v)
          and set(v) <= set(subset_of)
          and (len(v) > 0 or not required)
        ),
        f"{expected} of {tuple(subset_of)}",
      )
    )
  elif required:
    kind = "string" if isinstance(default, str) else "tuple"
    tests.append((lambda v: len(v) > 0, f"a non-empty {kind}"))
  if accepts:
    tests.append(accepts)
  spec = Spec(doc, paper, tuple(tests), expert, or_named)
  return dataclasses.field(default=default, metadata={_SPEC: spec})


class Settings:
  """Base of all settings classes. Checks every field, then calls `check`."""

  def __post_init__(self) -> None:
    for field in dataclasses.fields(typing.cast(Any, self)):
      self._check_field(field)
    self.check()

  def check(self) -> None:
    """Raises `Invalid` if fields contradict one another."""

  def invalid(self, key: str, expected: str) -> Invalid:
    """Returns an error about a field's value."""
    value = getattr(self, key)
    return Invalid(key, f"={value!r}: expected {expected}")

  def _check_field(self, field: dataclasses.Field) -> None:
    value = getattr(self, field.name)
    kind = _types_of(type(self))[field.name]
    spec: Spec | None = field.metadata.get(_SPEC)
    if not _has_type(value, kind):
      expected = spec.expected if spec and spec.expected else _description(kind)
      raise self.invalid(field.name, expected)
    if spec and (expected := spec.failed(value)):
      raise self.invalid(field.name, expected)
    if spec and spec.load and named.is_spec(value):
      try:
        spec.load(value)
      except ValueError as error:
        raise self.invalid(field.name, str(error)) from error


SettingsT = TypeVar("SettingsT", bound=Settings)


def build(
  cls: type[SettingsT],
  section: Mapping[str, Any],
  base: SettingsT | None = None,
) -> SettingsT:
  """Returns the settings of a section.

  Args:
    section: {key: value}, nested for fields that are settings classes. Lists
      become tuples.
    base: values of the keys that the section lacks. None means the defaults
      of the class.

  Raises:
    Invalid: a key is unknown, or a value is not allowed. The error's key is
      the path inside the section.
  """
  kinds = _types_of(cls)
  for key, value in section.items():
    if key not in kinds:
      raise unknown(key, value, kinds)
  values = {}
  for key, value in section.items():
    kind = kinds[key]
    if _is_settings(kind):
      if not isinstance(value, Mapping):
        raise Invalid(key, f"={value!r}: expected a section")
      try:
        # A nested section's default may differ from the default of its class.
        values[key] = build(kind, value, _default_of(cls, key, base))
      except Invalid as error:
        raise error.inside(key) from None
    else:
      values[key] = tuple(value) if isinstance(value, list) else value
  if base is not None:
    return dataclasses.replace(typing.cast(Any, base), **values)
  return cls(**values)


def _default_of(cls: type[SettingsT], key: str, base: SettingsT | None) -> Any:
  """Returns the default value of a field, or None if it has none."""
  if base is not None:
    return getattr(base, key)
  (field,) = [
    f for f in dataclasses.fields(typing.cast(Any, cls)) if f.name == key
  ]
  if field.default is not dataclasses.MISSING:
    return field.default
  if field.default_factory is not dataclasses.MISSING:
    return field.default_factory()
  return None


def unknown(
  key: str,
  value: Any,
  known: Mapping[str, Any],
  spelled: Callable[[str], str] = repr,
) -> Invalid:
  """Returns an error about an unknown key.

  Args:
    value: the value; a mapping means that a section was intended.
    known: all known keys. The error suggests the nearest.
    spelled: formats a key for the error.
  """
  near = " and ".join(map(spelled, suggestions.meant(key, known)))
  hint = f"did you mean {near}?" if near else f"expected {sorted(known)}"
  what = "section" if isinstance(value, Mapping) else f"key (value {value!r})"
  return Invalid(key, f" is an unknown {what}: {hint}")


def as_dict(settings: Settings) -> dict[str, Any]:
  """Returns the values as a nested dictionary, in the order of the fields."""
  return {
    field.name: as_dict(value) if isinstance(value, Settings) else value
    for field in dataclasses.fields(typing.cast(Any, settings))
    for value in [getattr(settings, field.name)]
  }


@dataclasses.dataclass(frozen=True)
class Described:
  """One key in a listing of settings.

  Attributes:
    key: the dotted path.
    kind: the allowed values, in words.
    default: the value in the described settings.
    doc: what the key does, in one line.
    paper: the value in the system's paper; "" if not stated.
    is_expert: whether few runs change it.
    is_changed: whether the value differs from the default of its class.
  """

  key: str
  kind: str
  default: Value
  doc: str
  paper: str
  is_expert: bool = False
  is_changed: bool = False


def describe(
  settings: Settings, prefix: str = "", defaults: Settings | None = None
) -> Iterator[Described]:
  """Yields every key of settings, including nested settings.

  Args:
    settings: the settings to describe.
    prefix: prepended to every dotted path.
    defaults: settings to compare with. None means the class's defaults.
  """
  defaults = type(settings)() if defaults is None else defaults
  for field in dataclasses.fields(typing.cast(Any, settings)):
    value = getattr(settings, field.name)
    key = f"{prefix}{field.name}"
    if isinstance(value, Settings):
      yield from describe(value, f"{key}.", getattr(defaults, field.name))
      continue
    spec: Spec | None = field.metadata.get(_SPEC)
    kind = spec.expected if spec and spec.expected else ""
    described_kind = kind or _description(_types_of(type(settings))[field.name])
    yield Described(
      key,
      described_kind,
      value,
      spec.doc if spec else "",
      spec.paper if spec else "",
      is_expert=spec is not None and spec.expert,
      is_changed=value != getattr(defaults, field.name),
    )


@functools.cache
def _types_of(cls: type) -> dict[str, Any]:
  """Returns {field name: type} of a settings class."""
  hints = typing.get_type_hints(cls)
  return {f.name: hints[f.name] for f in dataclasses.fields(cls)}


def _is_settings(kind: Any) -> bool:
  return isinstance(kind, type) and issubclass(kind, Settings)


def _has_type(value: Any, kind: Any) -> bool:
  """Returns whether a value has a field's type. Floats must fit float32."""
  if isinstance(kind, types.UnionType):
    return any(_has_type(value, option) for option in typing.get_args(kind))
  if typing.get_origin(kind) is tuple:
    item = typing.get_args(kind)[0]
    return isinstance(value, tuple) and all(_has_type(v, item) for v in value)
  if kind is float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and abs(value) <= _MAX_FLOAT
  if kind is int:
    return isinstance(value, int) and not isinstance(value, bool)
  return isinstance(value, kind)


_WORDS = {bool: "True or False", int: "an integer", float: "a finite number"}


def _description(kind: Any) -> str:
  """Describes the values of a type in words."""
  if _is_settings(kind):
    return "a section"
  if typing.get_origin(kind) is tuple:
    names = {str: "strings", int: "integers", float: "numbers"}
    return f"a tuple of {names.get(typing.get_args(kind)[0], 'values')}"
  return _WORDS.get(kind, "a string" if kind is str else str(kind))
