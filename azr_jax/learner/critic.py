"""The critic: a decoder with one bias-free scalar output, and its update.

One training step:
1. `values` computes V of the state before each target with the current critic;
2. `gae.estimate` turns them into advantages and returns, which stay fixed;
3. the critic takes several optimizer steps, one per minibatch;
4. the policy update (`update.py`) uses the same advantages.

Paper: ORZ, section 2.2. Values are aligned as in the published code: the state
before an action ends with the token before it.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import TypeAlias

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Float, Float32, Int, Key

from azr_jax import types
from azr_jax.learner import (
  gae,
  gap,
  masked,
  objective,
  packing,
  preparation,
  segments,
  update,
)
from azr_jax.learner.settings import HEAD_INITS
from azr_jax.learner.train_state import TrainState
from azr_jax.models import transformer
from azr_jax.parallel import compiler
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.types import BoxedParams, Leaf, Metrics, Params

# Name of the critic's parameter [D] that replaces the policy's output head.
HEAD = "value_head"
# Lower bound of a variance, before dividing by it: the variance of advantages
# when they are normalized, and of returns in the explained variance.
MIN_VARIANCE = 1e-8
# Lower bound of a minibatch's share of the loss, before dividing by it. Only a
# minibatch without trained tokens has a smaller share.
MIN_WEIGHT = 1e-12


class ActorCritic(flax.struct.PyTreeNode):
  """The device state that a step updates when there is a critic."""

  policy: TrainState
  critic: TrainState

  @property
  def params(self) -> Params:
    """The policy's parameters, used for sampling."""
    return self.policy.params


class ValueBatch(flax.struct.PyTreeNode):
  """A packed batch with the inputs of the critic's loss.

  Attributes:
    batch: the batch, with the advantages of the policy update.
    old_values: V before the critic's update.
    returns: the targets of V.
  """

  batch: types.Batch
  old_values: Float32[Leaf, "*A B S"]
  returns: Float32[Leaf, "*A B S"]


# Jitted: (critic params, batch) -> (ValueBatch, metrics).
Estimate: TypeAlias = jax.stages.Wrapped
# (ActorCritic, batch, ref_params) -> (ActorCritic, metrics).
ActorCriticUpdate: TypeAlias = Callable[
  [ActorCritic, types.Batch, Params | None], tuple[ActorCritic, Metrics]
]
_Loss: TypeAlias = Callable[
  [Params, ValueBatch, Params | None], tuple[Float[Array, ""], Metrics]
]
# Carry of the loop over minibatches: the train state, then running sums of
# losses, gradient norms, clipped steps and skipped steps.
_Carry: TypeAlias = tuple[
  TrainState,
  Float[Array, ""],
  Float[Array, ""],
  Float[Array, ""],
  Float[Array, ""],
]


def decoder(model: transformer.Transformer) -> transformer.Transformer:
  """Returns the policy's decoder without its output head."""
  config = dataclasses.replace(model.config, tie_embeddings=True)
  return model.clone(config=config)


def abstract_params(model: transformer.Transformer) -> BoxedParams:
  """Returns the critic's parameter shapes, boxed with logical axes."""
  boxed = dict(transformer.abstract_params(decoder(model)))
  shape = jax.ShapeDtypeStruct((model.config.hidden_size,), jnp.float32)
  boxed[HEAD] = nn.LogicallyPartitioned(shape, ("embed",))
  return boxed


def init_params(
  policy_params: Params, key: Key[Array, ""], init: str
) -> Params:
  """Returns a copy of the policy whose output head is replaced by a value head.

  Args:
    policy_params: parameters of the model that policy and critic start from.
    key: random key of the value head; consumed.
    init: `code` draws a normal with deviation 1 / (D + 1), `paper`
      draws uniformly from (-sqrt 5, sqrt 5), as in ORZ's appendix B.

  Raises:
    ValueError: `init` is neither.
  """
  shared = {name: v for name, v in policy_params.items() if name != "head"}
  params = jax.tree.map(jnp.copy, shared)
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
  model: transformer.Transformer, params: Params, batch: types.Batch
) -> Float[Array, "B S"]:
  """Returns V of the state before each target, float32."""
  hidden = objective.hidden_states(decoder(model), params, batch)
  return jnp.einsum("BSD,D->BS", hidden.astype(jnp.float32), params[HEAD])


