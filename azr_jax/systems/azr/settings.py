"""Section `azr` of a configuration: AZR's Table 3, and deviations from it."""

import dataclasses

from azr_jax.config.settings import Settings, setting
from azr_jax.systems.azr.extensions.guide import GuideSettings
from azr_jax.systems.azr.extensions.intrinsic import IntrinsicRewards
from azr_jax.systems.azr.extensions.labels import (
  EXECUTOR,
  LABELS,
  MAJORITY,
  PROPOSER_LABELS,
  RANDOM,
  SAME,
)
from azr_jax.systems.azr.extensions.repetition import RepetitionSettings
from azr_jax.systems.azr.extensions.settings import AppendixSettings
from azr_jax.systems.azr.rewards import UNLEARNABLE_REWARDS, RewardRules
from azr_jax.systems.proposer_rewards import PROPOSER_REWARDS
from azr_jax.tasks.programs import buffer, parsing
from azr_jax.tasks.programs import prompts as prompts_lib
from azr_jax.tasks.programs.task import (
  DEDUCTION,
  ENVIRONMENT,
  EXTRA_TASK_TYPES,
  PROPOSE,
  ROLES,
  SOLVE,
  TASK_TYPES,
)


@dataclasses.dataclass(frozen=True)
class BufferSettings(Settings):
  """The task buffers. The paper keeps every task up to the capacity."""

  max_programs: int = setting(
    16384,
    "capacity of each task type's buffer",
    paper="16384",
    minimum=1,
    expert=True,
  )
  evict: str = setting(
    "newest",
    "which tasks to keep at capacity",
    choices=buffer.EVICTIONS,
    expert=True,
  )
  revisit: str = setting(
    "uniform",
    "which buffered tasks to solve again",
    choices=buffer.REVISITS,
    expert=True,
  )
  duplicates: str = setting(
    "keep",
    "keep or reject proposals that differ from a known task only in names or "
    "layout; environments must always differ",
    paper="keep",
    choices=("keep", "reject"),
    expert=True,
  )


