"""The loss of a micro-batch, from parameters and packed sequences to a scalar.

`update.py` sums it over a batch's micro-batches and takes the optimizer step.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple, TypeAlias, TypedDict

import flax.struct
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Float

from azr_jax import types
from azr_jax.learner import (
  corrections,
  divergences,
  gap,
  kl_estimators,
  masked,
  routing,
)
from azr_jax.learner import logprobs as logprobs_lib
from azr_jax.learner.policy_losses import PolicyLoss
from azr_jax.learner.settings import PROXIMAL
from azr_jax.learner.surrogate_losses import Targets
from azr_jax.models import adapters, experts, sampling_params, transformer
from azr_jax.types import Metrics, Params

# (trained parameters, micro-batch, `Fixed`) -> (loss, sums over tokens for
# metrics). A policy loss also accepts `entropy_coef`, which overrides the
# setting.
MicroLoss: TypeAlias = Callable[..., tuple[Float[Array, ""], Metrics]]


class Fixed(flax.struct.PyTreeNode):
  """Parameters that an update reads and does not change.

  Attributes:
    base: the frozen part of the model; {} if all parameters are trained.
    reference: the trained part of the parameters that training started from,
      for a KL penalty or a teacher; None if nothing needs them.
    teacher: all parameters of a teacher that is another model, in the compute
      type; None without one. Within an update, `averaging.with_teacher` puts
      the policy's average here.
  """

  base: Params = flax.struct.field(default_factory=dict)
  reference: Params | None = None
  teacher: Params | None = None

  def whole(self, trained: Params) -> Params:
    """Returns the parameters of the decoder with these trained ones."""
    return adapters.join(self.base, trained)


class Distilled(NamedTuple):
  """What distillation makes of a micro-batch (`distillation.py`).

  Attributes:
    advantages: the advantages that replace the batch's.
    loss: the weighted divergence from the teacher; 0 if the advantages have it.
    sums: sums over targets, for metrics.
  """

  advantages: Float[Array, "B S"]
  loss: Float[Array, ""]
  sums: Metrics


class _Scoring(TypedDict):
  """Arguments of `chunked_logprobs` and `chunked_divergence`."""

  temperature: float
  chunk_tokens: int
  mesh: Mesh | None


def hidden_states(
  model: transformer.Transformer, params: Params, batch: types.Packed
) -> Float[Array, "B S D"]:
  """Returns the decoder's last hidden states."""
  return forward(model, params, batch)[0]


def forward(
  model: transformer.Transformer, params: Params, batch: types.Packed
) -> tuple[Float[Array, "B S D"], experts.Routing | None]:
  """Returns the decoder's last hidden states and, with experts, the routing.

  A batch that has the sampler's experts replays them. Weights of experts, and
  so the router's gradient, are of the given parameters.
  """
  # Cast before the gather, so the interconnect carries half the bytes.
  layers = {
    name: transformer.compute_params(model.dtype, value)
    for name, value in params.items()
    if name.startswith(transformer.LAYERS)
  }
  params = params | layers
  if model.unrolled and transformer.LAYERS in params:
    stacked = transformer.with_whole_gradients(params[transformer.LAYERS])
    params = sampling_params.unstack_rest(
      params | {transformer.LAYERS: stacked}, model.config.num_layers
    )
  run = functools.partial(
    model.apply,
    {"params": params},
    batch.tokens,
    batch.positions,
    batch.segment_ids,
  )
  if model.config.experts is None:
    return run()[0], None
  chosen = batch.experts if isinstance(batch, types.Batch) else None
  if chosen is not None:
    chosen = jnp.moveaxis(chosen, 2, 0).astype(jnp.int32) - 1
    chosen = jnp.where(chosen < 0, model.config.experts.count, chosen)
  (hidden, _), variables = run(chosen=chosen, mutable=[experts.ROUTING])
  return hidden, transformer.routing_of(variables, model.config.num_layers)


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
  hidden = hidden_states(model, params, batch)
  head = transformer.unembedding(params, model.config)
  return _score(hidden, head, batch, temperature, chunk_tokens, mesh)


