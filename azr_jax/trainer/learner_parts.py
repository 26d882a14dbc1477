"""Builds a policy's learner, and what makes its batches."""

import functools

import jax
from jax.sharding import Mesh

from azr_jax.learner import (
  advantages,
  averaging,
  corrections,
  distillation,
  objective,
  packing,
  policy_losses,
  preparation,
  rounding,
  shaping,
)
from azr_jax.learner import critic as critic_lib
from azr_jax.learner import learner as learner_lib
from azr_jax.learner.entropy_target import EntropyTarget
from azr_jax.learner.learner import Learner
from azr_jax.learner.optimizer import make_optimizer
from azr_jax.learner.rounding import Draws
from azr_jax.models import transformer
from azr_jax.models.config import ModelConfig
from azr_jax.models.tokenizers import Tokenizer
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.trainer.batching import Batching
from azr_jax.trainer.settings import TrainSettings
from azr_jax.trainer.teacher_prompts import TeacherPrompts


def build_learner(
  c: TrainSettings,
  model: transformer.Transformer,
  mesh: Mesh,
  teacher: transformer.Transformer | None = None,
) -> Learner:
  """Builds the policy's learner, with a critic if the estimator needs one.

  Args:
    c: the run's settings.
    model: the policy's decoder.
    mesh: the mesh of state and batch.
    teacher: the decoder of a teacher that is another model.
  """
  critic = None
  if c.learner.estimator == advantages.GAE:
    critic = learner_lib.CriticParts(
      make_optimizer(
        **vars(c.critic.optimizer), draws=Draws(c.seed, rounding.CRITIC)
      ),
      gamma=c.critic.gamma,
      gae_lambda=c.critic.gae_lambda,
      num_minibatches=c.critic.num_minibatches,
      value_clip=c.critic.value_clip,
      grad_clip=c.critic.optimizer.grad_clip,
      head_init=c.critic.head_init,
      normalize=c.learner.normalize_advantages,
      seed=c.seed,
      aggregation=c.learner.aggregation,
      penalty=_build_penalty(c, model, mesh),
    )
  optimizer = make_optimizer(**vars(c.optimizer), draws=Draws(c.seed))
  if c.distill.keeps_average:
    optimizer = averaging.averaged(optimizer, c.distill.average_rate)
  target = c.learner.target_entropy
  options = c.compiler.options(mesh)
  return learner_lib.make(
    model,
    build_policy_loss(c, model, mesh, teacher),
    optimizer,
    mesh,
    c.sharding.rules(),
    critic=critic,
    epochs=c.learner.epochs,
    minibatches=c.learner.minibatches,
    options=options,
    prepare=build_preparation(c, model, mesh),
    entropy_target=EntropyTarget(**vars(target)) if target else None,
    base_dtype=c.lora.matrix_dtype(c.model.dtype),
    seed=c.seed,
  )


def build_policy_loss(
  c: TrainSettings,
  model: transformer.Transformer,
  mesh: Mesh,
  teacher: transformer.Transformer | None = None,
) -> objective.MicroLoss:
  """Builds the loss that `learner`, `distill` and the temperature describe.

  The arguments are those of `build_learner`.
  """
  learner = c.learner
  return objective.make_policy_loss(
    model,
    policy_losses.make(learner.policy_loss, learner),
    temperature=c.rollout.temperature,
    chunk_tokens=learner.chunk_tokens,
    mesh=mesh,
    entropy_coef=learner.entropy_coef,
    kl_coef=learner.kl_loss_coef,
    kl_estimator=learner.kl_estimator,
    ratio_to=learner.ratio_to,
    correct=corrections.make(c.correction, learner.corrections),
    distill=distillation.make(
      teacher or model,
      loss=c.distill.loss,
      weight=c.distill.weight,
      policy_weight=c.distill.policy_weight,
      teacher=c.distill.teacher,
      top_k=c.distill.top_k,
      temperature=c.rollout.temperature,
      chunk_tokens=learner.chunk_tokens,
      mesh=mesh,
    ),
  )


