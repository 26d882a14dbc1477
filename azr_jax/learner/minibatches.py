"""Several optimizer steps of the policy on one batch, as in PPO.

The host draws the parts (`packing.pack_minibatches`). Each step trains on one
part, with its own aggregation. Advantages and old log-probabilities are those
of the whole batch.
"""

from collections.abc import Callable
from typing import TypeAlias

import jax
import jax.numpy as jnp

from azr_jax import types
from azr_jax.learner import gap
from azr_jax.learner.objective import Fixed
from azr_jax.learner.train_state import TrainState
from azr_jax.learner.update import Update
from azr_jax.types import Metrics

Pass: TypeAlias = Callable[
  [TrainState, types.Batch, Fixed], tuple[TrainState, Metrics]
]
_TOKENS, _SKIPPED = "learner/tokens", "learner/skipped"
# Metrics of a pass that are sums over its steps, or values after the last one.
# Those named `*_max` are maxima, the others means over trained tokens.
_SUMS = (_TOKENS, "learner/rows", _SKIPPED)
_LAST = ("learner/nonfinite", "learner/entropy_coef")
# Means over all steps. Those of a skipped step, which are not finite, show
# here; other means leave it out.
_OF_ALL = ("learner/loss", "learner/grad_norm")


def make_pass(update: Update, minibatches: int) -> Pass:
  """Returns `(state, batch, fixed) -> (state, metrics)`, one step per part.

  It donates its state. A part without sequences changes nothing.

  Args:
    update: from `update.make_update`.
    minibatches: number of parts of a batch.
  """
  if minibatches == 1:
    return update

  def one_pass(
    state: TrainState, batch: types.Batch, fixed: Fixed
  ) -> tuple[TrainState, Metrics]:
    steps = []
    for number in range(1, minibatches + 1):
      state, metrics = update(state, batch, fixed, jnp.int32(number))
      steps.append(metrics)
    return state, _of_pass(steps)

  return one_pass


@jax.jit
def _of_pass(steps: list[Metrics]) -> Metrics:
  """Returns the metrics of a pass from those of its steps.

  The gap to the sampler comes from the first step alone, because later steps
  start from a policy that has moved.
  """
  tokens, skipped = (
    jnp.stack([step[name] for step in steps]) for name in (_TOKENS, _SKIPPED)
  )
  is_taken = (tokens > 0) & (skipped == 0)
  # If no step was taken, the means show why.
  is_shown = jnp.where(jnp.any(is_taken), is_taken, tokens > 0)
  found = {}
  for name in steps[0]:
    values = jnp.stack([step[name] for step in steps])
    inside = tokens > 0 if name in _OF_ALL else is_shown
    if name in _SUMS:
      found[name] = jnp.sum(values)
    elif name in _LAST:
      found[name] = values[-1]
    elif name.endswith("_max"):
      found[name] = jnp.max(jnp.where(inside, values, 0.0))
    else:
      total = jnp.maximum(jnp.sum(tokens * inside), 1.0)
      found[name] = jnp.sum(jnp.where(inside, values * tokens, 0.0)) / total
  found = gap.keep_first(steps[0], found)
  return found | {"learner/updates": jnp.sum(is_taken)}
