"""The critic: a decoder of its own with one bias-free output, and its update.

The life of a batch here:
1. `values`: V of the state before each target, by the critic as it is;
2. `gae.estimate`: advantages and returns, fixed from now on;
3. several optimizer steps on parts of the batch;
4. the policy's update, by `update.py`, with these advantages.

Paper: seed 002, section 2.2. Values are aligned as in the published code: the
state before an action ends with the token before it.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Float

from azr_jax import types
from azr_jax.learner import gae, masked, update
from azr_jax.learner.settings import HEAD_INITS, CriticSettings
from azr_jax.learner.train_state import TrainState
from azr_jax.models import transformer
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.types import Leaf

HEAD = "value_head"
# Of advantages, before they are divided by their deviation.
_LEAST_VARIANCE = 1e-8


class ActorCritic(flax.struct.PyTreeNode):
  """What a step changes on the device when there is a critic."""

  policy: TrainState
  critic: TrainState

  @property
  def params(self) -> Any:
    """The policy's parameters, which sampling needs."""
    return self.policy.params


class ValueBatch(flax.struct.PyTreeNode):
  """A packed batch with what the critic's loss needs; [A, rows, length]."""

  batch: types.Batch
  old_values: Leaf
  returns: Leaf


def decoder(model: transformer.Transformer) -> transformer.Transformer:
  """The policy's decoder without a head of its own, which no critic needs."""
  config = dataclasses.replace(model.config, tie_embeddings=True)
  return model.clone(config=config)


def abstract_params(model: transformer.Transformer) -> Any:
  """The critic's parameter tree as shapes boxed with logical axes."""
  boxed = dict(transformer.abstract_params(decoder(model)))
  shape = jax.ShapeDtypeStruct((model.config.hidden_size,), jnp.float32)
  boxed[HEAD] = nn.LogicallyPartitioned(shape, ("embed",))
  return boxed


def init_params(policy_params: Any, key: jax.Array, init: str) -> Any:
  """A copy of the policy with a value head in place of its output head.

  Args:
    policy_params: of the model that both start from.
    key: draws the head.
    init: `paper`: uniform in (-sqrt 5, sqrt 5); `code`: normal with deviation
      1 / (D + 1), which is what ran.
  """
  kept = {name: v for name, v in policy_params.items() if name != "head"}
  params = jax.tree.map(jnp.copy, kept)
  size = policy_params["embedding"].shape[1]
  if init == "paper":
    limit = 5.0**0.5
    head = jax.random.uniform(key, (size,), jnp.float32, -limit, limit)
  elif init == "code":
    head = jax.random.normal(key, (size,), jnp.float32) / (size + 1)
  else:
    raise ValueError(f"head_init={init!r}: expected one of {HEAD_INITS}")
  return params | {HEAD: head}


def values(
  model: transformer.Transformer, params: Any, batch: types.Batch
) -> Float[Array, "B S"]:
  """V of the state before each target, float32."""
  hidden = update.hidden_states(decoder(model), params, batch)
  return jnp.einsum("bsd,d->bs", hidden.astype(jnp.float32), params[HEAD])


def value_loss(
  values: Float[Array, "B S"],
  old_values: Float[Array, "B S"],
  returns: Float[Array, "B S"],
  value_clip: float,
) -> Float[Array, "B S"]:
  """Half the squared error; clipped, the larger of both ways (PPO)."""
  error = (values - returns) ** 2
  if value_clip:
    near = old_values + jnp.clip(values - old_values, -value_clip, value_clip)
    error = jnp.maximum(error, (near - returns) ** 2)
  return 0.5 * error


