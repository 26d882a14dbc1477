"""Checks a whole config before any device work, and builds parts from it.

This is the one place that reads config keys; everything below gets named
values.
"""

import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import ml_collections
import optax
from jax.sharding import Mesh

from azr_jax.curricula import adaptive, mixed, mixture, replay
from azr_jax.curricula.curriculum import Curriculum, Pool
from azr_jax.executor import Executor
from azr_jax.executor.executor import BACKENDS
from azr_jax.grading.verification import Verification
from azr_jax.learner import advantages, losses, packing, train_state, update
from azr_jax.models import attention, presets, safetensors_io, transformer
from azr_jax.models.config import ModelConfig
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.rollout import programs, token_choice
from azr_jax.systems import azr, azr_rewards, countdown
from azr_jax.systems.system import System
from azr_jax.tasks.corpus import Corpus
from azr_jax.tasks.countdown import corpus as countdown_corpus
from azr_jax.tasks.countdown import dataset as dataset_lib
from azr_jax.tasks.countdown import difficulty, verifier, worked
from azr_jax.tasks.countdown import prompts as countdown_prompts
from azr_jax.tasks.countdown.puzzle import Puzzle
from azr_jax.tasks.programs.corpus import conversations, dataset, tokenizer
from azr_jax.tasks.programs.prompts import STYLES
from azr_jax.tasks.programs.task import TASK_TYPES

Check = tuple[Callable[[Any], bool], str]

DTYPES = ("float32", "bfloat16")
SYSTEMS = ("azr", "countdown")
CURRICULA = ("uniform", "static", "adaptive")
MESH_AXIS_NAMES = ("data", "fsdp", "tensor", "")


def _one_of(*choices: str) -> Check:
  return (lambda v: v in choices), f"one of {choices}"


def _subset_of(*choices: str) -> Check:
  return (
    lambda v: len(v) > 0 and len(set(v)) == len(v) and set(v) <= set(choices)
  ), f"a non-empty choice of {choices}"


_POSITIVE: Check = (lambda v: v > 0), "a number above 0"
_COUNT: Check = (lambda v: v >= 1), "an integer of at least 1"
_NOT_NEGATIVE: Check = (lambda v: v >= 0), "a number of at least 0"
_NUMBER: Check = (lambda v: v == v), "a number"
_PORTION: Check = (lambda v: 0 <= v <= 1), "a number in [0, 1]"
_SHARE: Check = (lambda v: 0 < v <= 1), "a number in (0, 1]"
_EVEN: Check = (
  (lambda v: v >= 2 and v % 2 == 0),
  "an even integer of at least 2",
)
_DECAY: Check = (lambda v: 0 <= v < 1), "a number in [0, 1)"
_SWITCH: Check = (lambda v: isinstance(v, bool)), "True or False"
_TEXT: Check = (lambda v: bool(v)), "a non-empty string"
_PERHAPS_TEXT: Check = (lambda v: isinstance(v, str)), "a string"
_STRINGS: Check = (
  (lambda v: all(isinstance(s, str) and s for s in v)),
  "a tuple of non-empty strings",
)
_MEMORY: Check = (lambda v: v >= 64), "an integer of at least 64"
_MESH_SIZE: Check = (lambda v: v == -1 or v >= 1), "-1 or at least 1"
_ROLLOUT_SIZE: Check = (lambda v: v >= -1), "-1, 0 or at least 1"
_ASCENDING: Check = (
  (lambda v: len(v) > 0 and min(v) > 0 and list(v) == sorted(set(v))),
  "a non-empty ascending tuple of positive integers",
)

