"""What every key of a config expects: a test, and the words for it."""

from collections.abc import Callable
from typing import Any

from azr_jax.corpora import arithmetic as mathematics_corpus
from azr_jax.corpora import countdown_solutions
from azr_jax.corpora import questions as question_corpus
from azr_jax.curricula import improvement_potential as potential
from azr_jax.evals import prompt_formats
from azr_jax.executor import scripts
from azr_jax.executor.executor import BACKENDS
from azr_jax.grading import countdown as verifier
from azr_jax.grading.mathematics import grader
from azr_jax.learner import advantages, critic, losses, packing, train_state
from azr_jax.models import attention, safetensors_io, transformer
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.systems.azr import rewards as azr_rewards
from azr_jax.systems.azr import system as azr
from azr_jax.systems.azr.appendix import rewriting
from azr_jax.systems.code_interpreter.agents import AGENTS
from azr_jax.systems.orz import system as orz
from azr_jax.tasks.countdown import prompts as countdown_prompts
from azr_jax.tasks.mathematics import prompts as mathematics_prompts
from azr_jax.tasks.programs import buffer
from azr_jax.tasks.programs.prompts import STYLES
from azr_jax.tasks.programs.task import (
  EXTRA_TASK_TYPES,
  ROLES,
  TASK_TYPES,
)
from azr_jax.tasks.questions import prompts as question_prompts

Check = tuple[Callable[[Any], bool], str]

DTYPES = ("float32", "bfloat16")
SYSTEMS = ("azr", "countdown", "orz", "code_interpreter")
CURRICULA = ("uniform", "static", "adaptive")
MESH_AXIS_NAMES = ("data", "fsdp", "tensor", "")


def _one_of(*choices: str) -> Check:
  return (lambda v: v in choices), f"one of {choices}"


def _subset_of(*choices: str) -> Check:
  return (
    lambda v: len(v) > 0 and len(set(v)) == len(v) and set(v) <= set(choices)
  ), f"a non-empty choice of {choices}"


def _none_or_some_of(*choices: str) -> Check:
  return (
    lambda v: len(set(v)) == len(v) and set(v) <= set(choices)
  ), f"() or a choice of {choices}"


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
_SOURCES: Check = (
  (lambda v: len(v) > 0 and all(isinstance(s, str) and s for s in v)),
  "a tuple of sources, each a non-empty string",
)
_MEMORY: Check = (lambda v: v >= 64), "an integer of at least 64"
_MESH_SIZE: Check = (lambda v: v == -1 or v >= 1), "-1 or at least 1"
_ROLLOUT_SIZE: Check = (lambda v: v >= -1), "-1, 0 or at least 1"
_ASCENDING: Check = (
  (lambda v: len(v) > 0 and min(v) > 0 and list(v) == sorted(set(v))),
  "a non-empty ascending tuple of positive integers",
)


_EVALUATED_STYLE = _one_of(
  *dict.fromkeys(
    (*prompt_formats.PROMPT_FORMATS, *STYLES, *mathematics_prompts.STYLES)
  )
)


