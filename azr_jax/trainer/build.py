"""Builds what every system shares from a config."""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import ml_collections
import optax
from jax.sharding import Mesh

from azr_jax.executor import Executor
from azr_jax.learner import critic as critic_lib
from azr_jax.learner import learner as learner_lib
from azr_jax.learner import train_state, update
from azr_jax.learner.advantages import GAE
from azr_jax.models import attention, transformer
from azr_jax.models.config import ModelConfig
from azr_jax.models.tokenizers import Tokenizer
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.parallel.hosts import Hosts
from azr_jax.rollout import engine, token_sampling
from azr_jax.rollout.environment import Outcomes
from azr_jax.rollout.policy import Ask
from azr_jax.rollout.python_tool import PythonTool, PythonToolSettings
from azr_jax.systems.code_interpreter import agents


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


def build_learner(
  config: ml_collections.ConfigDict,
  model: transformer.Transformer,
  mesh: Mesh,
) -> learner_lib.Learner:
  """The policy's learner, with a critic if the estimator needs one."""
  critic = None
  if _has_critic(config):
    c = config.critic
    critic = learner_lib.CriticParts(
      critic_lib.CriticSettings(
        gamma=c.gamma,
        gae_lambda=c.gae_lambda,
        updates=c.updates,
        value_clip=c.value_clip,
        normalize=config.learner.normalize_advantages,
      ),
      _make_optimizer(c.optimizer),
      c.head_init,
      config.seed,
    )
  return learner_lib.make(
    model,
    build_policy_loss(config, model, mesh),
    build_optimizer(config),
    mesh,
    sharding_rules(config),
    critic,
  )


def _has_critic(config: ml_collections.ConfigDict) -> bool:
  return config.learner.get("estimator") == GAE


def abstract_state(
  config: ml_collections.ConfigDict,
  model: transformer.Transformer,
  mesh: Mesh,
  rules: Mapping[str, str | None],
) -> Any:
  """Shapes and shardings of a run's state, of training or of `sft`."""
  critic = (
    _make_optimizer(config.critic.optimizer) if _has_critic(config) else None
  )
  return learner_lib.abstract_state(
    model, build_optimizer(config), mesh, rules, critic
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
  return _make_optimizer(config.optimizer)


def _make_optimizer(
  config: ml_collections.ConfigDict,
) -> optax.GradientTransformation:
  return train_state.make_optimizer(**config.to_dict())


def build_executor(config: ml_collections.ConfigDict) -> Executor:
  """Starts the executor pool."""
  return Executor(**config.executor.to_dict())


def sampler_settings(
  config: ml_collections.ConfigDict,
) -> engine.SamplerSettings:
  """Reads the declared shapes and rules of sampling."""
  c = config.rollout
  return engine.SamplerSettings(
    slots=c.slots,
    prompt_buckets=tuple(c.prompt_buckets),
    max_tokens=c.max_tokens,
    prefill_tokens=c.prefill_tokens,
    decode_chunk=c.decode_chunk,
    cache_chunk=c.cache_chunk,
    stop_strings=tuple(c.stop_strings),
    choice=token_sampling.SamplingParams(c.temperature, c.top_k, c.top_p),
    extend_chunk=c.extend_chunk,
  )


def build_agent(
  config: ml_collections.ConfigDict,
  agent: str,
  tokenizer: Tokenizer,
  executor: Executor,
  hosts: Hosts,
) -> Ask:
  """Builds one of the Code Interpreter's agents, by `config.evaluate`."""
  c = config.evaluate
  settings = PythonToolSettings(
    c.max_calls, c.result_tokens, config.executor.timeout_s, c.libraries
  )
  return agents.make(
    agent,
    PythonTool(settings, tokenizer, executor, hosts),
    Outcomes(executor, hosts),
    c.prompt_style,
  )
