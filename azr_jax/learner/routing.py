"""Metrics of routers: the experts' load, and the routers' entropy.

A layer's load is the number of tokens of its busiest expert, divided by the
mean over experts. 1 is perfectly even.
"""

import jax.numpy as jnp

from azr_jax import types
from azr_jax.learner import masked
from azr_jax.models import experts
from azr_jax.models.config import ModelConfig
from azr_jax.types import Metrics

# Tokens of each expert [L, X]; no metric.
COUNTS = "learner/expert_counts"
# Fraction of targets and layers in which the router would choose other experts
# than the sampler's, which are replayed.
GAP = "rollout/router_gap"


def sums(
  routing: experts.Routing | None, config: ModelConfig, batch: types.Batch
) -> Metrics:
  """Returns sums over a micro-batch; {} without experts.

  Args:
    routing: the routing of all tokens.
    config: the decoder's config.
    batch: the micro-batch. Entropies count at trained targets, and the load of
      experts at all tokens.
  """
  if routing is None or config.experts is None:
    return {}
  # Padding has no expert, so it counts nowhere.
  index = jnp.arange(config.experts.count)
  is_own = routing.chosen[..., None] == index[None, None, None, None]
  entropy, differs = (
    masked.masked_sum(jnp.mean(values, axis=0), batch.loss_mask)
    for values in (routing.entropy, routing.differs)
  )
  return {
    COUNTS: jnp.sum(is_own, axis=(1, 2, 3), dtype=jnp.float32),
    "learner/router_entropy": entropy,
    **({} if batch.experts is None else {GAP: differs}),
  }


def loads(sums: Metrics) -> Metrics:
  """Returns the mean load of the layers and the largest; {} without experts.

  Args:
    sums: sums over all micro-batches.
  """
  if COUNTS not in sums:
    return {}
  counts = sums[COUNTS]
  mean = jnp.maximum(jnp.mean(counts, axis=1), 1e-9)
  load = jnp.max(counts, axis=1) / mean
  return {
    "learner/expert_load": jnp.mean(load),
    "learner/expert_load_max": jnp.max(load),
  }