def make_estimate(
  model: transformer.Transformer,
  settings: CriticSettings,
  mesh: Mesh,
  normalize: bool,
) -> Any:
  """Returns jitted `(critic params, batch) -> (ValueBatch, metrics)`.

  The batch that goes in has each sequence's reward for advantages; the one
  that comes out has its advantages.
  """

  def estimate(
    params: Any, batch: types.Batch
  ) -> tuple[ValueBatch, update.Metrics]:
    def score(index: jax.Array, found: jax.Array) -> jax.Array:
      micro = update.micro_batch(batch, index)
      return found.at[index].set(values(model, params, micro))

    shape = batch.tokens.shape
    live = update.live_micro_batches(batch)
    found = jax.lax.fori_loop(0, live, score, jnp.zeros(shape, jnp.float32))
    flat = (-1, shape[-1])
    advantages, returns = gae.estimate(
      found.reshape(flat),
      batch.advantages.reshape(flat),
      batch.loss_mask.reshape(flat),
      batch.segment_ids.reshape(flat),
      gamma=settings.gamma,
      gae_lambda=settings.gae_lambda,
    )
    advantages, returns = advantages.reshape(shape), returns.reshape(shape)
    mask = batch.loss_mask
    spread = _variance(returns, mask)
    error = _variance(returns - found, mask)
    metrics = {
      "critic/value": masked.masked_mean(found, mask),
      "critic/return": masked.masked_mean(returns, mask),
      "critic/advantage_std": jnp.sqrt(_variance(advantages, mask)),
      "critic/explained_variance": jnp.where(
        spread > _LEAST_VARIANCE,
        1.0 - error / jnp.maximum(spread, _LEAST_VARIANCE),
        0.0,
      ),
    }
    if normalize:
      advantages = _normalized(advantages, mask)
    metrics["critic/advantage_on_repetition"] = masked.masked_mean(
      advantages, batch.repetition * mask
    )
    return ValueBatch(
      batch.replace(advantages=advantages), found, returns
    ), metrics

  by_row = mesh_lib.batch_sharding(mesh, axis=1)
  return jax.jit(estimate, out_shardings=(by_row, mesh_lib.replicated(mesh)))


def _variance(x: jax.Array, mask: jax.Array) -> jax.Array:
  mean = masked.masked_mean(x, mask)
  return masked.masked_mean((x - mean) ** 2, mask)


def _normalized(advantages: jax.Array, mask: jax.Array) -> jax.Array:
  mean = masked.masked_mean(advantages, mask)
  variance = _variance(advantages, mask)
  scaled = (advantages - mean) / jnp.sqrt(
    jnp.maximum(variance, _LEAST_VARIANCE)
  )
  return scaled * mask


def make_update(
  model: transformer.Transformer,
  settings: CriticSettings,
  optimizer: optax.GradientTransformation,
  shardings: TrainState,
  mesh: Mesh,
) -> update.Update:
  """Returns jitted `(state, ValueBatch) -> (state, metrics)`; donates state."""

  def loss_fn(
    params: Any, micro: ValueBatch, unused: None
  ) -> tuple[jax.Array, update.Metrics]:
    del unused
    loss = value_loss(
      values(model, params, micro.batch),
      micro.old_values,
      micro.returns,
      settings.value_clip,
    )
    total = masked.masked_sum(loss, micro.batch.loss_mask)
    return total, {}

  def learn(
    state: TrainState, batch: ValueBatch
  ) -> tuple[TrainState, update.Metrics]:
    live = update.live_micro_batches(batch.batch)
    steps = jnp.minimum(settings.num_minibatches, live)

    def one_step(index: jax.Array, carry: Any) -> Any:
      state, losses, norms = carry
      part = index * live // steps, (index + 1) * live // steps
      total, _, grads = update.accumulate(
        loss_fn, state.params, batch, None, *part
      )
      inside = jnp.arange(batch.returns.shape[0])
      inside = (inside >= part[0]) & (inside < part[1])
      tokens = jnp.maximum(
        jnp.sum(batch.batch.loss_mask * inside[:, None, None]), 1.0
      )
      grads = jax.tree.map(lambda g: g / tokens, grads)
      norm = optax.tree.norm(grads)
      return update.apply(optimizer, state, grads), losses + total, norms + norm

    zero = jnp.zeros((), jnp.float32)
    state, losses, norms = jax.lax.fori_loop(
      0, steps, one_step, (state, zero, zero)
    )
    tokens = jnp.maximum(jnp.sum(batch.batch.loss_mask), 1.0)
    return state, {
      "critic/value_loss": losses / tokens,
      "critic/grad_norm": norms / jnp.maximum(steps, 1),
      "critic/updates": steps.astype(jnp.float32),
    }

  by_row = mesh_lib.batch_sharding(mesh, axis=1)
  return jax.jit(
    learn,
    in_shardings=(shardings, by_row),
    out_shardings=(shardings, mesh_lib.replicated(mesh)),
    donate_argnums=0,
  )


def make_actor_critic_update(
  estimate: Callable[..., Any],
  critic_update: update.Update,
  policy_update: update.Update,
) -> Callable[..., Any]:
  """Returns `(ActorCritic, batch, ref_params) -> (ActorCritic, metrics)`.

  Three programs, one after the other: see the module's docstring.
  """

  def learn(
    state: ActorCritic, batch: types.Batch, ref_params: Any
  ) -> tuple[ActorCritic, update.Metrics]:
    valued, found = estimate(state.critic.params, batch)
    critic, learned = critic_update(state.critic, valued)
    policy, improved = policy_update(state.policy, valued.batch, ref_params)
    return ActorCritic(policy, critic), found | learned | improved

  return learn
