"""Sections `learner`, `optimizer` and `critic` of a configuration."""

import dataclasses

from azr_jax.config.settings import Settings, setting
from azr_jax.learner import advantages, kl_estimators, packing, policy_losses
from azr_jax.learner import corrections as corrections_lib
from azr_jax.learner import moments as moments_lib
from azr_jax.learner.corrections import CorrectionSettings
from azr_jax.learner.entropy_target import EntropyTargetSettings
from azr_jax.learner.policy_losses import PolicyLossSettings

# The old policy of the probability ratios: the policy at the update's start, or
# the sampler.
PROXIMAL, SAMPLED = "proximal", "sampled"
DECAYS = ("cosine", "linear")
HEAD_INITS = ("code", "paper")
# What a run may do when a loss or gradient is not finite.
STOP, SKIP = "stop", "skip"


def _nonfinite() -> str:
  return setting(
    STOP,
    "on a non-finite loss or gradient: stop the run, or skip the update",
    choices=(STOP, SKIP),
  )


def _max_sequences_per_row() -> int:
  return setting(
    packing.MAX_SEQUENCES_PER_ROW,
    "maximum number of sequences per packed row; cuDNN reserves memory for "
    "each",
    minimum=1,
  )


@dataclasses.dataclass(frozen=True)
class OptimizerSettings(Settings):
  """AdamW, or Muon for the layers' matrices, with warm-up and decay."""

  learning_rate: float = setting(1e-6, "peak learning rate of AdamW", above=0)
  muon_learning_rate: float = setting(
    0.0,
    "peak learning rate of Muon for the layers' matrices; 0 uses AdamW for all",
    minimum=0,
    expert=True,
  )
  warmup_steps: int = setting(
    0, "updates until the learning rate reaches its peak", minimum=0
  )
  decay_steps: int = setting(
    0,
    "updates until the learning rate reaches its final value; 0: constant",
    minimum=0,
  )
  decay: str = setting(
    "cosine", "shape of the learning rate decay", choices=DECAYS
  )
  final_learning_rate: float = setting(
    0.0, "learning rate of AdamW from decay_steps on", minimum=0
  )
  b1: float = setting(
    0.9, "decay of the first moment", minimum=0, below=1, expert=True
  )
  b2: float = setting(
    0.999, "decay of the second moment", minimum=0, below=1, expert=True
  )
  weight_decay: float = setting(0.01, "decoupled weight decay", minimum=0)
  decay_vectors: bool = setting(
    False,
    "decay norms and biases too, not only matrices",
    expert=True,
  )
  grad_clip: float = setting(
    1.0, "maximum global norm of the gradient; 0: no clipping", minimum=0
  )
  moments: str = setting(
    moments_lib.FLOAT32,
    "storage of the moments: 8, 4 or 2.25 bytes per parameter of the layers; "
    "bfloat16 and int8 are rounded stochastically",
    choices=moments_lib.KINDS,
  )

  def check(self) -> None:
    """Rejects a decay that ends before the warm-up does."""
    if 0 < self.decay_steps <= self.warmup_steps:
      raise self.invalid(
        "decay_steps", f"0 or more than warmup_steps={self.warmup_steps}"
      )


@dataclasses.dataclass(frozen=True)
class SupervisedSettings(Settings):
  """Section `learner` of supervised training; its loss is a token mean."""

  row_length: int = setting(192, "tokens per packed row", minimum=1)
  max_sequences_per_row: int = _max_sequences_per_row()
  micro_rows: int = setting(12, "rows per optimizer step", minimum=1)
  chunk_tokens: int = setting(
    2304, "tokens whose logits are in memory at once", minimum=1
  )
  nonfinite: str = _nonfinite()


