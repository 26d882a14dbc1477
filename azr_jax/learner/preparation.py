"""Whole-batch statistics, computed before the first micro-batch.

The papers rank targets within a micro-batch. We rank them over the whole batch,
because results must not depend on the number of micro-batches or devices. Three
things need the whole batch:

1. the log-probabilities under the policy at the update's start, for the ratios
   of several epochs. A forward pass without gradients computes them.
2. the targets with the largest entropies, to which the policy loss is confined
   (Beyond the 80/20 Rule, arXiv 2506.01939, eq. 5). The same pass gives
   entropies.
3. the targets that a policy loss selects by their covariance of
   log-probability and advantage. With one epoch these use the sampler's
   log-probabilities, which saves the pass. They equal the policy's own up to
   rounding and staleness.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float

from azr_jax import types
from azr_jax.learner import (
  objective,
  order_statistics,
  token_selection,
  update,
)
from azr_jax.learner.train_state import TrainState
from azr_jax.models import transformer
from azr_jax.parallel import compiler
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.randomness import keys
from azr_jax.randomness.purposes import Purpose
from azr_jax.types import Metrics, Params

# Jitted: (params, step, batch) -> (fields to set in the batch, metrics).
Prepare: TypeAlias = jax.stages.Wrapped
# (params, batch) -> (log-probabilities, entropies).
Scores: TypeAlias = Callable[
  [Params, types.Batch],
  tuple[Float[Array, "A B S"], Float[Array, "A B S"]],
]


def make_prepare(
  model: transformer.Transformer,
  *,
  temperature: float,
  chunk_tokens: int,
  mesh: Mesh,
  seed: int,
  needs_proximal: bool = False,
  top_entropy_fraction: float = 1.0,
  choose: Callable[..., Bool[Array, "A B S"]] | None = None,
  options: compiler.Options = None,
) -> Prepare | None:
  """Returns the jitted preparation of a batch; None if nothing needs one.

  Args:
    model: the policy's decoder.
    temperature: the sampling temperature; divides the logits.
    chunk_tokens: number of tokens whose logits exist at the same time.
    mesh: the device mesh of the batch.
    seed: the run's seed, for a random `choose`.
    needs_proximal: whether ratios need the log-probabilities at the update's
      start, because there are several epochs.
    top_entropy_fraction: fraction of the targets, by entropy, in the policy
      loss.
    choose: selects targets for the policy loss, from `policy_losses.make`. None
      if the loss selects none.
    options: XLA compiler options.

  Returns:
    `(params, step, batch [A, B, S]) -> (fields, metrics)`. The fields replace
    the batch's in every epoch.
  """
  needs_scores = needs_proximal or top_entropy_fraction < 1
  if not needs_scores and choose is None:
    return None

  scores = make_scores(model, chunk_tokens, temperature=temperature, mesh=mesh)

  def prepare(
    params: Params, step: jax.Array, batch: types.Batch
  ) -> tuple[dict[str, Any], Metrics]:
    fields: dict[str, Any] = {}
    metrics: Metrics = {}
    mask, logprobs = batch.loss_mask, batch.sampled_logprobs
    if needs_scores:
      logprobs, entropies = scores(params, batch)
      if needs_proximal:
        fields["proximal_logprobs"] = logprobs
      if top_entropy_fraction < 1:
        chosen = _top_entropy(entropies, mask, top_entropy_fraction)
        fields["policy_weights"] = batch.loss_weights * chosen
        lowest = jnp.min(jnp.where(chosen, entropies, jnp.inf))
        metrics["learner/top_entropy_min"] = jnp.where(
          jnp.any(chosen), lowest, 0.0
        )
    if choose is not None:
      assert batch.advantages is not None
      found = token_selection.covariances(logprobs, batch.advantages, mask)
      # The update count is folded in, so a resumed run repeats the selection.
      key = keys.of(seed, Purpose.SELECTION, step)
      fields["chosen"] = choose(found, mask, key) * 1.0
    return fields, metrics

  by_row = mesh_lib.token_sharding(mesh, axis=1)
  return jax.jit(
    prepare,
    out_shardings=(by_row, mesh_lib.replicated(mesh)),
    compiler_options=options,
  )


def make_scores(
  model: transformer.Transformer,
  chunk_tokens: int,
  *,
  temperature: float,
  mesh: Mesh,
) -> Scores:
  """Returns `(params, batch) -> (log-probabilities, entropies)`.

  Both are per target, in nats, and 0 in empty micro-batches.

  Args:
    model: the decoder.
    chunk_tokens: number of tokens whose logits exist at the same time.
    temperature: divides the logits.
    mesh: the device mesh of the batch.
  """

  def scores(
    params: Params, batch: types.Batch
  ) -> tuple[Float[Array, "A B S"], Float[Array, "A B S"]]:
    def add(
      index: jax.Array, found: tuple[jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
      logprobs, entropies = objective.score(
        model,
        params,
        update.micro_batch(batch, index),
        temperature,
        chunk_tokens,
        mesh,
      )
      return (
        found[0].at[index].set(logprobs),
        found[1].at[index].set(entropies),
      )

    zeros = jnp.zeros(batch.tokens.shape, jnp.float32)
    count = update.nonempty_micro_batches(batch)
    return jax.lax.fori_loop(0, count, add, (zeros, zeros))

  return scores


def _top_entropy(
  entropies: Float[Array, "A B S"], mask: Float[Array, "A B S"], fraction: float
) -> Bool[Array, "A B S"]:
  """Returns true at the fraction of targets with the largest entropies."""
  count = jnp.ceil(fraction * jnp.sum(mask)).astype(jnp.int32)
  return order_statistics.largest(entropies, mask, count)


def prepared(
  prepare: Prepare | None,
  state: TrainState,
  batch: types.Batch,
  fixed: objective.Fixed,
) -> tuple[types.Batch, Metrics]:
  """Returns a batch with the fields that `prepare` sets, and metrics.

  Args:
    prepare: from `make_prepare`.
    state: the policy's state at the update's start.
    batch: all micro-batches, with advantages.
    fixed: the parameters that are not trained.
  """
  if prepare is None:
    return batch, {}
  fields, metrics = prepare(fixed.whole(state.params), state.step, batch)
  return batch.replace(**fields), metrics