def _score(
  hidden: Float[Array, "B S D"],
  head: Float[Array, "D V"],
  batch: types.Batch,
  temperature: float,
  chunk_tokens: int,
  mesh: Mesh | None,
) -> tuple[Float[Array, "B S"], Float[Array, "B S"]]:
  """Returns `score` of the last hidden states."""
  return logprobs_lib.chunked_logprobs(
    *(hidden, head, batch.targets),
    temperature=temperature,
    chunk_tokens=chunk_tokens,
    mesh=mesh,
    mask=batch.loss_mask,
  )


def make_policy_loss(
  model: transformer.Transformer,
  policy_loss: PolicyLoss,
  *,
  temperature: float,
  chunk_tokens: int,
  mesh: Mesh | None,
  entropy_coef: float = 0.0,
  kl_coef: float = 0.0,
  kl_estimator: str = "k3",
  ratio_to: str = PROXIMAL,
  correct: corrections.Correct | None = None,
  distill: Callable[..., Distilled] | None = None,
) -> MicroLoss:
  """Returns the reinforcement-learning loss of one micro-batch.

  loss = sum over t of [w_t c_t L_t - entropy_coef v_t H_t + kl_coef v_t K_t]

  For each target token t:

  * w_t: `batch.policy_weights` or, without them, `batch.loss_weights`, which
    implement the aggregation; 0 where the model did not write t.
  * c_t: the correction weight by `correct` (`corrections.py`); 1 without one.
  * L_t: the policy loss (`surrogate_losses.py`).
  * v_t: `batch.regularizer_weights`, the aggregation of H_t and K_t.
  * H_t: the entropy of the policy's distribution at t, in nats.
  * K_t: KL(policy || reference) at t by `kl_estimator`, in nats.

  The ratios in L_t and c_t are relative to the policy at the update's start.
  Its log-probabilities are `batch.proximal_logprobs` or, without them and with
  one epoch, the policy's own without gradient. With `ratio_to=SAMPLED`, the
  ratios in L_t are relative to the sampler, and there is no c_t.

  Args:
    model: the policy's decoder.
    policy_loss: from `policy_losses.make`.
    temperature: the sampling temperature; divides the logits.
    chunk_tokens: number of tokens whose logits exist at the same time.
    mesh: the device mesh of the batch, as in `logprobs.chunked_logprobs`.
    entropy_coef: weight of the entropy bonus.
    kl_coef: weight of the KL penalty; 0 skips the reference's forward pass.
    kl_estimator: a key of `KL_ESTIMATORS`, or `FULL_KL`.
    ratio_to: the old policy in L_t, `PROXIMAL` or `SAMPLED`.
    correct: from `corrections.make`.
    distill: from `distillation.make`, which also says how the loss changes.
  """
  scoring = _Scoring(
    temperature=temperature, chunk_tokens=chunk_tokens, mesh=mesh
  )
  kl_fn = functools.partial(_kl, model, kl_estimator, scoring)

  def loss_fn(
    trained: Params,
    batch: types.Batch,
    fixed: Fixed,
    entropy_coef: jax.Array | float = entropy_coef,
  ) -> tuple[jax.Array, Metrics]:
    mask, params = batch.loss_mask, fixed.whole(trained)
    hidden, routed = forward(model, params, batch)
    head = transformer.unembedding(params, model.config)
    logprobs, entropy = _score(hidden, head, batch, **scoring)
    taught = None
    if distill is not None:
      taught = distill(params, batch, fixed, hidden, head, logprobs)
      batch = batch.replace(advantages=taught.advantages)
    weighted, sums = _surrogate(
      logprobs, batch, policy_loss, ratio_to == PROXIMAL, correct
    )
    bonus = jnp.sum(batch.regularizer_weights * entropy)
    loss = weighted - entropy_coef * bonus
    sums["learner/entropy"] = masked.masked_sum(entropy, mask)
    if kl_coef:
      kl = kl_fn(fixed, batch, hidden, head, logprobs)
      loss = loss + kl_coef * jnp.sum(batch.regularizer_weights * kl)
      sums["learner/kl"] = masked.masked_sum(kl, mask)
    if taught is not None:
      loss, sums = loss + taught.loss, sums | taught.sums
    return loss, sums | routing.sums(routed, model.config, batch)

  return loss_fn


