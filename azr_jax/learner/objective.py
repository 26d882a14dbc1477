"""The losses of a micro-batch: of parameters and packed sequences, a scalar.

`update.py` adds them up over the micro-batches of a batch, and steps.
"""

import functools
from collections.abc import Callable
from typing import TypeAlias, TypedDict

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int

from azr_jax import types
from azr_jax.learner import corrections, gap, losses, masked
from azr_jax.learner import logprobs as logprobs_lib
from azr_jax.learner.policy_losses import POLICY_LOSSES, Targets
from azr_jax.learner.settings import PROXIMAL, LearnerSettings
from azr_jax.models import transformer
from azr_jax.types import Metrics, Params

# (params, micro-batch, ref_params) -> (loss, sums over tokens for metrics). The
# loss of a policy also takes `entropy_coef` in place of the settings'.
MicroLoss: TypeAlias = Callable[..., tuple[jax.Array, Metrics]]


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
  """Returns log-probabilities of the targets, and entropies, in nats.

  Both are 0 where no target is in the loss.
  """
  return logprobs_lib.chunked_logprobs(
    hidden_states(model, params, batch),
    transformer.unembedding(params, model.config),
    batch.targets,
    temperature=temperature,
    chunk_tokens=chunk_tokens,
    mesh=mesh,
    mask=batch.loss_mask,
  )


def make_policy_loss(
  model: transformer.Transformer,
  c: LearnerSettings,
  *,
  temperature: float,
  mesh: Mesh | None,
  correction: str = corrections.NONE,
) -> MicroLoss:
  """Returns the reinforcement-learning loss of one micro-batch.

  loss = sum over t of [w_t c_t L_t - entropy_coef v_t H_t + kl_coef v_t K_t]

  with, for each target token t:
    w_t: `batch.loss_weights`, which hold the aggregation; 0 where the model
      did not write t.
    c_t: the weight by `correction` (`corrections.py`); 1 without one.
    L_t: the policy loss by `learner.policy_loss` (`policy_losses.py`).
    v_t: `batch.regularizer_weights`, the aggregation of H_t and K_t.
    H_t: entropy of the policy's distribution at t, in nats.
    K_t: KL(policy || reference) at t by `learner.kl_estimator`, in nats.

  The ratios of L_t and c_t are to the policy at the update's start: its
  `batch.proximal_logprobs` or, without them and with one epoch, the policy's
  own, without gradient. With `learner.ratio_to=sampled`, those of L_t are to
  the sampler, and there is no c_t.

  Args:
    model: the policy's decoder.
    c: the losses and their numbers; a `kl_coef` of 0 means no reference pass.
    temperature: the sampling temperature, by which logits are divided.
    mesh: where the batch lies, as in `logprobs.chunked_logprobs`.
    correction: one of `corrections.KINDS`, or `corrections.NONE`.
  """
  scoring = _Scoring(
    temperature=temperature, chunk_tokens=c.chunk_tokens, mesh=mesh
  )
  kl_fn = functools.partial(_kl, c.kl_estimator, scoring)

  def loss_fn(
    params: Params,
    batch: types.Batch,
    ref_params: Params | None,
    entropy_coef: jax.Array | float = c.entropy_coef,
  ) -> tuple[jax.Array, Metrics]:
    mask = batch.loss_mask
    hidden = hidden_states(model, params, batch)
    head = transformer.unembedding(params, model.config)
    logprobs, entropy = logprobs_lib.chunked_logprobs(
      hidden, head, batch.targets, mask=mask, **scoring
    )
    surrogate, sums = _surrogate(logprobs, batch, c, correction)
    weighted = jnp.sum(batch.loss_weights * surrogate)
    bonus = jnp.sum(batch.regularizer_weights * entropy)
    loss = weighted - entropy_coef * bonus
    sums |= {
      "learner/policy_loss": weighted,
      "learner/entropy": masked.masked_sum(entropy, mask),
    }
    if kl_coef := c.kl_coef:
      reference = jax.tree.map(jax.lax.stop_gradient, ref_params)
      kl = kl_fn(
        hidden,
        head,
        logprobs,
        hidden_states(model, reference, batch),
        transformer.unembedding(reference, model.config),
        batch.targets,
        mask,
      )
      loss = loss + kl_coef * jnp.sum(batch.regularizer_weights * kl)
      sums["learner/kl"] = masked.masked_sum(kl, mask)
    return loss, sums

  return loss_fn


def _surrogate(
  logprobs: Float[Array, "B S"],
  batch: types.Batch,
  c: LearnerSettings,
  correction: str,
) -> tuple[Float[Array, "B S"], Metrics]:
  """Returns the corrected policy loss of each target, and sums for metrics."""
  mask = batch.loss_mask
  start = batch.proximal_logprobs
  if start is None:
    start = jax.lax.stop_gradient(logprobs)
  is_proximal = c.ratio_to == PROXIMAL
  targets = Targets(
    logprobs=logprobs,
    old_logprobs=start if is_proximal else batch.old_logprobs,
    sampled_logprobs=batch.old_logprobs,
    advantages=batch.advantages,
    mask=mask,
    segment_ids=batch.segment_ids,
    chosen=batch.chosen,
    is_on_policy=is_proximal and batch.proximal_logprobs is None,
  )
  surrogate, values = POLICY_LOSSES[c.policy_loss].loss(targets, c)
  sums = {name: masked.masked_sum(x, mask) for name, x in values.items()}
  sums |= gap.sums(start, batch.old_logprobs, mask)
  if correction != corrections.NONE:
    weights, truncated = corrections.weights(
      correction,
      start - batch.old_logprobs,
      mask,
      batch.segment_ids,
      c.corrections,
    )
    surrogate = surrogate * weights
    sums |= corrections.sums(weights, truncated, mask)
  return surrogate, sums


def _kl(
  kl_estimator: str,
  scoring: _Scoring,
  hidden: Float[Array, "B S D"],
  head: Float[Array, "D V"],
  logprobs: Float[Array, "B S"],
  ref_hidden: Float[Array, "B S D"],
  ref_head: Float[Array, "D V"],
  targets: Int[Array, "B S"],
  mask: Float[Array, "B S"],
) -> Float[Array, "B S"]:
  """Returns KL(policy || reference) at each target, or its estimate."""
  if kl_estimator == losses.FULL_KL:
    return logprobs_lib.chunked_kl(
      hidden, head, ref_hidden, ref_head, mask=mask, **scoring
    )
  ref_logprobs, _ = logprobs_lib.chunked_logprobs(
    ref_hidden, ref_head, targets, mask=mask, **scoring
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
