"""How the numbers of micro-batches become metrics of an update.

A name that ends with `_max` is a maximum, every other one a sum over targets,
which is divided by their number unless the batch's weights average it already.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from azr_jax.learner import corrections, gap
from azr_jax.types import Metrics

# Sums that the batch's weights already average; others are divided by tokens.
_WEIGHTED = ("learner/policy_loss",)


def add(total: Metrics, micro: Metrics) -> Metrics:
  """Returns the numbers of two parts of a batch as those of both."""
  return {
    name: (jnp.maximum if name.endswith("_max") else jnp.add)(value, other)
    for name, value in total.items()
    for other in [micro[name]]
  }


def finish(sums: Metrics, tokens: Float[Array, ""]) -> Metrics:
  """Returns the metrics of a batch.

  Args:
    sums: of all micro-batches.
    tokens: how many targets are trained on, at least 1.
  """
  sums = dict(sums)
  metrics = gap.percentiles(sums, tokens)
  metrics |= {
    name: value if _is_whole(name) else value / tokens
    for name, value in sums.items()
  }
  return metrics | corrections.effective_fraction(metrics)


def _is_whole(name: str) -> bool:
  return name in _WEIGHTED or name.endswith("_max")
