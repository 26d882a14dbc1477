"""Loads systems by name, or as MODULE:CLASS from outside the package."""

from typing import Any

from azr_jax.config import named
from azr_jax.config.settings import Invalid
from azr_jax.run import metrics
from azr_jax.systems.system import About, System

# Name -> MODULE:CLASS. Modules are imported lazily, by `load`.
SYSTEMS = {
  "azr": "azr_jax.systems.azr.system:AZR",
  "countdown": "azr_jax.systems.countdown.system:Countdown",
  "orz": "azr_jax.systems.orz.system:ORZ",
  "code_interpreter": "azr_jax.systems.code_interpreter.system:CodeInterpreter",
  "custom": "azr_jax.systems.custom.system:Custom",
  "environment": "azr_jax.systems.environment.system:EnvironmentSystem",
}


def load(name: str) -> type[System]:
  """Returns the class of a system.

  Args:
    name: a key of `SYSTEMS`, or MODULE:CLASS as in `config/named.py`.

  Raises:
    Invalid: there is no such system.
  """
  expected = f"one of {tuple(SYSTEMS)}, or MODULE:CLASS of a System"
  spec = SYSTEMS.get(name, name)
  if not named.is_spec(spec):
    raise Invalid("system", f"={name!r}: expected {expected}")
  try:
    system = named.find(spec)
  except ValueError as error:
    raise Invalid(
      "system", f"={name!r}: expected {expected} ({error})"
    ) from error
  problem = _problem_of(system)
  if problem:
    raise Invalid("system", f"={name!r}: expected {expected}; this {problem}")
  return system


def _problem_of(system: Any) -> str:
  """Returns why an object is not a concrete system; "" if it is one."""
  if not (isinstance(system, type) and issubclass(system, System)):
    return "is not a subclass of it"
  lacking = sorted(system.__abstractmethods__)
  if not hasattr(system, "name"):
    lacking.append("name")
  return f"lacks {', '.join(lacking)}" if lacking else ""


def about(name: str) -> About:
  """Returns facts about a system with its default settings."""
  system = load(name)
  return system.about(system.Settings())


def healthy_metrics() -> dict[str, str]:
  """Returns {metric family: description of a healthy value} of all systems."""
  families = dict(metrics.HEALTHY)
  for name in SYSTEMS:
    families |= about(name).metrics
  return families
