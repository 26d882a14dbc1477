"""Checks the arms of a plan before anything is run."""

from collections.abc import Mapping
from typing import Any

import ml_collections

from azr_jax.cli import config_files
from azr_jax.config.settings import Invalid
from azr_jax.lab.experiments.plan import SUPERVISED, TRAIN, Plan
from azr_jax.trainer import settings

_READERS = {TRAIN: settings.read_train, SUPERVISED: settings.read_supervised}


def check_arms(plan: Plan) -> None:
  """Checks every arm's config, and that it starts from what it is scored by.

  Raises:
    ValueError: an arm's config or one of its keys is wrong, or the arm starts
      from another model than the start of one of its scores.
  """
  for name, arm in plan.arms.items():
    try:
      config = config_of(arm.config, arm.overrides)
      _READERS[arm.command](config)
    except (Invalid, config_files.UsageError, KeyError, TypeError) as error:
      raise ValueError(f"{plan.name}, arm {name}: {error}") from None
    source = config["model"]["source"]
    for score in plan.scores_of(name):
      if plan.scores[score].start not in ("", source):
        raise ValueError(
          f"{plan.name}, arm {name}: config.model.source={source!r}: expected "
          f"scores.{score}.start={plan.scores[score].start!r}, because gains "
          "are counted from it; list other arms in `arms` of the score"
        )


def config_of(
  spec: str, overrides: Mapping[str, Any]
) -> ml_collections.ConfigDict:
  """Loads FILE:VARIANT with some keys changed, as flags would change them."""
  config = config_files.load(config_files.resolve(spec))
  config.update_from_flattened_dict(
    {
      key: tuple(value) if isinstance(value, list) else value
      for key, value in overrides.items()
    }
  )
  return config