@dataclasses.dataclass(frozen=True)
class AZRSettings(Settings):
  """The constants of Table 3, and switches that deviate from the paper."""

  task_types: tuple[str, ...] = setting(
    TASK_TYPES,
    "task types of self-play; error_deduction is appendix D.1, environment is "
    "EvoEnv's (docs/guide/azr_environments.md)",
    subset_of=(*TASK_TYPES, *EXTRA_TASK_TYPES),
    required=True,
  )
  roles: tuple[str, ...] = setting(
    ROLES,
    "roles to train (Table 2); rollouts that no role needs are not sampled",
    subset_of=ROLES,
    required=True,
    expert=True,
  )
  prompts: int = setting(
    64,
    "B, proposals and solutions per step and task type",
    paper="64",
    minimum=1,
  )
  references: int = setting(
    6,
    "K, earlier tasks shown to the proposer as examples",
    paper="6",
    minimum=0,
  )
  learnability_samples: int = setting(
    8, "n, solver rollouts per valid proposal", paper="8", minimum=1
  )
  induction_inputs: int = setting(
    10,
    "N, input-output cases per induction task; half are shown to the solver",
    paper="10",
    accepts=(
      lambda v: v >= 2 and v % 2 == 0,
      "an even integer of at least 2",
    ),
  )
  seed_factor: int = setting(
    4, "S; seeding stops at B x S tasks per buffer", paper="4", minimum=1
  )
  seed_rounds: int = setting(
    64, "maximum rounds of B seeding prompts per kind of seed", minimum=1
  )
  prompt_format: str = setting(
    "full",
    "prompt wording: in full, shortened, or with examples; unused with "
    "prompts.templates",
    paper="figures 33 to 39; enter them with prompts.templates",
    choices=prompts_lib.PROMPT_FORMATS,
  )
  equality_rule: bool = setting(
    False,
    "tell the solver that values are compared by type (full prompts only); "
    "prompts.templates write {EQUALITY_RULE} instead",
    paper="False",
  )
  answer_format: str = setting(
    parsing.FENCED,
    "answer format: labelled fences, or the one the published code parses",
    paper="fenced (figures 37 to 39)",
    choices=parsing.ANSWER_FORMATS,
    expert=True,
  )
  solve_from: str = setting(
    "current",
    "step whose proposals are solved",
    paper="current; the published code uses previous",
    choices=("current", "previous"),
    expert=True,
  )
  proposer_reward: str = setting(
    "learnability",
    "reward of a valid proposal, by its solve rate (docs/rewards.md)",
    paper="learnability (eq. 4)",
    choices=tuple(PROPOSER_REWARDS),
  )
  unlearnable_reward: str = setting(
    "paper",
    "reward of a valid proposal whose proposer_reward is 0",
    paper="paper: 0 (eq. 4); published_code: -0.5",
    choices=tuple(UNLEARNABLE_REWARDS),
    expert=True,
  )
  wrong_reward: float = setting(
    -0.5,
    "reward of a well-formed wrong answer (eq. 6)",
    paper="-0.5",
    expert=True,
  )
  bad_format_reward: float = setting(
    -1.0, "reward of a malformed response (eq. 6)", paper="-1", expert=True
  )
  labels: str = setting(
    EXECUTOR,
    "reference for grading solutions: the executor, the majority answer, or "
    "chance as a control",
    paper="executor (eq. 5)",
    choices=LABELS,
  )
  proposer_labels: str = setting(
    SAME,
    "reference for grading a proposal's rollouts; labels: same as solutions",
    paper="labels (eq. 4)",
    choices=PROPOSER_LABELS,
    expert=True,
  )
  unverified_fraction: float = setting(
    0.0,
    "epsilon, probability of admitting a deduction task whose program failed",
    paper="0; Survive or Collapse: 0 to 1",
    minimum=0,
    maximum=1,
    expert=True,
  )
  novelty: float = setting(
    0.1,
    "least BLEU distance of a proposed environment to those of its prompt; 0: "
    "only equal ones are rejected",
    minimum=0,
    maximum=1,
    expert=True,
  )
  yoked_to: str = setting(
    "",
    "folder of a run whose tasks to solve, step by step, instead of this run's "
    "proposals",
    expert=True,
  )
  train_on_learnability: bool = setting(
    False, "also train on the learnability rollouts", paper="no"
  )
  measure_programs: bool = setting(
    True, "log complexity and diversity of programs (C.4, C.5)", expert=True
  )
  buffer: BufferSettings = BufferSettings()
  repetition: RepetitionSettings = RepetitionSettings()
  guide: GuideSettings = GuideSettings()
  appendix: AppendixSettings = AppendixSettings()

  @property
  def rewards(self) -> RewardRules:
    """The values of the composite reward (eq. 6), with its extensions."""
    appendix, intrinsic = self.appendix, None
    if appendix.intrinsic:
      intrinsic = IntrinsicRewards(
        appendix.weights,
        appendix.aggregation,
        only_learnable=appendix.intrinsic_for == "learnable",
      )
    return RewardRules(
      unlearnable=UNLEARNABLE_REWARDS[self.unlearnable_reward],
      wrong=self.wrong_reward,
      bad_format=self.bad_format_reward,
      proposer=self.proposer_reward,
      repetition=self.repetition.penalty,
      repetition_distance=self.repetition.distance,
      guide_weight=self.guide.weight,
      intrinsic=intrinsic,
    )

  @property
  def solves_proposals(self) -> bool:
    """Whether a step's valid proposals are solved in the same step."""
    return self.solve_from == "current" and not self.yoked_to

  @property
  def seed_target(self) -> int:
    """B x S, the number of seeds per buffer, at most the capacity."""
    return min(self.prompts * self.seed_factor, self.buffer.max_programs)

  @property
  def _uses_pass_rates(self) -> bool:
    """Whether the buffers select tasks by pass rate."""
    by_rate = "learnable", "potential", "adaptive"
    return self.buffer.evict in by_rate or self.buffer.revisit in by_rate

  @property
  def distinct_types(self) -> tuple[str, ...]:
    """The task types whose proposals must differ from all known tasks."""
    if self.buffer.duplicates == "reject":
      return self.task_types
    return tuple(t for t in self.task_types if t == ENVIRONMENT)

  @property
  def used_learnability_samples(self) -> int:
    """`learnability_samples`, or 0 if nothing uses them."""
    learned = SOLVE in self.roles and self.train_on_learnability
    if PROPOSE in self.roles or learned or self._uses_pass_rates:
      return self.learnability_samples
    return 0

  @property
  def uses_guide(self) -> bool:
    """Whether a guide grades proposals."""
    return self.guide.weight > 0 and PROPOSE in self.roles

  @property
  def uses_solutions(self) -> bool:
    """Whether anything uses the solutions."""
    return SOLVE in self.roles or self._uses_pass_rates

  def check(self) -> None:
    """Rejects settings that contradict each other."""
    is_voting = (
      MAJORITY in (self.labels, self.proposer_labels)
      or self.unverified_fraction > 0
    )
    if is_voting and self.learnability_samples < 2:
      raise self.invalid(
        "learnability_samples",
        f"at least 2 votes for a label, with labels={self.labels!r}, "
        f"proposer_labels={self.proposer_labels!r} and "
        f"unverified_fraction={self.unverified_fraction}",
      )
    if is_voting and ENVIRONMENT in self.task_types:
      raise self.invalid(
        "task_types",
        f"none of {ENVIRONMENT!r} with labels={self.labels!r}, "
        f"proposer_labels={self.proposer_labels!r} and "
        f"unverified_fraction={self.unverified_fraction}",
      )
    if self.unverified_fraction and DEDUCTION not in self.task_types:
      raise self.invalid(
        "unverified_fraction",
        f"0 without {DEDUCTION!r} in task_types={self.task_types}",
      )
    self._check_controls()
    if self.appendix.intrinsic and not self.measure_programs:
      raise self.invalid(
        "measure_programs",
        f"True with appendix.intrinsic={self.appendix.intrinsic!r}",
      )

  def _check_controls(self) -> None:
    """Rejects what would undo a control: a yoked run, or random labels."""
    control = "yoked_to" if self.yoked_to else ""
    if self.labels == RANDOM:
      control = f"labels={RANDOM!r}"
    if control and self.unverified_fraction:
      raise self.invalid("unverified_fraction", f"0 with {control}")
    if self.labels == RANDOM and self._uses_pass_rates:
      raise self.invalid(
        "buffer",
        f"no selection by pass rate with {control}, whose rates are random",
      )
    if self.yoked_to and self.train_on_learnability:
      raise self.invalid("train_on_learnability", "False with yoked_to")
    if self.yoked_to and self.labels == MAJORITY:
      raise self.invalid("labels", "executor or random with yoked_to")
