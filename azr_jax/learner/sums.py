"""Combines sums of micro-batches into the metrics of an update.

A metric whose name ends with `_max` is a maximum. Any other is a sum over
targets, divided by their number unless the batch's weights already average it.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from azr_jax.learner import corrections, distillation, gap, routing
from azr_jax.types import Metrics

# Sums that the batch's weights already average.
_WEIGHTED = ("learner/policy_loss",)


def add(total: Metrics, micro: Metrics) -> Metrics:
  """Combines the sums of two parts of a batch."""
  return {
    name: (jnp.maximum if name.endswith("_max") else jnp.add)(value, other)
    for name, value in total.items()
    for other in [micro[name]]
  }


def finish(sums: Metrics, tokens: Float[Array, ""]) -> Metrics:
  """Returns the metrics of a batch.

  Args:
    sums: sums over all micro-batches.
    tokens: number of trained targets, at least 1.
  """
  metrics = {
    name: value if _is_whole(name) else value / tokens
    for name, value in sums.items()
    if name not in (gap.COUNTS, routing.COUNTS)
  }
  metrics = corrections.with_effective_fraction(metrics)
  metrics = distillation.per_teacher(metrics)
  return metrics | gap.percentiles(sums, tokens) | routing.loads(sums)


def _is_whole(name: str) -> bool:
  return name in _WEIGHTED or name.endswith("_max")