COMMON_CHECKS: dict[str, Check] = {
  "system": _one_of(*SYSTEMS),
  "seed": _NOT_NEGATIVE,
  "model.source": _TEXT,
  "model.cache_dir": _TEXT,
  "model.dtype": _one_of(*DTYPES),
  "model.attention": _one_of(*attention.NAMES),
  "model.remat": _one_of(*transformer.REMAT_POLICIES),
  "mesh.data": _MESH_SIZE,
  "mesh.fsdp": _MESH_SIZE,
  "mesh.tensor": _MESH_SIZE,
  **{
    f"sharding.{axis}": _one_of(*MESH_AXIS_NAMES)
    for axis in (
      "vocab",
      "embed",
      "heads",
      "kv_heads",
      "head_size",
      "mlp",
      "layers",
    )
  },
  "learner.row_length": _COUNT,
  "learner.micro_rows": _COUNT,
  "learner.max_micro_batches": _COUNT,
  "learner.chunk_tokens": _COUNT,
  "learner.aggregation": _one_of(*packing.AGGREGATIONS),
  "optimizer.learning_rate": _POSITIVE,
  "optimizer.muon_learning_rate": _NOT_NEGATIVE,
  "optimizer.warmup_steps": _NOT_NEGATIVE,
  "optimizer.decay_steps": _NOT_NEGATIVE,
  "optimizer.final_learning_rate": _NOT_NEGATIVE,
  "optimizer.b1": _DECAY,
  "optimizer.b2": _DECAY,
  "optimizer.weight_decay": _NOT_NEGATIVE,
  "optimizer.grad_clip": _NOT_NEGATIVE,
  "executor.backend": _one_of(*BACKENDS),
  "executor.nodes": _NOT_NEGATIVE,
  "executor.address": _PERHAPS_TEXT,
  "executor.workers": _COUNT,
  "executor.timeout_s": _POSITIVE,
  "executor.memory_mb": _MEMORY,
  "executor.unsafe": _SWITCH,
  "hosts.timeout_s": _POSITIVE,
  "train.steps": _COUNT,
  "train.save_every": _COUNT,
  "train.keep_checkpoints": _COUNT,
  "train.samples_per_step": _NOT_NEGATIVE,
}
ROLLOUT_CHECKS: dict[str, Check] = {
  **{f"rollout.mesh.{axis}": _ROLLOUT_SIZE for axis in mesh_lib.AXES},
  "rollout.slots": _COUNT,
  "rollout.prompt_buckets": _ASCENDING,
  "rollout.max_tokens": _COUNT,
  "rollout.prefill_tokens": _COUNT,
  "rollout.decode_chunk": _COUNT,
  "rollout.cache_chunk": _COUNT,
  "rollout.temperature": _POSITIVE,
  "rollout.top_k": ((lambda v: v == 0), "0: the learner scores all tokens"),
  "rollout.top_p": ((lambda v: v == 1), "1: the learner scores all tokens"),
  "rollout.stop_strings": _STRINGS,
}
POLICY_CHECKS: dict[str, Check] = {
  "learner.estimator": _one_of(*advantages.ESTIMATORS),
  "learner.clip_low": _POSITIVE,
  "learner.clip_high": _POSITIVE,
  "learner.entropy_coef": _NOT_NEGATIVE,
  "learner.kl_coef": _NOT_NEGATIVE,
  "learner.kl_estimator": _one_of(*losses.KL_ESTIMATORS, losses.FULL_KL),
  "learner.policy_loss": _one_of(*losses.POLICY_LOSSES),
  "learner.iw_clip_max": _POSITIVE,
  "learner.regularizer_aggregation": _one_of(*packing.AGGREGATIONS),
  "learner.epochs": _COUNT,
}
AZR_CHECKS: dict[str, Check] = {
  "azr.task_types": _subset_of(*TASK_TYPES),
  "azr.batch_size": _COUNT,
  "azr.references": _NOT_NEGATIVE,
  "azr.learnability_samples": _COUNT,
  "azr.induction_inputs": _EVEN,
  "azr.seed_factor": _COUNT,
  "azr.seed_rounds": _COUNT,
  "azr.max_programs": _COUNT,
  "azr.prompt_style": _one_of(*STYLES),
  "azr.solve_from": _one_of("current", "previous"),
  "azr.unlearnable_reward": _one_of(*azr_rewards.UNLEARNABLE_REWARDS),
  "azr.wrong_reward": _NUMBER,
  "azr.bad_format_reward": _NUMBER,
  "azr.train_on_learnability": _SWITCH,
}
COUNTDOWN_CHECKS: dict[str, Check] = {
  "countdown.prompts": _COUNT,
  "countdown.group_size": (lambda v: v >= 2, "an integer of at least 2"),
  "countdown.prompt_style": _one_of(*countdown_prompts.STYLES),
  "countdown.verifier": _one_of(*verifier.MODES),
  "countdown.puzzles": _PERHAPS_TEXT,
  "countdown.data_dir": _TEXT,
  "countdown.count": _COUNT,
  "countdown.data_seed": _NOT_NEGATIVE,
  "countdown.curriculum": _one_of(*CURRICULA),
  "countdown.adaptive.target": _PORTION,
  "countdown.adaptive.temperature": _POSITIVE,
  "countdown.adaptive.floor": _PORTION,
  "countdown.adaptive.window": _COUNT,
  "countdown.adaptive.warm_up": _NOT_NEGATIVE,
  "countdown.replay.share": _PORTION,
  "countdown.replay.warm_up": _NOT_NEGATIVE,
  "countdown.replay.lowest": _PORTION,
  "countdown.replay.highest": _PORTION,
  "countdown.replay.most": _NOT_NEGATIVE,
  "countdown.replay.decay": _DECAY,
  "countdown.mix.puzzles": _PERHAPS_TEXT,
  "countdown.mix.share": _PORTION,
  "countdown.mix.bucket_shares": (
    (lambda v: len(v) in (0, 3) and all(share >= 0 for share in v)),
    "() for uniform, or weights of easy, medium and hard",
  ),
  "countdown.proposals": _NOT_NEGATIVE,
  "countdown.references": _NOT_NEGATIVE,
  "countdown.unlearnable_reward": _NUMBER,
  "countdown.bad_proposal_reward": _NUMBER,
}
DATA_CHECKS: dict[str, Check] = {
  "data.kind": _one_of("programs", "countdown"),
  "data.tokenizer_samples": _COUNT,
}
CORPUS_CHECKS: dict[str, Check] = {
  "corpus.seed": _NOT_NEGATIVE,
  "corpus.count": _COUNT,
  "corpus.worked_share": _PORTION,
  "corpus.table_share": _PORTION,
  "corpus.flaw_share": _PORTION,
  "corpus.vague_share": _PORTION,
  "corpus.num_inputs": _EVEN,
  "corpus.references": _NOT_NEGATIVE,
}
WORKED_CHECKS: dict[str, Check] = {
  "worked.seed": _NOT_NEGATIVE,
  "worked.count": _COUNT,
  "worked.prompt_style": _one_of(*countdown_prompts.STYLES),
  "worked.style_shares": (
    (lambda v: len(v) == len(worked.STYLES) and min(v) >= 0 and sum(v) > 0),
    f"a tuple of weights for {worked.STYLES}",
  ),
  "worked.try_share": _DECAY,
  "worked.propose_share": _DECAY,
  "worked.references": _NOT_NEGATIVE,
}
TRAIN_CHECKS = COMMON_CHECKS | ROLLOUT_CHECKS | POLICY_CHECKS
SYSTEM_CHECKS = {"azr": AZR_CHECKS, "countdown": COUNTDOWN_CHECKS}
_SAMPLING_CHECKS = {
  **ROLLOUT_CHECKS,
  "rollout.temperature": _NOT_NEGATIVE,
  "rollout.top_k": _NOT_NEGATIVE,
  "rollout.top_p": _SHARE,
}
EVALUATE_CHECKS = {
  key: check
  for key, check in COMMON_CHECKS.items()
  if key.split(".")[0]
  in ("seed", "model", "mesh", "sharding", "executor", "hosts")
  and key != "model.source"
} | {
  **_SAMPLING_CHECKS,
  "evaluate.prompt_style": _one_of(*STYLES),
  "evaluate.samples": _COUNT,
}
PROPOSE_CHECKS = {
  key: check
  for key, check in COMMON_CHECKS.items()
  if key.split(".")[0] in ("seed", "model", "mesh", "sharding")
  and key != "model.source"
} | {
  **_SAMPLING_CHECKS,
  "propose.prompts": _COUNT,
  "propose.samples": _COUNT,
  "propose.references": _NOT_NEGATIVE,
  "propose.prompt_style": _one_of(*countdown_prompts.STYLES),
}
SFT_CHECKS = {
  **{key: check for key, check in COMMON_CHECKS.items() if key != "system"},
  **DATA_CHECKS,
  "train.model_dtype": _one_of(*safetensors_io.DTYPES),
}


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
  of_data = {"programs": CORPUS_CHECKS, "countdown": WORKED_CHECKS}
  kind = str(config.data.kind) if "data" in config else ""
  check(config, SFT_CHECKS | of_data.get(kind, CORPUS_CHECKS))
  name = config.model.source.removeprefix("preset:")
  if name != config.model.source and name not in presets.PRESETS:
    raise ValueError(
      f"config.model.source={config.model.source!r}: expected preset: and one "
      f"of {tuple(presets.PRESETS)}, or a model that can be loaded"
    )
  _check_schedule(config)


