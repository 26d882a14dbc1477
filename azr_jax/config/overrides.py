"""Converts settings to configs, which files and flags change, and back."""

from collections.abc import Mapping
from typing import Any

import ml_collections

from azr_jax.config import settings as settings_lib
from azr_jax.config.settings import Settings, SettingsT


def to_config(settings: Settings) -> ml_collections.ConfigDict:
  """Returns a config with every key of the settings, with the same nesting.

  A config file changes some values. `--config.a.b=value` converts its text to
  the type of the value it replaces.
  """
  return ml_collections.ConfigDict(settings_lib.as_dict(settings))


def build(
  cls: type[SettingsT], config: ml_collections.ConfigDict | Mapping[str, Any]
) -> SettingsT:
  """Returns the settings of a whole config.

  Args:
    config: the values. Missing keys have their defaults.

  Raises:
    Invalid: a key is unknown or its value is not allowed. The error starts
      with `config.` and the key.
  """
  is_config = isinstance(config, ml_collections.ConfigDict)
  values: Mapping[str, Any] = config.to_dict() if is_config else config
  try:
    return settings_lib.build(cls, values)
  except settings_lib.Invalid as error:
    raise error.inside("config") from None


def flatten(config: Any, prefix: str = "") -> dict[str, Any]:
  """Returns {dotted key: value} of a nested config."""
  flat: dict[str, Any] = {}
  for key, value in config.items():
    if isinstance(value, Mapping | ml_collections.ConfigDict):
      flat |= flatten(value, f"{prefix}{key}.")
    else:
      flat[prefix + key] = value
  return flat
