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
from azr_jax.learner.objective import Fixed
from azr_jax.learner.train_state import TrainState
from azr_jax.learner.update import Update
from azr_jax.types import Metrics

Pass: TypeAlias = Callable[
  [TrainState, types.Batch, Fixed], tuple[TrainState, Metrics]
]
_TOKENS = "learner/tokens"
# Metrics of a pass that are sums over its steps, or values after the last one.
# Those named `*_max` are maxima, the others means over trained tokens.
_SUMS = (_TOKENS, "learner/rows", "learner/skipped")
_LAST = ("learner/nonfinite", "learner/entropy_coef")


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
  """Returns the metrics of a pass from those of its steps."""
  tokens = jnp.stack([step[_TOKENS] for step in steps])
  total = jnp.maximum(jnp.sum(tokens), 1.0)
  found = {}
  for name in steps[0]:
    values = jnp.stack([step[name] for step in steps])
    if name in _SUMS:
      found[name] = jnp.sum(values)
    elif name in _LAST:
      found[name] = values[-1]
    elif name.endswith("_max"):
      found[name] = jnp.max(values)
    else:
      found[name] = jnp.sum(values * tokens) / total
  return found | {"learner/updates": jnp.sum(tokens > 0)}