def value_loss(
  values: Float[Array, "B S"],
  old_values: Float[Array, "B S"],
  returns: Float[Array, "B S"],
  value_clip: float,
) -> Float[Array, "B S"]:
  """Returns half the squared error, with PPO's value clipping.

  max((V - R)^2, (V_old + clip(V - V_old, -c, c) - R)^2) / 2

  Args:
    values: V, by the current critic.
    old_values: V_old, before the critic's update.
    returns: R.
    value_clip: c; 0 disables clipping: (V - R)^2 / 2.
  """
  error = (values - returns) ** 2
  if value_clip:
    change = jnp.clip(values - old_values, -value_clip, value_clip)
    clipped = old_values + change
    error = jnp.maximum(error, (clipped - returns) ** 2)
  return 0.5 * error


def make_estimate(
  model: transformer.Transformer,
  mesh: Mesh,
  *,
  gamma: float,
  gae_lambda: float,
  normalize: bool,
  options: compiler.Options = None,
) -> Estimate:
  """Returns the jitted function that computes advantages and returns.

  Args:
    model: the policy's decoder.
    mesh: the device mesh of the batch.
    gamma: discount factor.
    gae_lambda: as in `gae.estimate`.
    normalize: give advantages mean 0 and deviation 1 over trained tokens.
    options: XLA compiler options.

  Returns:
    `(critic params, batch) -> (ValueBatch, metrics)`. The given batch has
    rewards, the returned one GAE's advantages in their place.
  """
  # Only the row axis is sharded. Merging it with the micro-batch axis would
  # make every device gather the whole batch.
  gae_of_rows = functools.partial(
    gae.estimate, gamma=gamma, gae_lambda=gae_lambda
  )

  def estimate(
    params: Params, batch: types.Batch
  ) -> tuple[ValueBatch, Metrics]:
    def score(index: jax.Array, scores: jax.Array) -> jax.Array:
      micro = update.micro_batch(batch, index)
      return scores.at[index].set(values(model, params, micro))

    count = update.nonempty_micro_batches(batch)
    zeros = jnp.zeros(batch.tokens.shape, jnp.float32)
    old_values = jax.lax.fori_loop(0, count, score, zeros)
    mask, rewards = batch.loss_mask, batch.rewards
    assert rewards is not None
    advantages, returns = jax.vmap(gae_of_rows)(
      old_values, rewards, mask, batch.segment_ids
    )
    metrics = {
      "critic/value": masked.masked_mean(old_values, mask),
      "critic/abs_value": masked.masked_mean(jnp.abs(old_values), mask),
      "critic/return": masked.masked_mean(returns, mask),
      "critic/advantage_std": jnp.sqrt(_variance(advantages, mask)),
      "critic/explained_variance": _explained_variance(
        old_values, returns, mask
      ),
    }
    if normalize:
      advantages = _normalized(advantages, mask)
    metrics |= _of_repetition(old_values, advantages, batch)
    estimated = batch.replace(advantages=advantages, rewards=None)
    return ValueBatch(estimated, old_values, returns), metrics

  by_row = mesh_lib.token_sharding(mesh, axis=1)
  return jax.jit(
    estimate,
    out_shardings=(by_row, mesh_lib.replicated(mesh)),
    compiler_options=options,
  )


def _of_repetition(
  values: Float[Array, "A B S"],
  advantages: Float[Array, "A B S"],
  batch: types.Batch,
) -> Metrics:
  """Returns metrics that show how the critic treats repetition (ORZ, figure 5).

  One is the mean advantage of repeated tokens. The other is the drop in value
  where a response starts to repeat itself: the mean value before that point
  minus the mean from there on, averaged over responses that have both. A metric
  is NaN if no token or response qualifies.
  """
  mask, ids = batch.loss_mask, batch.segment_ids
  repeated = batch.repetition * mask
  # Per micro-batch, as in `make_estimate`.
  means, sums = jax.vmap(segments.means), jax.vmap(segments.sums)
  fall = means(values, mask - repeated, ids) - means(values, repeated, ids)
  count, total = sums(repeated, ids), sums(mask, ids)
  has_both = mask * (count > 0) * (count < total)
  # Every response counts equally, regardless of its length.
  weight = has_both / jnp.maximum(total, 1.0)
  return {
    "critic/advantage_on_repetition": jnp.where(
      jnp.any(repeated > 0),
      masked.masked_mean(advantages, repeated),
      jnp.nan,
    ),
    # 0 / 0 = NaN if there is no such response.
    "critic/value_fall_at_repetition": jnp.sum(weight * fall) / jnp.sum(weight),
  }