def _optimizer_checks(section: str) -> dict[str, Check]:
  return {
    f"{section}.learning_rate": _POSITIVE,
    f"{section}.muon_learning_rate": _NOT_NEGATIVE,
    f"{section}.warmup_steps": _NOT_NEGATIVE,
    f"{section}.decay_steps": _NOT_NEGATIVE,
    f"{section}.decay": _one_of(*train_state.DECAYS),
    f"{section}.final_learning_rate": _NOT_NEGATIVE,
    f"{section}.b1": _DECAY,
    f"{section}.b2": _DECAY,
    f"{section}.weight_decay": _NOT_NEGATIVE,
    f"{section}.grad_clip": _NOT_NEGATIVE,
  }


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
  **_optimizer_checks("optimizer"),
  "executor.backend": _one_of(*BACKENDS),
  "executor.nodes": _NOT_NEGATIVE,
  "executor.address": _PERHAPS_TEXT,
  "executor.workers": _COUNT,
  "executor.timeout_s": _POSITIVE,
  "executor.memory_mb": _MEMORY,
  "executor.unsafe": _SWITCH,
  "hosts.timeout_s": _POSITIVE,
  "train.start_from": _PERHAPS_TEXT,
  "train.steps": _COUNT,
  "train.save_every": _COUNT,
  "train.keep_checkpoints": _COUNT,
  "train.samples_per_step": _NOT_NEGATIVE,
  "train.flag_texts": _SWITCH,
  "train.flag_classifier": _PERHAPS_TEXT,
}
ROLLOUT_CHECKS: dict[str, Check] = {
  **{f"rollout.mesh.{axis}": _ROLLOUT_SIZE for axis in mesh_lib.AXES},
  "rollout.slots": _COUNT,
  "rollout.prompt_buckets": _ASCENDING,
  "rollout.max_tokens": _COUNT,
  "rollout.prefill_tokens": _COUNT,
  "rollout.decode_chunk": _COUNT,
  "rollout.cache_chunk": _COUNT,
  "rollout.extend_chunk": _NOT_NEGATIVE,
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
  "learner.normalize_advantages": _SWITCH,
  "evaluation.every": _NOT_NEGATIVE,
  "evaluation.benchmarks": _PERHAPS_TEXT,
  "evaluation.data": _PERHAPS_TEXT,
  "evaluation.limit": _NOT_NEGATIVE,
  "evaluation.samples": _COUNT,
  "evaluation.prompt_style": _EVALUATED_STYLE,
  "critic.gamma": _PORTION,
  "critic.gae_lambda": _PORTION,
  "critic.updates": _COUNT,
  "critic.value_clip": _NOT_NEGATIVE,
  "critic.head_init": _one_of(*critic.HEAD_INITS),
  **_optimizer_checks("critic.optimizer"),
}
AZR_CHECKS: dict[str, Check] = {
  "azr.task_types": _subset_of(*TASK_TYPES, *EXTRA_TASK_TYPES),
  "azr.batch_size": _COUNT,
  "azr.references": _NOT_NEGATIVE,
  "azr.reference_draw": _one_of("uniform", "recent"),
  "azr.composite_chance": _PORTION,
  "azr.composite_most": _COUNT,
  "azr.strip": _none_or_some_of(*rewriting.STRIPPED),
  "azr.roles": _subset_of(*ROLES),
  "azr.intrinsic": _none_or_some_of(*azr_rewards.INTRINSIC),
  "azr.intrinsic_weights": (
    (lambda v: all(weight > 0 for weight in v)),
    "a tuple of numbers above 0",
  ),
  "azr.aggregation": _one_of(*azr_rewards.AGGREGATIONS),
  "azr.learnability_samples": _COUNT,
  "azr.induction_inputs": _EVEN,
  "azr.seed_factor": _COUNT,
  "azr.seed_rounds": _COUNT,
  "azr.seeds": _PERHAPS_TEXT,
  "azr.max_programs": _COUNT,
  "azr.evict": _one_of(*buffer.EVICTIONS),
  "azr.revisit": _one_of(*buffer.REVISITS),
  "azr.duplicates": _one_of(*azr.DUPLICATES),
  "azr.prompt_style": _one_of(*STYLES),
  "azr.solve_from": _one_of("current", "previous"),
  "azr.unlearnable_reward": _one_of(*azr_rewards.UNLEARNABLE_REWARDS),
  "azr.wrong_reward": _NUMBER,
  "azr.bad_format_reward": _NUMBER,
  "azr.train_on_learnability": _SWITCH,
  "azr.measure_programs": _SWITCH,
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
    (lambda v: not v or (len(v) == 3 and min(v) >= 0 and sum(v) > 0)),
    "() for uniform, or weights of easy, medium and hard",
  ),
  "countdown.proposals": _NOT_NEGATIVE,
  "countdown.references": _NOT_NEGATIVE,
  "countdown.unlearnable_reward": _NUMBER,
  "countdown.bad_proposal_reward": _NUMBER,
}
ORZ_CHECKS: dict[str, Check] = {
  "orz.data": _SOURCES,
  "orz.counts": (
    (lambda v: len(v) > 0 and min(v) >= 0),
    "a tuple of numbers of at least 0",
  ),
  "orz.data_seed": _NOT_NEGATIVE,
  "orz.prompts": _COUNT,
  "orz.samples": _COUNT,
  "orz.prompt_style": _one_of(*mathematics_prompts.STYLES),
  "orz.grader": _one_of(*grader.MODES),
  "orz.length_stopped": _one_of(*orz.LENGTH_STOPPED),
  "orz.health_samples": _COUNT,
}
CODE_INTERPRETER_CHECKS: dict[str, Check] = {
  "code_interpreter.questions": _SOURCES,
  "code_interpreter.count": _COUNT,
  "code_interpreter.data_seed": _NOT_NEGATIVE,
  "code_interpreter.prompts": _COUNT,
  "code_interpreter.samples": _COUNT,
  "code_interpreter.prompt_style": _one_of(*question_prompts.STYLES),
  "code_interpreter.max_calls": _NOT_NEGATIVE,
  "code_interpreter.result_tokens": _COUNT,
  "code_interpreter.libraries": _none_or_some_of(*scripts.LIBRARIES),
  "code_interpreter.form_reward": _NOT_NEGATIVE,
  "code_interpreter.turns_penalty": _NOT_NEGATIVE,
  "code_interpreter.most_turns": _COUNT,
  "code_interpreter.order": _one_of(*potential.ORDERS),
  "code_interpreter.grouping": _one_of(*potential.GROUPINGS),
  "code_interpreter.stage_steps": _COUNT,
  "code_interpreter.measured": _PERHAPS_TEXT,
  "code_interpreter.measure_agents": _subset_of(*AGENTS),
  "code_interpreter.measure_samples": _COUNT,
}
DATA_CHECKS: dict[str, Check] = {
  "data.kind": _one_of(
    "programs", "countdown", "sums", "questions", "trajectories"
  ),
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
    (
      lambda v: (
        len(v) == len(countdown_solutions.SOLUTION_STYLES)
        and min(v) >= 0
        and sum(v) > 0
      )
    ),
    f"a tuple of weights for {countdown_solutions.SOLUTION_STYLES}",
  ),
  "worked.try_share": _DECAY,
  "worked.propose_share": _DECAY,
  "worked.references": _NOT_NEGATIVE,
}
SUMS_CHECKS: dict[str, Check] = {
  "sums.seed": _NOT_NEGATIVE,
  "sums.count": _COUNT,
  "sums.data": _TEXT,
  "sums.manner_shares": (
    (lambda v: len(v) == 3 and min(v) >= 0 and sum(v) > 0),
    f"a tuple of weights for {mathematics_corpus.SOLUTION_STYLES}",
  ),
}
TASKS_CHECKS: dict[str, Check] = {
  "tasks.seed": _NOT_NEGATIVE,
  "tasks.count": _COUNT,
  "tasks.tasks": _SOURCES,
  "tasks.manner_shares": (
    (lambda v: len(v) == 3 and min(v) >= 0 and sum(v) > 0),
    f"a tuple of weights for {question_corpus.SOLUTION_STYLES}",
  ),
  "tasks.free_share": _PORTION,
}
LEARNED_CHECKS: dict[str, Check] = {"learned.path": _TEXT}
TRAIN_CHECKS = COMMON_CHECKS | ROLLOUT_CHECKS | POLICY_CHECKS
SYSTEM_CHECKS = {
  "azr": AZR_CHECKS,
  "countdown": COUNTDOWN_CHECKS,
  "orz": ORZ_CHECKS,
  "code_interpreter": CODE_INTERPRETER_CHECKS,
}
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
  "evaluate.prompt_style": _EVALUATED_STYLE,
  "evaluate.samples": _COUNT,
  "evaluate.agent": _one_of(*AGENTS),
  "evaluate.max_calls": _NOT_NEGATIVE,
  "evaluate.result_tokens": _COUNT,
  "evaluate.libraries": _none_or_some_of(*scripts.LIBRARIES),
}
POTENTIAL_CHECKS = EVALUATE_CHECKS | {
  "potential.questions": _SOURCES,
  "potential.count": _COUNT,
  "potential.data_seed": _NOT_NEGATIVE,
  "potential.agents": _subset_of(*AGENTS),
  "potential.temperatures": (
    (lambda v: len(v) > 0 and min(v) > 0),
    "a tuple of numbers above 0",
  ),
}
TRAJECTORIES_CHECKS = EVALUATE_CHECKS | {
  "trajectories.questions": _SOURCES,
  "trajectories.count": _COUNT,
  "trajectories.data_seed": _NOT_NEGATIVE,
  "trajectories.forms": _subset_of(*question_prompts.FORMS),
  "trajectories.samples": _COUNT,
  "trajectories.per_task": _COUNT,
  "trajectories.multi_turn_weight": (
    lambda v: v >= 1,
    "a number of at least 1",
  ),
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
