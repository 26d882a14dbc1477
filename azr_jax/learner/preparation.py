"""What an update needs of its whole batch, before its first micro-batch.

A micro-batch is an accident of the layout, so nothing that ranks targets is
computed in one: results must not depend on how many there are, nor on devices.
The papers rank within a micro-batch. Three things need the whole batch:

1. the log-probabilities under the policy at the update's start, for ratios of
   several epochs; a pass scores the batch, a forward pass without gradients;
2. the targets of largest entropy, to which the policy loss is confined (Beyond
   the 80/20 Rule, arXiv 2506.01939, eq. 5); the same pass gives entropies;
3. the targets that a policy loss chooses by their covariances of
   log-probability and advantage. With one epoch these are the sampler's
   log-probabilities, which saves the pass: they are the policy's own but for
   rounding and staleness.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Float

from azr_jax import types
from azr_jax.learner import objective, order_statistics, policy_losses, update
from azr_jax.learner.train_state import TrainState
from azr_jax.models import transformer
from azr_jax.parallel import compiler
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.types import Metrics, Params

# Jitted: (params, step, batch) -> (fields that the batch lacks, metrics).
Prepare: TypeAlias = jax.stages.Wrapped
# (params, batch) -> (log-probabilities, entropies).
Scores: TypeAlias = Callable[[Params, types.Batch], tuple[jax.Array, jax.Array]]


def make_prepare(
  model: transformer.Transformer,
  *,
  temperature: float,
  chunk_tokens: int,
  mesh: Mesh,
  needs_proximal: bool = False,
  top_entropy_fraction: float = 1.0,
  choose: Callable[..., jax.Array] | None = None,
  options: compiler.Options = None,
) -> Prepare | None:
  """Returns the jitted preparation of a batch; None if nothing needs one.

  Args:
    model: the policy's decoder.
    temperature: the sampling temperature, by which logits are divided.
    chunk_tokens: tokens whose logits exist at the same time.
    mesh: where the batch lies.
    needs_proximal: whether ratios need the log-probabilities at the update's
      start, because there are several epochs.
    top_entropy_fraction: the part of the targets, by entropy, that the policy
      loss counts.
    choose: of the policy loss, from `policy_losses.make`.
    options: of XLA.

  Returns:
    `(params, step, batch [A, B, S]) -> (fields, metrics)`: the fields replace
    those of the batch in every epoch.
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
    mask, logprobs = batch.loss_mask, batch.old_logprobs
    if needs_scores:
      logprobs, entropies = scores(params, batch)
      if needs_proximal:
        fields["proximal_logprobs"] = logprobs
      if top_entropy_fraction < 1:
        chosen = _top_entropy(entropies, mask, top_entropy_fraction)
        fields["loss_weights"] = batch.loss_weights * chosen
        lowest = jnp.min(jnp.where(chosen, entropies, jnp.inf))
        metrics["learner/top_entropy_min"] = jnp.where(
          jnp.any(chosen), lowest, 0.0
        )
    if choose is not None:
      found = policy_losses.covariances(logprobs, batch.advantages, mask)
      # The number of the update makes the draw, so a resumed run repeats it.
      key = jax.random.fold_in(jax.random.key(0), step)
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
  """Returns `(params, batch [A, B, S]) -> (log-probabilities, entropies)`.

  Both are [A, B, S], of the targets and in nats, and 0 in micro-batches that
  are empty.

  Args:
    model: the decoder.
    chunk_tokens: tokens whose logits exist at the same time.
    temperature: divides the logits.
    mesh: where the batch lies.
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
) -> Array:
  """Returns true at the part of the targets with the largest entropies."""
  count = jnp.ceil(fraction * jnp.sum(mask)).astype(jnp.int32)
  return order_statistics.largest(entropies, mask, count)


def prepared(
  prepare: Prepare | None, state: TrainState, batch: types.Batch
) -> tuple[types.Batch, Metrics]:
  """Returns a batch with what `prepare` makes of it, and metrics.

  Args:
    prepare: from `make_prepare`.
    state: the policy at the update's start.
    batch: all micro-batches, with advantages.
  """
  if prepare is None:
    return batch, {}
  fields, metrics = prepare(state.params, state.step, batch)
  return batch.replace(**fields), metrics
