"""The critic's estimates: values, and the advantages that follow from them.

One training step (`actor_critic.py`):
1. `value_model.values` computes V of the state before each target with the
   current critic;
2. `gae.estimate` turns them into advantages and returns, which stay fixed;
3. the critic takes several optimizer steps, one per minibatch
   (`critic_update.py`);
4. the policy update (`update.py`) uses the same advantages.

Paper: ORZ, section 2.2.
"""

import functools
from collections.abc import Callable
from typing import TypeAlias

import flax.struct
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Float, Float32

from azr_jax import types
from azr_jax.learner import (
  gae,
  kl_estimators,
  masked,
  preparation,
  segments,
  update,
  value_model,
)
from azr_jax.models import transformer
from azr_jax.parallel import compiler
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.types import Leaf, Metrics, Params

# Lower bound of a variance, before dividing by it: the variance of advantages
# when they are normalized, and of returns in the explained variance.
MIN_VARIANCE = 1e-8


# (reference params, batch) -> penalty of each target.
Penalty: TypeAlias = Callable[[Params, types.Batch], Float[Array, "A B S"]]


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


class Estimates(flax.struct.PyTreeNode):
  """What a critic estimates for each target of a batch.

  Attributes:
    advantages: GAE's advantages.
    old_values, returns: as in `ValueBatch`.
  """

  advantages: Float32[Leaf, "*A B S"]
  old_values: Float32[Leaf, "*A B S"]
  returns: Float32[Leaf, "*A B S"]

  def of(self, batch: types.Batch) -> ValueBatch:
    """Returns the batch with advantages in place of rewards, and values."""
    estimated = batch.replace(advantages=self.advantages, rewards=None)
    return ValueBatch(estimated, self.old_values, self.returns)


# Jitted: (critic params, batch) -> (Estimates, metrics). With a KL penalty,
# the reference's parameters are the third argument.
Estimate: TypeAlias = jax.stages.Wrapped


def make_estimate(
  model: transformer.Transformer,
  mesh: Mesh,
  *,
  gamma: float,
  gae_lambda: float,
  normalize: bool,
  penalty: Penalty | None = None,
  options: compiler.Options = None,
) -> Estimate:
  """Returns the jitted function that computes advantages and returns.

  Args:
    model: the policy's decoder.
    mesh: the device mesh of the batch.
    gamma: discount factor.
    gae_lambda: as in `gae.estimate`.
    normalize: give advantages mean 0 and deviation 1 over trained tokens.
    penalty: from `make_kl_penalty`. None gives the reward alone.
    options: XLA compiler options.

  Returns:
    `(critic params, batch with rewards) -> (Estimates, metrics)`. The batch is
    no result, because devices would hold it twice.
  """
  # Only the row axis is sharded. Merging it with the micro-batch axis would
  # make every device gather the whole batch.
  gae_of_rows = functools.partial(
    gae.estimate, gamma=gamma, gae_lambda=gae_lambda
  )

  def estimate(
    params: Params, batch: types.Batch, reference: Params | None = None
  ) -> tuple[Estimates, Metrics]:
    def score(index: jax.Array, scores: jax.Array) -> jax.Array:
      micro = update.micro_batch(batch, index)
      return scores.at[index].set(value_model.values(model, params, micro))

    count = update.nonempty_micro_batches(batch)
    zeros = jnp.zeros(batch.tokens.shape, jnp.float32)
    old_values = jax.lax.fori_loop(0, count, score, zeros)
    mask, rewards = batch.loss_mask, batch.rewards
    assert rewards is not None
    metrics: Metrics = {}
    penalties = None
    if penalty is not None:
      assert reference is not None
      penalties = penalty(reference, batch)
      metrics["learner/kl_penalty"] = masked.masked_mean(penalties, mask)
    advantages, returns = jax.vmap(gae_of_rows)(
      old_values, rewards, mask, batch.segment_ids, penalties=penalties
    )
    metrics |= {
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
    return Estimates(advantages, old_values, returns), metrics

  by_row = mesh_lib.token_sharding(mesh, axis=1)
  return jax.jit(
    estimate,
    out_shardings=(by_row, mesh_lib.replicated(mesh)),
    compiler_options=options,
  )


def make_kl_penalty(
  model: transformer.Transformer,
  *,
  coef: float,
  estimator: str,
  temperature: float,
  chunk_tokens: int,
  mesh: Mesh,
) -> Penalty:
  """Returns `(reference params, batch) -> coef K_t`, which rewards lose.

  K_t estimates KL(policy || reference) at a target from the log-probability
  with which it was sampled (ORZ, figure 3, middle: KL penalty). So the policy
  is the one that sampled it. With stale samples it is some updates old, and the
  penalty is not corrected for that.

  Args:
    model: the policy's decoder.
    coef: weight of the penalty.
    estimator: a key of `KL_ESTIMATORS`.
    temperature: the sampling temperature; divides the logits.
    chunk_tokens: number of tokens whose logits exist at the same time.
    mesh: the device mesh of the batch.
  """
  scores = preparation.make_scores(
    model, chunk_tokens, temperature=temperature, mesh=mesh
  )

  def penalty(reference: Params, batch: types.Batch) -> Float[Array, "A B S"]:
    logprobs, _ = scores(reference, batch.replace(experts=None))
    ratio = batch.sampled_logprobs - logprobs
    return (
      coef * kl_estimators.KL_ESTIMATORS[estimator](ratio) * batch.loss_mask
    )

  return penalty


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