def _surrogate(
  logprobs: Float[Array, "B S"],
  batch: types.Batch,
  policy_loss: PolicyLoss,
  is_proximal: bool,
  correct: corrections.Correct | None,
) -> tuple[Float[Array, ""], Metrics]:
  """Returns the corrected policy loss, and sums for metrics."""
  mask, advantages = batch.loss_mask, batch.advantages
  assert advantages is not None
  start = batch.proximal_logprobs
  if start is None:
    start = jax.lax.stop_gradient(logprobs)
  targets = Targets(
    logprobs=logprobs,
    old_logprobs=start if is_proximal else batch.sampled_logprobs,
    sampled_logprobs=batch.sampled_logprobs,
    advantages=advantages,
    mask=mask,
    segment_ids=batch.segment_ids,
    chosen=batch.chosen,
    is_on_policy=is_proximal and batch.proximal_logprobs is None,
  )
  surrogate, values = policy_loss.loss(targets)
  sums = {name: masked.masked_sum(x, mask) for name, x in values.items()}
  sums |= gap.sums(start, batch.sampled_logprobs, mask)
  if correct is not None:
    weights, truncated = correct(
      start - batch.sampled_logprobs, mask, batch.segment_ids
    )
    surrogate = surrogate * weights
    sums |= corrections.sums(weights, truncated, mask)
  loss_weights = batch.policy_weights
  if loss_weights is None:
    loss_weights = batch.loss_weights
  weighted = jnp.sum(loss_weights * surrogate)
  return weighted, sums | {"learner/policy_loss": weighted}


def _kl(
  model: transformer.Transformer,
  kl_estimator: str,
  scoring: _Scoring,
  fixed: Fixed,
  batch: types.Batch,
  hidden: Float[Array, "B S D"],
  head: Float[Array, "D V"],
  logprobs: Float[Array, "B S"],
) -> Float[Array, "B S"]:
  """Returns KL(policy || reference) at each target, or its estimate.

  Args:
    model: the decoder of both policy and reference.
    kl_estimator: a key of `KL_ESTIMATORS`, or `FULL_KL`.
    scoring: how log-probabilities are computed.
    fixed: holds the reference's parameters, which get no gradient.
    batch: the micro-batch.
    hidden: the policy's last hidden states.
    head: the policy's output head.
    logprobs: log-probabilities of the targets under the policy.
  """
  assert fixed.reference is not None
  reference = jax.lax.stop_gradient(fixed.whole(fixed.reference))
  # The reference routes for itself; the sampler's experts are the policy's.
  ref_hidden = hidden_states(model, reference, batch.replace(experts=None))
  ref_head = transformer.unembedding(reference, model.config)
  mask = batch.loss_mask
  if kl_estimator == kl_estimators.FULL_KL:
    return divergences.chunked_divergence(
      divergences.REVERSE_KL,
      *(hidden, head, ref_hidden, ref_head),
      mask=mask,
      **scoring,
    )
  ref_logprobs, _ = logprobs_lib.chunked_logprobs(
    ref_hidden, ref_head, batch.targets, mask=mask, **scoring
  )
  return kl_estimators.KL_ESTIMATORS[kl_estimator](logprobs - ref_logprobs)


def make_supervised_loss(
  model: transformer.Transformer, *, chunk_tokens: int, mesh: Mesh | None
) -> MicroLoss:
  """Returns the supervised loss of one micro-batch.

  loss = sum over targets t of -w_t log p(t), w_t: `batch.loss_weights`.

  Args:
    model: the decoder.
    chunk_tokens: number of tokens whose logits exist at the same time.
    mesh: the device mesh of the batch, as in `logprobs.chunked_logprobs`.
  """

  def loss_fn(
    trained: Params, batch: types.Batch, fixed: Fixed
  ) -> tuple[jax.Array, Metrics]:
    params = fixed.whole(trained)
    hidden, routed = forward(model, params, batch)
    head = transformer.unembedding(params, model.config)
    logprobs, entropy = _score(hidden, head, batch, 1.0, chunk_tokens, mesh)
    nll = -logprobs
    mask = batch.loss_mask
    return jnp.sum(batch.loss_weights * nll), {
      **routing.sums(routed, model.config, batch),
      "learner/nll": masked.masked_sum(nll, mask),
      "learner/entropy": masked.masked_sum(entropy, mask),
    }

  return loss_fn