def _variance(
  x: Float[Array, "*B"], mask: Float[Array, "*B"]
) -> Float[Array, ""]:
  """Returns the variance of x where mask is 1."""
  mean = masked.masked_mean(x, mask)
  return masked.masked_mean((x - mean) ** 2, mask)


def _explained_variance(
  values: Float[Array, "*B"],
  returns: Float[Array, "*B"],
  mask: Float[Array, "*B"],
) -> Float[Array, ""]:
  """Returns 1 - Var(R - V) / Var(R) where mask is 1; 0 if R is constant."""
  variance = _variance(returns, mask)
  error = _variance(returns - values, mask)
  return jnp.where(
    variance > MIN_VARIANCE,
    1.0 - error / jnp.maximum(variance, MIN_VARIANCE),
    0.0,
  )


def _normalized(
  advantages: Float[Array, "*B"], mask: Float[Array, "*B"]
) -> Float[Array, "*B"]:
  """Returns advantages with mean 0 and deviation 1 where mask is 1, else 0."""
  mean = masked.masked_mean(advantages, mask)
  variance = _variance(advantages, mask)
  scaled = (advantages - mean) / jnp.sqrt(jnp.maximum(variance, MIN_VARIANCE))
  return scaled * mask


def make_update(
  model: transformer.Transformer,
  optimizer: optax.GradientTransformation,
  shardings: TrainState,
  mesh: Mesh,
  *,
  num_minibatches: int,
  value_clip: float,
  grad_clip: float,
  aggregation: str = "token_mean",
  options: compiler.Options = None,
) -> update.Update:
  """Returns jitted `(state, ValueBatch) -> (state, metrics)`; donates `state`.

  The update splits the batch into `num_minibatches` minibatches of consecutive
  micro-batches and takes one optimizer step on the loss of each, aggregated
  like the policy's. A batch with fewer non-empty micro-batches gets one step
  per non-empty micro-batch.

  Args:
    model: the policy's decoder.
    optimizer: takes one step per minibatch.
    shardings: the shardings of the state.
    mesh: the device mesh of the batch.
    num_minibatches: maximum number of optimizer steps per batch.
    value_clip: see `value_loss`.
    grad_clip: the gradient norm above which a step counts as clipped; 0 counts
      none. The optimizer does the clipping.
    aggregation: the aggregation that the batch's loss weights implement.
    options: XLA compiler options.
  """
  loss_fn = _make_loss(model, value_clip)
  max_norm = grad_clip or math.inf

  def critic_update(
    state: TrainState, batch: ValueBatch
  ) -> tuple[TrainState, Metrics]:
    count = update.nonempty_micro_batches(batch.batch)
    steps = jnp.minimum(num_minibatches, count)
    fractions = _fractions(batch.batch, aggregation)

    def one_step(index: jax.Array, carry: _Carry) -> _Carry:
      state, losses, norms, clipped, skipped = carry
      start, stop = index * count // steps, (index + 1) * count // steps
      total, grads = _minibatch_gradients(
        loss_fn, state.params, batch, fractions, start, stop
      )
      norm = optax.tree.norm(grads)
      is_finite = jnp.isfinite(total) & jnp.isfinite(norm)
      state = update.apply(optimizer, state, grads, is_finite)
      return (
        state,
        losses + total,
        norms + norm,
        clipped + (norm > max_norm),
        skipped + 1.0 - is_finite,
      )

    zero = jnp.zeros((), jnp.float32)
    state, losses, norms, clipped, skipped = jax.lax.fori_loop(
      0, steps, one_step, (state, zero, zero, zero, zero)
    )
    tokens = jnp.maximum(jnp.sum(batch.batch.loss_mask), 1.0)
    return state, {
      "critic/value_loss": losses / tokens,
      "critic/grad_norm": norms / jnp.maximum(steps, 1),
      "critic/clipped_fraction": clipped / jnp.maximum(steps, 1),
      "critic/updates": steps.astype(jnp.float32),
      "critic/skipped": skipped,
      "critic/nonfinite": update.count_nonfinite(state),
    }

  by_row = mesh_lib.token_sharding(mesh, axis=1)
  return jax.jit(
    critic_update,
    in_shardings=(shardings, by_row),
    out_shardings=(shardings, mesh_lib.replicated(mesh)),
    donate_argnums=0,
    compiler_options=options,
  )


