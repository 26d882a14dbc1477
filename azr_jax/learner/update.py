"""The update: gradients accumulated over packed micro-batches, one step.

`update(state, batch, ref_params) -> (state, metrics)` is pure and jitted once.
The batch has a leading axis of micro-batches: arrays [A, B, S]. `ref_params`
is the reference policy of a KL term, or None.
"""

import functools
from collections.abc import Callable
from typing import TypeAlias, TypedDict, TypeVar

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int

from azr_jax import types
from azr_jax.learner import logprobs as logprobs_lib
from azr_jax.learner import losses, masked
from azr_jax.learner.train_state import TrainState
from azr_jax.models import transformer
from azr_jax.parallel import compiler
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.types import Metrics, Params

# (params, micro-batch, ref_params) -> (loss, sums over tokens for metrics).
MicroLoss: TypeAlias = Callable[
  [Params, types.Batch, Params | None], tuple[jax.Array, Metrics]
]
# Jitted: (state, batch, ref_params) -> (state, metrics).
Update: TypeAlias = jax.stages.Wrapped
# A tree of arrays [A, ...].
Tree = TypeVar("Tree")


class _Scoring(TypedDict):
  """Arguments of `logprobs.chunked_logprobs` and `chunked_kl`."""

  temperature: float
  chunk_tokens: int
  mesh: Mesh | None


