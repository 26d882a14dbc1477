"""The exponential moving average of the policy's parameters: SDPO's teacher.

After an update, average = average + rate * (parameters - average). It starts as
the parameters of a fresh optimizer (SDPO, arXiv 2601.20802). SDPO's code moves
it once per batch, this one in each of a batch's updates. The average is part of
the optimizer's state, so it is sharded, checkpointed, resumed and handed to a
next stage with the moments, and an update that is skipped leaves it as it is.
With adapters, it averages their factors, not the products.
"""

from typing import NamedTuple, cast

import jax
import jax.numpy as jnp
import optax

from azr_jax.learner.objective import Fixed
from azr_jax.types import Params


class AveragedState(NamedTuple):
  """The state of `averaged`.

  Attributes:
    average: the average of the trained parameters, float32.
    inner: the optimizer's state.
  """

  average: Params
  inner: optax.OptState


def averaged(
  optimizer: optax.GradientTransformation, rate: float
) -> optax.GradientTransformation:
  """Returns an optimizer whose state has the average of the parameters.

  Args:
    optimizer: computes the updates, which stay the same.
    rate: the fraction of the distance to the new parameters by which an update
      moves the average.
  """

  def init(params: optax.Params) -> AveragedState:
    # A copy, because an update donates parameters and average.
    start = jax.tree.map(jnp.copy, cast(Params, params))
    return AveragedState(start, optimizer.init(params))

  def update(
    updates: optax.Updates,
    state: optax.OptState,
    params: optax.Params | None = None,
  ) -> tuple[optax.Updates, AveragedState]:
    average, inner = cast(AveragedState, state)
    change, inner = optimizer.update(updates, inner, params)
    # The float32 sum, which `rounding.add` may round to bfloat16 afterwards.
    after = optax.apply_updates(cast(optax.Params, params), change)
    average = cast(Params, optax.incremental_update(after, average, rate))
    return change, AveragedState(average, inner)

  return optax.GradientTransformation(init, update)


def with_teacher(fixed: Fixed, opt_state: optax.OptState) -> Fixed:
  """Returns what an update reads, with the average as the teacher.

  It is returned unchanged if the optimizer's state has no average.
  """
  if not isinstance(opt_state, AveragedState):
    return fixed
  return fixed.replace(teacher=fixed.whole(opt_state.average))