def _make_loss(model: transformer.Transformer, value_clip: float) -> _Loss:
  """Returns the loss of a micro-batch: its weighted sum, and its plain sum."""

  def loss_fn(
    params: Params, micro: ValueBatch, ref_params: Params | None
  ) -> tuple[jax.Array, Metrics]:
    del ref_params
    loss = value_loss(
      values(model, params, micro.batch),
      micro.old_values,
      micro.returns,
      value_clip,
    )
    weighted = jnp.sum(micro.batch.loss_weights * loss)
    return weighted, {"sum": masked.masked_sum(loss, micro.batch.loss_mask)}

  return loss_fn


def _fractions(batch: types.Batch, aggregation: str) -> Float[Array, " A"]:
  """Returns each micro-batch's share of the batch's loss.

  The share counts sequences if the loss is a mean over the sequences' sums, and
  adds up loss weights otherwise. Dividing a minibatch's loss by its share
  therefore gives the aggregation of that minibatch alone.
  """
  if aggregation in packing.SUMS:
    parts = jnp.sum(jnp.max(batch.segment_ids, axis=-1), axis=-1)
  else:
    parts = jnp.sum(batch.loss_weights, axis=(1, 2))
  parts = parts.astype(jnp.float32)
  return parts / jnp.maximum(jnp.sum(parts), MIN_WEIGHT)


def _minibatch_gradients(
  loss_fn: _Loss,
  params: Params,
  batch: ValueBatch,
  fractions: Float[Array, " A"],
  start: Int[Array, ""],
  stop: Int[Array, ""],
) -> tuple[Float[Array, ""], Params]:
  """Returns the loss and gradients of micro-batches [start, stop).

  The loss is a sum over trained tokens; the gradients follow the batch's
  aggregation.

  Args:
    loss_fn: the loss of a micro-batch.
    params: the critic's parameters.
    batch: all micro-batches.
    fractions: each micro-batch's share of the loss, from `_fractions`.
    start: the first micro-batch.
    stop: one past the last micro-batch.
  """
  _, sums, grads = update.accumulate(loss_fn, params, batch, None, start, stop)
  index = jnp.arange(fractions.shape[0])
  inside = (index >= start) & (index < stop)
  fraction = jnp.maximum(jnp.sum(fractions * inside), MIN_WEIGHT)
  return sums["sum"], jax.tree.map(lambda g: g / fraction, grads)


def make_actor_critic_update(
  estimate: Estimate,
  critic_update: update.Update,
  policy_update: update.Update,
  epochs: int = 1,
  prepare: preparation.Prepare | None = None,
) -> ActorCriticUpdate:
  """Returns `(ActorCritic, batch, ref_params) -> (ActorCritic, metrics)`.

  Runs three programs in sequence; see the module docstring. Advantages and
  returns are estimated once and stay fixed while the critic and policy updates
  run in every epoch, as in PPO.

  Args:
    estimate: computes advantages and returns.
    critic_update: from `make_update`.
    policy_update: from `update.make_update`.
    epochs: number of passes over a batch. Metrics come from the last epoch,
      except the gap to the sampler, which comes from the first.
    prepare: computes the whole-batch inputs of the policy update.
  """

  def learn(
    state: ActorCritic, batch: types.Batch, ref_params: Params | None
  ) -> tuple[ActorCritic, Metrics]:
    value_batch, metrics = estimate(state.critic.params, batch)
    policy, critic = state.policy, state.critic
    policy_batch, prepared = preparation.prepared(
      prepare, policy, value_batch.batch
    )
    metrics |= prepared
    for _ in range(epochs):
      critic, critic_metrics = critic_update(critic, value_batch)
      policy, policy_metrics = policy_update(policy, policy_batch, ref_params)
      policy_metrics = gap.keep_first(metrics, policy_metrics)
      metrics = metrics | critic_metrics | policy_metrics
    return ActorCritic(policy, critic), metrics

  return learn