def hidden_states(
  model: transformer.Transformer, params: Params, batch: types.Batch
) -> Float[Array, "B S D"]:
  """Returns the decoder's last hidden states."""
  # The cast comes before the gather, so half the bytes cross the links.
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
  params: Params,
  batch: types.Batch,
  temperature: float,
  chunk_tokens: int,
  mesh: Mesh | None,
) -> tuple[Float[Array, "B S"], Float[Array, "B S"]]:
  """Returns log-probabilities of the targets, and entropies, in nats."""
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

  loss = sum over t of [w_t L_t - entropy_coef v_t H_t + kl_coef v_t K_t]

  with, for each target token t:
    w_t: `batch.loss_weights`, which hold the aggregation; 0 where the model
      did not write t.
    L_t: the surrogate loss by `policy_loss`, of the ratio r_t and the
      advantage A_t:
      `clipped` (AZR, eq. 9):
        -min(r_t A_t, clip(r_t, 1 - clip_low, 1 + clip_high) A_t);
      `sequence_weighted` (Countdown, section 4):
        -min(r, iw_clip_max) A_t log p_t, where r is the product of r_t over
        t's sequence and has no gradient.
    r_t: p_t / q_t, the probability of t under the policy and when sampled.
    v_t: `batch.regularizer_weights`, the aggregation of H_t and K_t.
    H_t: entropy of the policy's distribution at t, in nats.
    K_t: KL(policy || reference) at t by `kl_estimator`, in nats.

  Args:
    model: the policy's decoder.
    clip_low: PPO clip below 1.
    clip_high: PPO clip above 1.
    entropy_coef: weight of the entropy bonus.
    kl_coef: weight of the KL to the reference; 0 means no reference pass.
    kl_estimator: a key of `losses.KL_ESTIMATORS`, or `losses.FULL_KL`.
    temperature: the sampling temperature, by which logits are divided.
    chunk_tokens: tokens whose logits exist at the same time.
    on_policy: one optimizer step per batch; `clipped` then takes p_t without
      gradient for q_t, so r_t is 1.
    mesh: where the batch lies, as in `logprobs.chunked_logprobs`.
    policy_loss: one of `losses.POLICY_LOSSES`.
    iw_clip_max: largest importance weight of `sequence_weighted`.
  """
  scoring = _Scoring(
    temperature=temperature, chunk_tokens=chunk_tokens, mesh=mesh
  )
  if policy_loss == "clipped":
    surrogate_fn = functools.partial(
      _clipped, clip_low=clip_low, clip_high=clip_high, on_policy=on_policy
    )
  else:
    surrogate_fn = functools.partial(
      _sequence_weighted, iw_clip_max=iw_clip_max
    )
  kl_fn = functools.partial(_kl, kl_estimator=kl_estimator, scoring=scoring)

  def loss_fn(
    params: Params, batch: types.Batch, ref_params: Params | None
  ) -> tuple[jax.Array, Metrics]:
    hidden = hidden_states(model, params, batch)
    head = transformer.unembedding(params, model.config)
    logprobs, entropy = logprobs_lib.chunked_logprobs(
      hidden, head, batch.targets, **scoring
    )
    mask = batch.loss_mask
    surrogate, sums = surrogate_fn(logprobs, batch)
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
      reference = jax.tree.map(jax.lax.stop_gradient, ref_params)
      kl = kl_fn(
        hidden,
        head,
        logprobs,
        hidden_states(model, reference, batch),
        transformer.unembedding(reference, model.config),
        batch.targets,
      )
      loss = loss + kl_coef * jnp.sum(batch.regularizer_weights * kl)
      sums["learner/kl"] = masked.masked_sum(kl, mask)
    return loss, sums

  return loss_fn


def _clipped(
  logprobs: Float[Array, "B S"],
  batch: types.Batch,
  *,
  clip_low: float,
  clip_high: float,
  on_policy: bool,
) -> tuple[Float[Array, "B S"], Metrics]:
  """Returns PPO's clipped surrogate, and how many ratios are outside.

  With one step per batch, every ratio is 1 and none is outside.
  """
  old = jax.lax.stop_gradient(logprobs) if on_policy else batch.old_logprobs
  surrogate = losses.clipped_surrogate(
    logprobs, old, batch.advantages, clip_low=clip_low, clip_high=clip_high
  )
  if on_policy:
    return surrogate, {}
  ratio = jnp.exp(logprobs - old)
  outside = (ratio < 1 - clip_low) | (ratio > 1 + clip_high)
  return surrogate, {
    "learner/clip_share": masked.masked_sum(outside * 1.0, batch.loss_mask)
  }


def _sequence_weighted(
  logprobs: Float[Array, "B S"], batch: types.Batch, *, iw_clip_max: float
) -> tuple[Float[Array, "B S"], Metrics]:
  """Returns the sequence-weighted surrogate, and sums over its weights.

  The metrics count tokens, so long sequences count more.
  """
  mask = batch.loss_mask
  surrogate, sequence_weight = losses.sequence_weighted(
    logprobs,
    batch.old_logprobs,
    batch.advantages,
    mask,
    batch.segment_ids,
    iw_clip_max=iw_clip_max,
  )
  clipped = sequence_weight >= iw_clip_max
  return surrogate, {
    "learner/weight": masked.masked_sum(sequence_weight, mask),
    "learner/clip_share": masked.masked_sum(clipped * 1.0, mask),
  }


def _kl(
  hidden: Float[Array, "B S D"],
  head: Float[Array, "D V"],
  logprobs: Float[Array, "B S"],
  ref_hidden: Float[Array, "B S D"],
  ref_head: Float[Array, "D V"],
  targets: Int[Array, "B S"],
  *,
  kl_estimator: str,
  scoring: _Scoring,
) -> Float[Array, "B S"]:
  """Returns KL(policy || reference) at each target, or its estimate."""
  if kl_estimator == losses.FULL_KL:
    return logprobs_lib.chunked_kl(
      hidden, head, ref_hidden, ref_head, **scoring
    )
  ref_logprobs, _ = logprobs_lib.chunked_logprobs(
    ref_hidden, ref_head, targets, **scoring
  )
  return losses.KL_ESTIMATORS[kl_estimator](logprobs - ref_logprobs)


def make_supervised_loss(
  model: transformer.Transformer, *, chunk_tokens: int, mesh: Mesh | None
) -> MicroLoss:
  """Returns the supervised loss of one micro-batch.

  loss = sum over targets t of -w_t log p(t), w_t: `batch.loss_weights`.

  Args:
    model: the decoder.
    chunk_tokens: tokens whose logits exist at the same time.
    mesh: where the batch lies, as in `logprobs.chunked_logprobs`.
  """

  def loss_fn(
    params: Params, batch: types.Batch, ref_params: Params | None
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


# Sums that the batch's weights already average; others are divided by tokens.
_WEIGHTED_SUMS = ("learner/policy_loss",)


def make_update(
  loss_fn: MicroLoss,
  optimizer: optax.GradientTransformation,
  shardings: TrainState,
  mesh: Mesh,
  options: compiler.Options = None,
) -> Update:
  """Returns the jitted update, which donates the state that it is given.

  Args:
    loss_fn: the loss of one micro-batch.
    optimizer: takes one step per call.
    shardings: where the state lies; from `train_state.state_shardings`.
    mesh: where the batch lies.
    options: of XLA.

  Returns:
    `(state, batch [A, B, S], ref_params) -> (state, metrics)`.
  """

  def update(
    state: TrainState, batch: types.Batch, ref_params: Params | None
  ) -> tuple[TrainState, Metrics]:
    loss, sums, grads = accumulate(
      loss_fn,
      state.params,
      batch,
      ref_params,
      0,
      nonempty_micro_batches(batch),
    )
    tokens = jnp.maximum(jnp.sum(batch.loss_mask), 1.0)
    metrics = {
      name: value if name in _WEIGHTED_SUMS else value / tokens
      for name, value in sums.items()
    }
    grad_norm = optax.tree.norm(grads)
    is_finite = jnp.isfinite(loss) & jnp.isfinite(grad_norm)
    state = apply(optimizer, state, grads, is_finite)
    metrics |= {
      "learner/loss": loss,
      "learner/grad_norm": grad_norm,
      "learner/tokens": tokens,
      "learner/rows": jnp.sum(jnp.any(batch.segment_ids > 0, axis=-1)),
      "learner/skipped": 1.0 - is_finite,
      "learner/nonfinite": count_nonfinite(state),
    }
    return state, metrics

  return jax.jit(
    update,
    in_shardings=(
      shardings,
      mesh_lib.token_sharding(mesh, axis=1),
      None,  # The reference stays in the shards that it was given in.
    ),
    out_shardings=(shardings, mesh_lib.replicated(mesh)),
    donate_argnums=0,
    compiler_options=options,
  )


def micro_batch(batch: Tree, index: jax.Array | int) -> Tree:
  """Returns one micro-batch: arrays [...] of a tree of arrays [A, ...]."""
  return jax.tree.map(
    lambda x: jax.lax.dynamic_index_in_dim(x, index, keepdims=False), batch
  )


def nonempty_micro_batches(batch: types.Batch) -> Int[Array, ""]:
  """Returns how many micro-batches hold a sequence.

  Empty ones come last and are not run, so one compiled program serves steps
  with different numbers of sequences.
  """
  return jnp.sum(jnp.any(batch.segment_ids > 0, axis=(1, 2)))


def accumulate(
  loss_fn: Callable[[Params, Tree, Params | None], tuple[jax.Array, Metrics]],
  params: Params,
  batch: Tree,
  ref_params: Params | None,
  start: jax.Array | int,
  stop: jax.Array | int,
) -> tuple[jax.Array, Metrics, Params]:
  """Adds up loss, metrics and gradients over micro-batches [start, stop).

  Args:
    loss_fn: the loss of one micro-batch.
    params: the parameters that gradients are taken at.
    batch: a tree of arrays [A, ...], whose micro-batches `loss_fn` takes.
    ref_params: passed on to `loss_fn`.
    start: the first micro-batch.
    stop: one past the last.
  """

  def grad_fn(micro: Tree) -> tuple[jax.Array, Metrics, Params]:
    (loss, sums), grads = jax.value_and_grad(loss_fn, has_aux=True)(
      params, micro, ref_params
    )
    return loss, sums, grads

  def add(
    index: jax.Array, total: tuple[jax.Array, Metrics, Params]
  ) -> tuple[jax.Array, Metrics, Params]:
    return jax.tree.map(jnp.add, total, grad_fn(micro_batch(batch, index)))

  zeros = jax.tree.map(
    lambda x: jnp.zeros(x.shape, x.dtype),
    jax.eval_shape(grad_fn, jax.tree.map(lambda x: x[0], batch)),
  )
  return jax.lax.fori_loop(start, stop, add, zeros)


@jax.named_scope("optimizer")
def apply(
  optimizer: optax.GradientTransformation,
  state: TrainState,
  grads: Params,
  is_finite: Bool[Array, ""],
) -> TrainState:
  """Returns the state after one optimizer step.

  Args:
    optimizer: makes the step.
    state: the state before it.
    grads: the gradients.
    is_finite: whether loss and gradients are; otherwise parameters, moments and
      counts keep their values. It is known before the first parameter is
      written, so no second copy of the state is needed.
  """
  updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
  after = state.replace(
    step=state.step + 1,
    params=optax.apply_updates(state.params, updates),
    opt_state=opt_state,
  )
  return jax.tree.map(
    lambda new, old: jnp.where(is_finite, new, old), after, state
  )


def count_nonfinite(state: TrainState) -> Float[Array, ""]:
  """Returns how many parameters and moments are infinite or NaN."""
  counts = [
    jnp.sum(~jnp.isfinite(leaf), dtype=jnp.float32)
    for leaf in jax.tree.leaves((state.params, state.opt_state))
    if jnp.issubdtype(leaf.dtype, jnp.inexact)
  ]
  return sum(counts, start=jnp.zeros((), jnp.float32))


def to_micro_batches(batch: types.Batch, rows: int) -> types.Batch:
  """Reshapes arrays [A x rows, S] to [A, rows, S]."""
  return jax.tree.map(lambda x: x.reshape(-1, rows, x.shape[-1]), batch)


def place(batch: types.Batch, mesh: Mesh) -> types.Batch:
  """Puts micro-batches [A, B, S] on the devices as `make_update` expects them.

  Every host holds the whole batch and sends its own devices their rows.
  """
  sharding = mesh_lib.token_sharding(mesh, axis=1)
  return jax.tree.map(
    lambda x: jax.make_array_from_callback(
      x.shape, sharding, lambda index: x[index]
    ),
    batch,
  )