@dataclasses.dataclass(frozen=True)
class LearnerSettings(PolicyLossSettings):
  """Advantages, loss and packing of the policy's update."""

  estimator: str = setting(
    "trr++",
    "advantage estimator",
    choices=(*advantages.ESTIMATORS, advantages.GAE),
    or_named=advantages.load,
  )
  pass_k: int = setting(
    4,
    "k of the pass@k estimator, which scores the best of k responses",
    minimum=1,
    expert=True,
  )
  drop_equal_groups: bool = setting(
    False, "drop groups with equal rewards: all their advantages are 0"
  )
  normalize_advantages: bool = setting(
    False,
    "normalize advantages to mean 0, standard deviation 1 over trained tokens",
  )
  aggregation: str = setting(
    "token_mean",
    "how token losses (the critic's too) are reduced to one (packing.py)",
    paper="AZR (eq. 9), R1-CI: sequence_mean; ORZ (eq. 2, 3), Countdown: "
    "sequence_sum",
    choices=packing.AGGREGATIONS,
  )
  regularizer_aggregation: str = setting(
    "token_mean",
    "how the entropy and KL terms of tokens are reduced to one",
    choices=packing.AGGREGATIONS,
  )
  group_mean_size: int = setting(
    0,
    "responses that group_mean averages together, as a micro-batch of the "
    "published code; the loss is the mean of these means; 0: a whole group",
    paper="AZR's published code: 16",
    minimum=0,
    expert=True,
  )
  policy_loss: str = setting(
    "clipped",
    "policy loss per token (policy_losses.py)",
    choices=tuple(policy_losses.POLICY_LOSSES),
    or_named=policy_losses.load,
  )
  ratio_to: str = setting(
    PROXIMAL,
    "denominator of the ratios: the policy at the update's start (proximal), "
    "or the policy that sampled (sampled)",
    choices=(PROXIMAL, SAMPLED),
    expert=True,
  )
  correction: str = setting(
    corrections_lib.AUTO,
    "importance weights for off-policy samples (corrections.py); auto "
    "truncates if rollout.max_staleness or step_tokens is above 0 or rollouts "
    "are quantized, unless the loss itself weighs by p / q",
    choices=(
      corrections_lib.AUTO,
      corrections_lib.NONE,
      *corrections_lib.KINDS,
    ),
  )
  corrections: CorrectionSettings = CorrectionSettings()
  top_entropy_fraction: float = setting(
    1.0,
    "fraction of tokens, those of highest entropy, that the policy loss uses",
    above=0,
    maximum=1,
    expert=True,
  )
  entropy_coef: float = setting(
    0.001, "weight of the entropy bonus", paper="AZR: 0.001", minimum=0
  )
  entropy_target: EntropyTargetSettings = EntropyTargetSettings()
  kl_coef: float = setting(
    0.0, "weight of the KL penalty", paper="AZR: none", minimum=0
  )
  kl_estimator: str = setting(
    "k3",
    "KL estimator per token; full sums over the whole vocabulary",
    choices=(*kl_estimators.KL_ESTIMATORS, kl_estimators.FULL_KL),
  )
  kl_in: str = setting(
    "loss",
    "what the KL penalty is part of: the loss, or each token's reward, where "
    "the policy is the one that sampled the token, even a stale one",
    paper="ORZ, figure 3: both, against none",
    choices=("loss", "reward"),
    expert=True,
  )
  epochs: int = setting(
    1,
    "passes over each batch; advantages are computed once",
    paper="AZR, ORZ: 1",
    minimum=1,
  )
  minibatches: int = setting(
    1,
    "optimizer steps of the policy per batch and epoch, each on a random part "
    "of the responses; advantages and old log-probabilities stay fixed",
    paper="AZR, ORZ: 1; R1-CI: not stated (its framework: batches of 256)",
    minimum=1,
  )
  row_length: int = setting(384, "tokens per packed row", minimum=1)
  max_sequences_per_row: int = _max_sequences_per_row()
  micro_rows: int = setting(
    8,
    "rows per micro-batch; at most the number of responses per step",
    minimum=1,
  )
  max_micro_batches: int = setting(
    16,
    "micro-batches that the update is compiled for; a step that needs more "
    "compiles again",
    minimum=1,
  )
  chunk_tokens: int = setting(
    1024, "tokens whose logits are in memory at once", minimum=1
  )
  nonfinite: str = _nonfinite()

  def check(self) -> None:
    """Rejects settings that would have no effect."""
    loss = policy_losses.load(self.policy_loss)
    steps = self.epochs * self.minibatches
    if loss.is_penalty and self.ratio_to == PROXIMAL and steps == 1:
      raise self.invalid(
        "policy_loss",
        "learner.epochs or learner.minibatches above 1, or "
        "learner.ratio_to='sampled' with it, because its penalty is 0 where "
        "all ratios are 1",
      )
    reductions = (self.aggregation, self.regularizer_aggregation)
    if self.group_mean_size and packing.GROUP_MEAN not in reductions:
      raise self.invalid(
        "group_mean_size",
        f"0 unless learner.aggregation={packing.GROUP_MEAN!r}",
      )
    if self.minibatches > self.max_micro_batches:
      raise self.invalid(
        "max_micro_batches",
        f"at least learner.minibatches={self.minibatches}, because each has "
        "micro-batches of its own",
      )
    if self.kl_in == "reward":
      if not self.kl_coef:
        raise self.invalid("kl_in", "'loss' with learner.kl_coef=0")
      if self.estimator != advantages.GAE:
        raise self.invalid(
          "kl_in",
          f"'loss' with learner.estimator={self.estimator!r}, because a "
          f"response has one reward; {advantages.GAE!r} has one per token",
        )
      if self.kl_estimator == kl_estimators.FULL_KL:
        raise self.invalid(
          "kl_estimator", "k1, k2 or k3 with learner.kl_in='reward'"
        )
    if self.drop_equal_groups and self.estimator in advantages.WITHOUT_GROUPS:
      raise self.invalid(
        "drop_equal_groups",
        f"False with learner.estimator={self.estimator!r}, whose advantages "
        "are not 0 in a group of equal reward",
      )

  @property
  def needs_proximal(self) -> bool:
    """Whether ratios need the log-probabilities at the update's start."""
    is_weighted = policy_losses.load(self.policy_loss).is_weighted
    has_steps = self.epochs * self.minibatches > 1
    return has_steps and self.ratio_to == PROXIMAL and not is_weighted

  @property
  def kl_loss_coef(self) -> float:
    """Weight of the KL penalty in the loss."""
    return self.kl_coef if self.kl_in == "loss" else 0.0

  @property
  def kl_reward_coef(self) -> float:
    """Weight of the KL penalty in each token's reward."""
    return self.kl_coef if self.kl_in == "reward" else 0.0

  @property
  def is_weighted(self) -> bool:
    """Whether the loss weighs samples by their sampling probability."""
    is_weighted = policy_losses.load(self.policy_loss).is_weighted
    return is_weighted or self.ratio_to == SAMPLED

  @property
  def target_entropy(self) -> EntropyTargetSettings | None:
    """The entropy target, or None if there is none."""
    return self.entropy_target if self.entropy_target.nats else None


