"""The update: gradients accumulated over packed micro-batches, one step.

`update(state, batch, ref_params) -> (state, metrics)` is pure and jitted once.
The batch has a leading axis A of micro-batches: arrays [A, rows, length].
`ref_params` is the reference policy of a KL term, or None.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh

from azr_jax import types
from azr_jax.learner import logprobs as logprobs_lib
from azr_jax.learner import losses, masked
from azr_jax.learner.train_state import TrainState
from azr_jax.models import transformer
from azr_jax.parallel import mesh as mesh_lib

Metrics = dict[str, jax.Array]
MicroLoss = Callable[[Any, types.Batch, Any], tuple[jax.Array, Metrics]]
# Jitted: (state, batch, ref_params) -> (state, metrics).
Update = Any


def hidden_states(
  model: transformer.Transformer, params: Any, batch: types.Batch
) -> jax.Array:
  """The decoder's last hidden states, [rows, length, D]."""
  # Cast before they are gathered: half the bytes on the links.
  layers = transformer.compute_params(model.dtype, params["layers"])
  hidden, _ = model.apply(
    {"params": params | {"layers": layers}},
    batch.tokens,
    batch.positions,
    batch.segment_ids,
  )
  return hidden


def score(
  model: transformer.Transformer,
  params: Any,
  batch: types.Batch,
  temperature: float,
  chunk_tokens: int,
  mesh: Mesh | None,
) -> tuple[jax.Array, jax.Array]:
  """Log-probabilities of the targets, and entropies, [rows, length]."""
  return logprobs_lib.chunked_logprobs(
    hidden_states(model, params, batch),
    transformer.unembedding(params, model.config),
    batch.targets,
    temperature=temperature,
    chunk_tokens=chunk_tokens,
    mesh=mesh,
  )


def make_policy_loss(
  model: transformer.Transformer,
  *,
  clip_low: float,
  clip_high: float,
  entropy_coef: float,
  kl_coef: float,
  kl_estimator: str,
  temperature: float,
  chunk_tokens: int,
  on_policy: bool,
  mesh: Mesh | None,
  policy_loss: str = "clipped",
  iw_clip_max: float = 1.0,
) -> MicroLoss:
  """Returns the reinforcement-learning loss of one micro-batch.

  Args:
    model: the policy's decoder.
    clip_low: PPO clip below 1.
    clip_high: PPO clip above 1.
    entropy_coef: weight of the entropy bonus.
    kl_coef: weight of the KL to the reference; 0 means no reference pass.
    kl_estimator: a key of `losses.KL_ESTIMATORS`, or `losses.FULL_KL`.
    temperature: the sampling temperature.
    chunk_tokens: tokens whose logits exist at the same time.
    mesh: where the batch lies, see `logprobs.chunked_logprobs`.
    on_policy: one optimizer step per batch; the old log-probabilities are
      then the new ones without gradient, and no extra pass is needed.
    policy_loss: one of `losses.POLICY_LOSSES`; the clips are of `clipped`.
    iw_clip_max: largest importance weight, of `sequence_weighted`.
  """
  scoring = dict(temperature=temperature, chunk_tokens=chunk_tokens, mesh=mesh)

  def loss_fn(
    params: Any, batch: types.Batch, ref_params: Any
  ) -> tuple[jax.Array, Metrics]:
    hidden = hidden_states(model, params, batch)
    head = transformer.unembedding(params, model.config)
    logprobs, entropy = logprobs_lib.chunked_logprobs(
      hidden, head, batch.targets, **scoring
    )
    old = jax.lax.stop_gradient(logprobs) if on_policy else batch.old_logprobs
    mask = batch.loss_mask
    sums: Metrics = {}
    if policy_loss == "clipped":
      surrogate = losses.clipped_surrogate(
        logprobs, old, batch.advantages, clip_low=clip_low, clip_high=clip_high
      )
      ratio = jnp.exp(logprobs - old)
      outside = (ratio < 1 - clip_low) | (ratio > 1 + clip_high)
      sums["learner/clip_share"] = masked.masked_sum(outside * 1.0, mask)
    else:
      surrogate, sequence_weight = losses.sequence_weighted(
        logprobs,
        batch.old_logprobs,
        batch.advantages,
        mask,
        batch.segment_ids,
        iw_clip_max=iw_clip_max,
      )
      # Of tokens, so that long sequences count more.
      clipped = sequence_weight >= iw_clip_max
      sums["learner/weight"] = masked.masked_sum(sequence_weight, mask)
      sums["learner/clip_share"] = masked.masked_sum(clipped * 1.0, mask)
    weighted = jnp.sum(batch.loss_weights * surrogate)
    bonus = jnp.sum(batch.regularizer_weights * entropy)
    loss = weighted - entropy_coef * bonus
    gap = jnp.abs(logprobs - batch.old_logprobs)
    sums |= {
      "learner/policy_loss": weighted,
      "learner/entropy": masked.masked_sum(entropy, mask),
      "rollout/logprob_gap": masked.masked_sum(gap, mask),
    }
    if kl_coef:
      ref_params = jax.lax.stop_gradient(ref_params)
      ref_hidden = hidden_states(model, ref_params, batch)
      ref_head = transformer.unembedding(ref_params, model.config)
      if kl_estimator == losses.FULL_KL:
        kl = logprobs_lib.chunked_kl(
          hidden, head, ref_hidden, ref_head, **scoring
        )
      else:
        ref_logprobs, _ = logprobs_lib.chunked_logprobs(
          ref_hidden, ref_head, batch.targets, **scoring
        )
        kl = losses.KL_ESTIMATORS[kl_estimator](logprobs - ref_logprobs)
      loss = loss + kl_coef * jnp.sum(batch.regularizer_weights * kl)
      sums["learner/kl"] = masked.masked_sum(kl, mask)
    return loss, sums

  return loss_fn