def build_preparation(
  c: TrainSettings, model: transformer.Transformer, mesh: Mesh
) -> preparation.Prepare | None:
  """Builds the batch preparation that `learner` needs, or returns None."""
  learner = c.learner
  return preparation.make_prepare(
    model,
    temperature=c.rollout.temperature,
    chunk_tokens=learner.chunk_tokens,
    mesh=mesh,
    seed=c.seed,
    needs_proximal=learner.needs_proximal,
    top_entropy_fraction=learner.top_entropy_fraction,
    choose=policy_losses.make(learner.policy_loss, learner).choose,
    options=c.compiler.options(mesh),
  )


def _build_penalty(
  c: TrainSettings, model: transformer.Transformer, mesh: Mesh
) -> critic_lib.Penalty | None:
  """Builds the KL penalty of rewards; None without one."""
  if not c.learner.kl_reward_coef:
    return None
  return critic_lib.make_kl_penalty(
    model,
    coef=c.learner.kl_reward_coef,
    estimator=c.learner.kl_estimator,
    temperature=c.rollout.temperature,
    chunk_tokens=c.learner.chunk_tokens,
    mesh=mesh,
  )


def build_scores(
  c: TrainSettings, model: transformer.Transformer, mesh: Mesh
) -> preparation.Scores:
  """Builds the scoring of batches at the sampling temperature, jitted."""
  return jax.jit(
    preparation.make_scores(
      model,
      c.learner.chunk_tokens,
      temperature=c.rollout.temperature,
      mesh=mesh,
    ),
    compiler_options=c.compiler.options(mesh),
  )


def replay_of(
  c: TrainSettings, config: ModelConfig
) -> packing.RouterReplay | None:
  """Returns what packs the sampler's experts; None without router replay."""
  if config.experts is None or not c.rollout.router_replay:
    return None
  return packing.RouterReplay(config.num_layers, config.experts)


def build_batching(
  c: TrainSettings,
  mesh: Mesh,
  config: ModelConfig,
  tokenizer: Tokenizer,
  teacher: ModelConfig | None = None,
) -> Batching:
  """Builds the host's part of a step between rollouts and update.

  Args:
    c: the run's settings.
    mesh: the mesh of the batch.
    config: the policy's config.
    tokenizer: the policy's tokenizer.
    teacher: the config of a teacher that is another model.
  """
  learner = c.learner
  return Batching(
    functools.partial(
      shaping.shape_rewards,
      overlong_buffer=c.shaping.overlong_buffer,
      overlong_penalty=c.shaping.overlong_penalty,
      mask_truncated=c.shaping.mask_truncated,
      longest=c.rollout.max_tokens,
    ),
    drops_equal_groups=learner.drop_equal_groups,
    estimator=learner.estimator,
    normalize_advantages=learner.normalize_advantages,
    pass_k=learner.pass_k,
    row_length=learner.row_length,
    max_sequences_per_row=learner.max_sequences_per_row,
    micro_rows=mesh_lib.padded_rows(learner.micro_rows, mesh),
    max_micro_batches=learner.max_micro_batches,
    aggregation=learner.aggregation,
    regularizer_aggregation=learner.regularizer_aggregation,
    group_mean_size=learner.group_mean_size,
    minibatches=learner.minibatches,
    seed=c.seed,
    replay=replay_of(c, config),
    teacher=_build_teacher(c, tokenizer, (teacher or config).vocab_size),
  )


def _build_teacher(
  c: TrainSettings, tokenizer: Tokenizer, vocab_size: int
) -> TeacherPrompts | None:
  """Builds the writer of the teacher's prompts; None without distillation."""
  distill = c.distill
  if not distill.weight:
    return None
  return TeacherPrompts(
    tokenizer,
    distill.context,
    {name: getattr(distill, f"{name}_text") for name in distillation.CONTEXTS},
    distill.success_reward,
    distill.text_tokens,
    c.teacher_row_length,
    vocab_size,
    reads_all=bool(distill.other_model),
  )
