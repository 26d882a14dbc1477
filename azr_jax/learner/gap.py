"""The gap between the sampler's log-probabilities and the learner's.

`sums.py` adds up the micro-batches' sums, and `percentiles` turns them into
metrics.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from azr_jax.learner import masked, order_statistics, routing
from azr_jax.types import Metrics

MEAN = "rollout/logprob_gap"
# Names of the sums behind the metrics of `percentiles`. Counts are no metric.
COUNTS, _MAXIMUM = f"{MEAN}_counts", f"{MEAN}_max"
_FRACTIONS = {"p50": 0.5, "p99": 0.99}


def sums(
  logprobs: Float[Array, "B S"],
  sampled_logprobs: Float[Array, "B S"],
  mask: Float[Array, "B S"],
) -> Metrics:
  """Returns sums and the maximum of |log p - log q| over a micro-batch.

  Args:
    logprobs: log p by the learner, without gradient.
    sampled_logprobs: log q by the sampler.
    mask: 1 where the model wrote the target.
  """
  gap = jnp.abs(logprobs - sampled_logprobs)
  return {
    MEAN: masked.masked_sum(gap, mask),
    COUNTS: order_statistics.counts_from_edges(gap, mask),
    _MAXIMUM: jnp.max(jnp.where(mask > 0, gap, 0.0)),
  }


def keep_first(first: Metrics, last: Metrics) -> Metrics:
  """Returns metrics of a later epoch or step with the gap of the first one.

  Later epochs and steps start with parameters that have already learned from
  the batch, so their distance to the sampler is not a numerical disagreement.

  Args:
    first: metrics of the first epoch or step, or of all so far; empty before
      the first.
    last: metrics of the latest ones.
  """
  kept = {n: x for n, x in first.items() if n.startswith((MEAN, routing.GAP))}
  return last | kept


def percentiles(sums: Metrics, tokens: Float[Array, ""]) -> Metrics:
  """Returns percentiles of |log p - log q| in nats; {} without their sums.

  Args:
    sums: sums over all micro-batches.
    tokens: number of trained targets.
  """
  if COUNTS not in sums:
    return {}
  counts, maximum = sums[COUNTS], sums[_MAXIMUM]
  return {
    f"{MEAN}_{name}": order_statistics.quantile(
      counts, tokens, maximum, fraction
    )
    for name, fraction in _FRACTIONS.items()
  }