def make_supervised_loss(
  model: transformer.Transformer, *, chunk_tokens: int, mesh: Mesh | None
) -> MicroLoss:
  """Returns the supervised loss of one micro-batch."""

  def loss_fn(
    params: Any, batch: types.Batch, ref_params: Any
  ) -> tuple[jax.Array, Metrics]:
    del ref_params
    logprobs, entropy = score(model, params, batch, 1.0, chunk_tokens, mesh)
    nll = losses.negative_log_likelihood(logprobs)
    mask = batch.loss_mask
    return jnp.sum(batch.loss_weights * nll), {
      "learner/nll": masked.masked_sum(nll, mask),
      "learner/entropy": masked.masked_sum(entropy, mask),
    }

  return loss_fn


# Sums over the batch that are not per-token and must not be divided.
_PLAIN_SUMS = ("learner/policy_loss",)


def make_update(
  loss_fn: MicroLoss,
  optimizer: optax.GradientTransformation,
  shardings: TrainState,
  mesh: Mesh,
) -> Update:
  """Returns the jitted update; it donates the state it is given."""

  def update(
    state: TrainState, batch: types.Batch, ref_params: Any
  ) -> tuple[TrainState, Metrics]:
    loss, sums, grads = accumulate(
      loss_fn, state.params, batch, ref_params, 0, live_micro_batches(batch)
    )
    tokens = jnp.maximum(jnp.sum(batch.loss_mask), 1.0)
    metrics = {
      name: value if name in _PLAIN_SUMS else value / tokens
      for name, value in sums.items()
    }
    metrics |= {
      "learner/loss": loss,
      "learner/grad_norm": optax.tree.norm(grads),
      "learner/tokens": tokens,
      "learner/rows": jnp.sum(jnp.any(batch.segment_ids > 0, axis=-1)),
    }
    return apply(optimizer, state, grads), metrics

  return jax.jit(
    update,
    in_shardings=(
      shardings,
      mesh_lib.batch_sharding(mesh, axis=1),
      None,  # The reference keeps the shards it was given in.
    ),
    out_shardings=(shardings, mesh_lib.replicated(mesh)),
    donate_argnums=0,
  )


def micro_batch(batch: Any, index: jax.Array | int) -> Any:
  """One micro-batch of a tree of arrays [A, rows, length]."""
  return jax.tree.map(
    lambda x: jax.lax.dynamic_index_in_dim(x, index, keepdims=False), batch
  )


def live_micro_batches(batch: types.Batch) -> jax.Array:
  """How many micro-batches hold anything.

  Empty ones stand last and are not run: one compiled program serves steps with
  different numbers of sequences.
  """
  return jnp.sum(jnp.any(batch.segment_ids > 0, axis=(1, 2)))


def accumulate(
  loss_fn: Callable[..., tuple[jax.Array, Metrics]],
  params: Any,
  batch: Any,
  ref_params: Any,
  start: jax.Array | int,
  stop: jax.Array | int,
) -> tuple[jax.Array, Metrics, Any]:
  """Sums of loss, metrics and gradients over micro-batches [start, stop)."""

  def grad_fn(micro: Any) -> tuple[jax.Array, Metrics, Any]:
    (loss, sums), grads = jax.value_and_grad(loss_fn, has_aux=True)(
      params, micro, ref_params
    )
    return loss, sums, grads

  def add(index: jax.Array, total: Any) -> Any:
    return jax.tree.map(jnp.add, total, grad_fn(micro_batch(batch, index)))

  zeros = jax.tree.map(
    lambda x: jnp.zeros(x.shape, x.dtype),
    jax.eval_shape(grad_fn, jax.tree.map(lambda x: x[0], batch)),
  )
  return jax.lax.fori_loop(start, stop, add, zeros)


def apply(
  optimizer: optax.GradientTransformation, state: TrainState, grads: Any
) -> TrainState:
  """The state after one optimizer step."""
  updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
  return TrainState(
    step=state.step + 1,
    params=optax.apply_updates(state.params, updates),
    opt_state=opt_state,
  )


def to_micro_batches(batch: types.Batch, rows: int) -> types.Batch:
  """Reshapes [A x rows, length] arrays to [A, rows, length]."""
  return jax.tree.map(lambda x: x.reshape(-1, rows, x.shape[-1]), batch)


def place(batch: types.Batch, mesh: Mesh) -> types.Batch:
  """Puts micro-batches where `make_update` expects them.

  Every host holds the whole batch and sends its own devices their rows.
  """
  sharding = mesh_lib.batch_sharding(mesh, axis=1)
  return jax.tree.map(
    lambda x: jax.make_array_from_callback(
      x.shape, sharding, lambda index: x[index]
    ),
    batch,
  )