@dataclasses.dataclass(frozen=True)
class CriticSettings(Settings):
  """The critic of `learner.estimator = "gae"`; the defaults are ORZ's."""

  gamma: float = setting(
    1.0, "discount factor", paper="1", minimum=0, maximum=1, expert=True
  )
  gae_lambda: float = setting(
    1.0, "lambda of GAE", paper="1", minimum=0, maximum=1
  )
  num_minibatches: int = setting(
    12,
    "optimizer steps per batch; at most its number of micro-batches (the "
    "metric critic/updates shows the actual number)",
    paper="12",
    minimum=1,
    expert=True,
  )
  value_clip: float = setting(
    0.0,
    "values are clipped to this distance from the old values; 0: no clipping",
    paper="none (eq. 3); the published code has 0.2",
    minimum=0,
  )
  head_init: str = setting(
    "code",
    "initialization of the value head. code: N(0, 1/(D+1)), first "
    "values near 0; paper: U(-sqrt 5, sqrt 5), first values of about 40 at "
    "135M parameters",
    paper="paper (appendix B)",
    choices=HEAD_INITS,
    expert=True,
  )
  source: str = setting(
    "",
    "critic to start from: a folder of azr_jax.export --critic, or "
    "hf:OWNER/NAME; empty: a copy of the policy with a new head",
    expert=True,
  )
  optimizer: OptimizerSettings = OptimizerSettings(
    learning_rate=5e-6, b2=0.95, weight_decay=0.0
  )
