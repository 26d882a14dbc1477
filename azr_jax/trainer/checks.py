"""Checks a whole config before any device work."""

from collections.abc import Mapping
from typing import Any

import ml_collections

from azr_jax.curricula import improvement_potential as potential
from azr_jax.evals import registry
from azr_jax.learner.advantages import GAE
from azr_jax.models import presets
from azr_jax.run import text_monitor
from azr_jax.tasks.programs.task import ERROR_DEDUCTION
from azr_jax.trainer.schema import (
  AZR_CHECKS,
  CORPUS_CHECKS,
  LEARNED_CHECKS,
  SFT_CHECKS,
  SUMS_CHECKS,
  SYSTEM_CHECKS,
  TASKS_CHECKS,
  TRAIN_CHECKS,
  WORKED_CHECKS,
  Check,
)


def flatten(config: Any, prefix: str = "") -> dict[str, Any]:
  """Returns {dotted key: value} of a nested config."""
  flat: dict[str, Any] = {}
  for key, value in config.items():
    if isinstance(value, Mapping | ml_collections.ConfigDict):
      flat |= flatten(value, f"{prefix}{key}.")
    else:
      flat[prefix + key] = value
  return flat


def check(config: ml_collections.ConfigDict, checks: dict[str, Check]) -> None:
  """Checks every key of a config.

  Raises:
    ValueError: a key is unknown or missing, or a value is not what its key
      expects; the message names key, value and expectation.
  """
  flat = flatten(config)
  for key in flat:
    if key not in checks:
      raise ValueError(f"unknown config key {key!r} (value {flat[key]!r})")
  for key, (accepts, expected) in checks.items():
    if key not in flat:
      raise ValueError(f"config key {key!r} is missing; expected {expected}")
    value = flat[key]
    try:
      accepted = accepts(value)
    except TypeError:
      accepted = False
    if not accepted:
      raise ValueError(f"config.{key}={value!r}: expected {expected}")


def check_sft(config: ml_collections.ConfigDict) -> None:
  """Checks a config of `azr_jax.sft`, the relations between keys too."""
  of_data = {
    "programs": CORPUS_CHECKS,
    "countdown": WORKED_CHECKS,
    "sums": SUMS_CHECKS,
    "questions": TASKS_CHECKS,
    "trajectories": LEARNED_CHECKS,
  }
  kind = str(config.data.kind) if "data" in config else ""
  check(config, SFT_CHECKS | of_data.get(kind, CORPUS_CHECKS))
  name = config.model.source.removeprefix("preset:")
  if name != config.model.source and name not in presets.PRESETS:
    raise ValueError(
      f"config.model.source={config.model.source!r}: expected preset: and one "
      f"of {tuple(presets.PRESETS)}, or a model that can be loaded"
    )
  _check_schedule(config.optimizer, "optimizer")


def _check_schedule(c: ml_collections.ConfigDict, section: str) -> None:
  if 0 < c.decay_steps <= c.warmup_steps:
    raise ValueError(
      f"config.{section}.decay_steps={c.decay_steps}: expected 0 or more than "
      f"{section}.warmup_steps={c.warmup_steps}"
    )


def _check_rollout_mesh(config: ml_collections.ConfigDict) -> None:
  sizes = config.rollout.mesh.to_dict()
  if any(sizes.values()) and (
    0 in sizes.values() or list(sizes.values()).count(-1) > 1
  ):
    raise ValueError(
      f"config.rollout.mesh={sizes}: expected all 0 (as `mesh`), or no 0 and "
      "at most one -1"
    )


def _check_countdown(config: ml_collections.ConfigDict) -> None:
  c = config.countdown
  if c.proposals and c.curriculum != "adaptive":
    raise ValueError(
      f"config.countdown.curriculum={c.curriculum!r}: expected 'adaptive', "
      "which chooses when the policy proposes (countdown.proposals is not 0)"
    )
  if c.proposals and (
    c.proposals > (c.prompts - 1) * c.group_size or c.references > c.prompts
  ):
    raise ValueError(
      f"config.countdown.proposals={c.proposals}, references={c.references}: "
      "expected room for a solved puzzle in a step of countdown.prompts="
      f"{c.prompts} x group_size={c.group_size}, and as many references as "
      "prompts at most"
    )


def _check_azr(config: ml_collections.ConfigDict) -> None:
  c = config.azr
  if c.seeds and set(c.task_types) == {ERROR_DEDUCTION}:
    raise ValueError(
      f"config.azr.seeds={c.seeds!r}: expected '' with error_deduction alone, "
      "which starts from programs that raise"
    )
  if len(c.intrinsic_weights) != len(c.intrinsic):
    raise ValueError(
      f"config.azr.intrinsic_weights={c.intrinsic_weights!r}: expected one for "
      f"each of azr.intrinsic={c.intrinsic!r}"
    )
  if c.intrinsic and not c.measure_programs:
    raise ValueError(
      f"config.azr.intrinsic={c.intrinsic!r}: expected azr.measure_programs, "
      "which they are rewards of"
    )


def _check_code_interpreter(config: ml_collections.ConfigDict) -> None:
  c = config.code_interpreter
  if c.order not in ("none", *potential.ONLINE) and not c.measured:
    raise ValueError(
      f"config.code_interpreter.measured='': expected a file of "
      f"azr_jax.potential with order={c.order!r}"
    )
  if c.order == "difficulty" and c.grouping != "quantiles":
    raise ValueError(
      f"config.code_interpreter.grouping={c.grouping!r}: expected 'quantiles' "
      "with order='difficulty'"
    )
  if c.max_calls and not config.rollout.extend_chunk:
    raise ValueError(
      "config.rollout.extend_chunk=0: expected at least 1, for results are "
      "read into the slots"
    )


def check_train(config: ml_collections.ConfigDict) -> None:
  """Checks a config of `azr_jax.train`, the relations between keys too."""
  own = SYSTEM_CHECKS.get(str(config.get("system")), AZR_CHECKS)
  check(config, TRAIN_CHECKS | own)
  _check_schedule(config.optimizer, "optimizer")
  _check_schedule(config.critic.optimizer, "critic.optimizer")
  if config.learner.estimator == GAE and config.learner.epochs != 1:
    raise ValueError(
      f"config.learner.epochs={config.learner.epochs}: expected 1 with "
      f"learner.estimator={GAE!r}, whose values are of this batch's critic"
    )
  _check_rollout_mesh(config)
  text_monitor.load_classifier(config.train.flag_classifier)
  if config.system == "azr":
    _check_azr(config)
  if config.system == "countdown":
    _check_countdown(config)
  if config.system == "code_interpreter":
    _check_code_interpreter(config)
  if config.system == "orz" and len(config.orz.counts) != len(config.orz.data):
    raise ValueError(
      f"config.orz.counts={config.orz.counts!r}: expected one for each of the "
      f"{len(config.orz.data)} sources of orz.data"
    )
  if config.evaluation.every:
    registry.names(config.evaluation.benchmarks)
  longest = config.rollout.prompt_buckets[-1] + config.rollout.max_tokens
  if config.learner.row_length < longest:
    raise ValueError(
      f"config.learner.row_length={config.learner.row_length}: expected at "
      "least the longest sequence, rollout.prompt_buckets[-1] + "
      f"rollout.max_tokens = {longest}"
    )
