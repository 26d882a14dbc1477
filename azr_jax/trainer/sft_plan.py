"""The steps and the schedule of supervised training that `data.epochs` sets.

They depend on the corpus. So a run plans them at its first start and keeps them
in its config; a resumed run must plan the same.
"""

import copy
import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from azr_jax.run import folder as folder_lib
from azr_jax.run.session import Run
from azr_jax.trainer.settings import SupervisedTrainSettings

# Files of a run that has trained.
_TRAINED = ("metrics.jsonl", "checkpoints")
# Section and key of each planned value.
_PLANNED = (
  ("train", "steps"),
  ("optimizer", "warmup_steps"),
  ("optimizer", "decay_steps"),
)


def of_epochs(
  c: SupervisedTrainSettings, per_epoch: float
) -> SupervisedTrainSettings:
  """Returns settings whose number of steps is that of `data.epochs`, if given.

  A decay that ends with the run still does, and the warm-up keeps its share.

  Args:
    c: settings, as the config has them.
    per_epoch: steps per epoch.
  """
  if not c.data.epochs:
    return c
  steps, optimizer = math.ceil(c.data.epochs * per_epoch), c.optimizer
  warmup = round(optimizer.warmup_steps * steps / c.train.steps)
  ends = optimizer.decay_steps == c.train.steps
  return dataclasses.replace(
    c,
    train=dataclasses.replace(c.train, steps=steps),
    optimizer=dataclasses.replace(
      optimizer,
      warmup_steps=min(warmup, steps - 1),
      decay_steps=steps if ends else optimizer.decay_steps,
    ),
  )


def describe(
  c: SupervisedTrainSettings, per_epoch: float, conversations: int
) -> str:
  """Describes in one line how long a run is, and which setting says so.

  Args:
    c: settings, as the config has them.
    per_epoch: steps per epoch.
    conversations: conversations of the corpus.
  """
  steps = of_epochs(c, per_epoch).train.steps
  by = ""
  if c.data.epochs:
    by = (
      f" (config.data.epochs={c.data.epochs:g}, which replaces "
      f"config.train.steps={c.train.steps})"
    )
  return (
    f"{steps} steps are {steps / per_epoch:.2f} epochs of {conversations} "
    f"conversations{by}"
  )


def as_begun(
  c: SupervisedTrainSettings,
  config: Mapping[str, Any],
  begun_with: Mapping[str, Any] | None,
) -> dict[str, Any]:
  """Returns a config with the plan of a run's first start.

  Args:
    c: the checked settings of the config.
    config: the command's config.
    begun_with: the config the run started with, or None for a new run.
  """
  values = copy.deepcopy(dict(config))
  if begun_with is not None and c.data.epochs:
    for section, key in _PLANNED:
      values[section][key] = begun_with[section][key]
  return values


def has_trained(run: Run) -> bool:
  """Returns whether a step of the run may be done.

  A run that has only made its tokenizer has not.
  """
  return folder_lib.begun_config(run.folder, _TRAINED) is not None


def keep(
  c: SupervisedTrainSettings, per_epoch: float, run: Run
) -> SupervisedTrainSettings:
  """Returns settings with the plan, which a new run writes into its config.

  Args:
    c: settings, as the config has them.
    per_epoch: steps per epoch.
    run: the open run.

  Raises:
    ValueError: the run started with another plan.
  """
  plan = of_epochs(c, per_epoch)
  if not c.data.epochs:
    return plan
  is_new = not has_trained(run)
  values = folder_lib.read_config(run.folder)
  for section, key in _PLANNED:
    value, kept = getattr(getattr(plan, section), key), values[section][key]
    if not is_new and value != kept:
      raise ValueError(
        f"config.data.epochs={c.data.epochs:g} gives {section}.{key}={value}: "
        f"expected {kept}, with which {run.folder} started; restore "
        f"config.train.steps and config.{section}.{key}, or use another "
        "--workdir"
      )
    values[section][key] = value
  if is_new:
    run.keep_config(values)
  return plan
