"""The update of the critic: its loss and several optimizer steps per batch."""

import math
from collections.abc import Callable
from typing import TypeAlias

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int

from azr_jax import types
from azr_jax.learner import masked, packing, update, value_model
from azr_jax.learner.critic import ValueBatch
from azr_jax.learner.objective import Fixed
from azr_jax.learner.rounding import Draws
from azr_jax.learner.train_state import TrainState
from azr_jax.models import transformer
from azr_jax.parallel import compiler
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.types import Metrics, Params

# Lower bound of a minibatch's share of the loss, before dividing by it. Only a
# minibatch without trained tokens has a smaller share.
MIN_WEIGHT = 1e-12
_DRAWS = Draws()
_Loss: TypeAlias = Callable[
  [Params, ValueBatch, Fixed], tuple[Float[Array, ""], Metrics]
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
  draws: Draws = _DRAWS,
) -> update.Update:
  """Returns jitted `(state, ValueBatch, fixed) -> (state, metrics)`.

  The update donates its state. It splits the batch into `num_minibatches`
  minibatches of consecutive micro-batches and takes one optimizer step on the
  loss of each, aggregated like the policy's. A batch with fewer non-empty
  micro-batches gets one step per non-empty micro-batch.

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
    draws: the random bits that round bfloat16 parameters.
  """
  loss_fn = _make_loss(model, value_clip)

  def critic_update(
    state: TrainState, batch: ValueBatch, fixed: Fixed
  ) -> tuple[TrainState, Metrics]:
    count = update.nonempty_micro_batches(batch.batch)
    steps = jnp.minimum(num_minibatches, count)
    fractions = _fractions(batch.batch, aggregation)

    def one_step(index: jax.Array, carry: _Carry) -> _Carry:
      state, losses, norms, clipped, skipped = carry
      start, stop = index * count // steps, (index + 1) * count // steps
      total, grads = _minibatch_gradients(
        loss_fn, state.params, batch, fixed, fractions, start, stop
      )
      norm = optax.tree.norm(grads)
      is_finite = jnp.isfinite(total) & jnp.isfinite(norm)
      state = update.apply(optimizer, state, grads, is_finite, draws)
      return (
        state,
        losses + total,
        norms + norm,
        clipped + (norm > (grad_clip or math.inf)),
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

  return jax.jit(
    critic_update,
    in_shardings=(shardings, mesh_lib.token_sharding(mesh, axis=1), None),
    out_shardings=(shardings, mesh_lib.replicated(mesh)),
    donate_argnums=0,
    compiler_options=options,
  )


def _make_loss(model: transformer.Transformer, value_clip: float) -> _Loss:
  """Returns the loss of a micro-batch: its weighted sum, and its plain sum."""

  def loss_fn(
    trained: Params, micro: ValueBatch, fixed: Fixed
  ) -> tuple[jax.Array, Metrics]:
    loss = value_loss(
      value_model.values(model, fixed.whole(trained), micro.batch),
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
  therefore gives the aggregation of that minibatch alone. Each of the policy's
  minibatches that has any share has weights of its own, so a batch has the sum
  of several.
  """
  if aggregation in packing.SUMS:
    parts = jnp.sum(jnp.max(batch.segment_ids, axis=-1), axis=-1)
  else:
    parts = jnp.sum(batch.loss_weights, axis=(1, 2))
  parts = parts.astype(jnp.float32)
  wholes = 1 if batch.minibatch is None else _count_parts(batch, parts)
  return parts * wholes / jnp.maximum(jnp.sum(parts), MIN_WEIGHT)


def _count_parts(
  batch: types.Batch, shares: Float[Array, " A"]
) -> Int[Array, ""]:
  """Returns how many of the policy's minibatches have a share above 0.

  Args:
    batch: micro-batches, each of which belongs to one minibatch.
    shares: each micro-batch's share.
  """
  assert batch.minibatch is not None
  numbers = jnp.max(batch.minibatch, axis=(1, 2))
  numbers = jnp.where(shares > 0, numbers, 0)
  # Minibatches are numbered from 1, and there are at most as many as
  # micro-batches.
  known = jnp.arange(1, len(shares) + 1)
  return jnp.sum(jnp.any(numbers[:, None] == known[None], axis=0))


def _minibatch_gradients(
  loss_fn: _Loss,
  params: Params,
  batch: ValueBatch,
  fixed: Fixed,
  fractions: Float[Array, " A"],
  start: Int[Array, ""],
  stop: Int[Array, ""],
) -> tuple[Float[Array, ""], Params]:
  """Returns the loss and gradients of micro-batches [start, stop).

  The loss is a sum over trained tokens; the gradients follow the batch's
  aggregation.

  Args:
    loss_fn: the loss of a micro-batch.
    params: the critic's trained parameters.
    batch: all micro-batches.
    fixed: the third argument of `loss_fn`.
    fractions: each micro-batch's share of the loss, from `_fractions`.
    start: the first micro-batch.
    stop: one past the last micro-batch.
  """
  _, sums, grads = update.accumulate(loss_fn, params, batch, fixed, start, stop)
  index = jnp.arange(fractions.shape[0])
  inside = (index >= start) & (index < stop)
  fraction = jnp.maximum(jnp.sum(fractions * inside), MIN_WEIGHT)
  return sums["sum"], jax.tree.map(lambda g: g / fraction, grads)