def _check_schedule(config: ml_collections.ConfigDict) -> None:
  c = config.optimizer
  if 0 < c.decay_steps <= c.warmup_steps:
    raise ValueError(
      f"config.optimizer.decay_steps={c.decay_steps}: expected 0 or more than "
      f"optimizer.warmup_steps={c.warmup_steps}"
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


def check_train(config: ml_collections.ConfigDict) -> None:
  """Checks a config of `azr_jax.train`, the relations between keys too."""
  own = SYSTEM_CHECKS.get(str(config.get("system")), AZR_CHECKS)
  check(config, TRAIN_CHECKS | own)
  _check_schedule(config)
  _check_rollout_mesh(config)
  longest = config.rollout.prompt_buckets[-1] + config.rollout.max_tokens
  if config.learner.row_length < longest:
    raise ValueError(
      f"config.learner.row_length={config.learner.row_length}: expected at "
      "least the longest sequence, rollout.prompt_buckets[-1] + "
      f"rollout.max_tokens = {longest}"
    )


def sharding_rules(config: ml_collections.ConfigDict) -> dict[str, str | None]:
  """Logical axis -> mesh axis, None for replicated."""
  return {axis: name or None for axis, name in config.sharding.items()}


def rollout_mesh(config: ml_collections.ConfigDict, mesh: Mesh) -> Mesh:
  """The mesh to sample in: the learner's own devices, perhaps in another shape.

  Raises:
    ValueError: the sizes do not multiply to the devices.
  """
  sizes = config.rollout.mesh.to_dict()
  if not any(sizes.values()):
    return mesh
  return mesh_lib.make_mesh(sizes, mesh.devices.flatten().tolist())


def build_policy_loss(
  config: ml_collections.ConfigDict,
  model: transformer.Transformer,
  mesh: Mesh,
) -> update.MicroLoss:
  """The loss that `learner` and `rollout.temperature` describe."""
  c = config.learner
  return update.make_policy_loss(
    model,
    clip_low=c.clip_low,
    clip_high=c.clip_high,
    entropy_coef=c.entropy_coef,
    kl_coef=c.kl_coef,
    kl_estimator=c.kl_estimator,
    temperature=config.rollout.temperature,
    chunk_tokens=c.chunk_tokens,
    on_policy=c.epochs == 1,
    policy_loss=c.policy_loss,
    iw_clip_max=c.iw_clip_max,
    mesh=mesh,
  )


def build_model(
  config: ml_collections.ConfigDict, shape: ModelConfig, mesh: Mesh
) -> transformer.Transformer:
  """The decoder of `model`, of a given shape."""
  c = config.model
  return transformer.Transformer(
    shape,
    jnp.dtype(c.dtype),
    attention.make(c.attention, mesh, c.dtype),
    c.remat,
  )


def build_optimizer(
  config: ml_collections.ConfigDict,
) -> optax.GradientTransformation:
  """Builds AdamW with its schedule."""
  return train_state.make_optimizer(**config.optimizer.to_dict())


def build_executor(config: ml_collections.ConfigDict) -> Executor:
  """Starts the executor pool."""
  return Executor(**config.executor.to_dict())


def sampler_settings(
  config: ml_collections.ConfigDict,
) -> programs.SamplerSettings:
  """Reads the declared shapes and rules of sampling."""
  c = config.rollout
  return programs.SamplerSettings(
    slots=c.slots,
    prompt_buckets=tuple(c.prompt_buckets),
    max_tokens=c.max_tokens,
    prefill_tokens=c.prefill_tokens,
    decode_chunk=c.decode_chunk,
    cache_chunk=c.cache_chunk,
    stop_strings=tuple(c.stop_strings),
    choice=token_choice.TokenChoice(c.temperature, c.top_k, c.top_p),
  )


def build_system(
  config: ml_collections.ConfigDict, verification: Verification
) -> System:
  """Builds the system that `config.system` names."""
  if config.system == "countdown":
    return _build_countdown(config)
  c = config.azr
  rewards = azr_rewards.RewardRules(
    unlearnable=azr_rewards.UNLEARNABLE_REWARDS[c.unlearnable_reward],
    wrong=c.wrong_reward,
    bad_format=c.bad_format_reward,
  )
  settings = azr.AZRSettings(
    task_types=tuple(c.task_types),
    batch_size=c.batch_size,
    references=c.references,
    learnability_samples=c.learnability_samples,
    induction_inputs=c.induction_inputs,
    seed_factor=c.seed_factor,
    seed_rounds=c.seed_rounds,
    max_programs=c.max_programs,
    prompt_style=c.prompt_style,
    solve_from=c.solve_from,
    train_on_learnability=c.train_on_learnability,
    rewards=rewards,
    seed=config.seed,
  )
  return azr.AZR(settings, verification)


def _build_countdown(config: ml_collections.ConfigDict) -> countdown.Countdown:
  c = config.countdown
  puzzles, scores = _puzzles(config)
  names = difficulty.BUCKETS + ((countdown.OWN,) if c.proposals else ())
  limits = difficulty.thresholds(scores)
  pool = Pool(names, difficulty.buckets(scores, limits).tolist())
  drawn: Curriculum
  if c.curriculum == "adaptive":
    settings = adaptive.AdaptiveSettings(**c.adaptive.to_dict())
    drawn = adaptive.Adaptive(pool, settings)
  elif c.curriculum == "static":
    drawn = mixture.Mixture(pool, mixture.static(config.train.steps))
  else:
    drawn = mixture.Mixture(pool, mixture.proportional(pool))
  if c.replay.share:
    drawn = replay.Replay(drawn, replay.ReplaySettings(**c.replay.to_dict()))
  sources = [puzzles]
  if c.mix.puzzles:
    made, made_scores = dataset_lib.read(
      pathlib.Path(c.mix.puzzles).expanduser()
    )
    made_limits = difficulty.thresholds(made_scores)
    made_pool = Pool(
      difficulty.BUCKETS, difficulty.buckets(made_scores, made_limits).tolist()
    )
    shares = mixture.proportional(made_pool)
    if c.mix.bucket_shares:
      shares = mixture.constant(c.mix.bucket_shares)
    sources.append(made)
    drawn = mixed.Mixed(drawn, mixture.Mixture(made_pool, shares), c.mix.share)
  return countdown.Countdown(
    countdown.CountdownSettings(
      prompts=c.prompts,
      group_size=c.group_size,
      prompt_style=c.prompt_style,
      verifier=c.verifier,
      proposals=c.proposals,
      references=c.references,
      rewards=azr_rewards.RewardRules(
        c.unlearnable_reward, 0.0, c.bad_proposal_reward
      ),
      seed=config.seed,
    ),
    sources,
    drawn,
    pool,
  )


def _puzzles(config: ml_collections.ConfigDict) -> tuple[list[Puzzle], Any]:
  """The labelled puzzles to train on: a file's, or generated ones."""
  c = config.countdown
  if c.puzzles:
    return dataset_lib.read(pathlib.Path(c.puzzles).expanduser())
  return dataset_lib.load(
    seed=c.data_seed,
    train=c.count,
    test=0,
    data_dir=pathlib.Path(c.data_dir).expanduser(),
    split="train",
  )


def build_corpus(
  config: ml_collections.ConfigDict, folder: pathlib.Path
) -> Corpus:
  """Builds, or finds in a folder, the corpus that `data.kind` names."""
  if config.data.kind == "countdown":
    c = config.worked.to_dict()
    settings = countdown_corpus.CorpusSettings(**c)
    return Corpus(
      list(countdown_corpus.conversations(settings)),
      countdown_corpus.train_tokenizer,
    )
  with build_executor(config) as executor:
    pairs = dataset.load(
      seed=config.corpus.seed,
      count=config.corpus.count,
      settings=_program_corpus(config),
      executor=executor,
      data_dir=folder,
    )
  return Corpus(pairs, tokenizer.train_tokenizer)


def _program_corpus(
  config: ml_collections.ConfigDict,
) -> conversations.CorpusSettings:
  c = config.corpus
  return conversations.CorpusSettings(
    worked_share=c.worked_share,
    table_share=c.table_share,
    flaw_share=c.flaw_share,
    vague_share=c.vague_share,
    num_inputs=c.num_inputs,
    references=c.references,
  )
