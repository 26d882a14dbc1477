"""Generalized advantage estimation, as a scan over packed rows.

A_t = sum over k of (gamma lambda)^k delta_(t+k),
delta_t = r_t + gamma V_(t+1) - V_t, with the whole reward on a sequence's last
trained token. A penalty of each token lowers r_t. At gamma = lambda = 1 and
without penalties this is R - V_t (ORZ, section 2.1).

Tokens that the model did not write are not actions, so the scan skips them.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


class _Next(NamedTuple):
  """The next trained token of each row; the scan runs right to left."""

  value_B: Float[Array, " B"]
  advantage_B: Float[Array, " B"]
  segment_B: Int[Array, " B"]


def estimate(
  values: Float[Array, "B S"],
  rewards: Float[Array, "B S"],
  mask: Float[Array, "B S"],
  segment_ids: Int[Array, "B S"],
  *,
  gamma: float,
  gae_lambda: float,
  penalties: Float[Array, "B S"] | None = None,
) -> tuple[Float[Array, "B S"], Float[Array, "B S"]]:
  """Returns advantages and value targets of every trained token.

  Args:
    values: V of the state before each target, from `value_model.values`.
    rewards: at each target, the reward of its whole sequence.
    mask: 1 where the model wrote the target.
    segment_ids: the index of the target's sequence in its row.
    gamma: the discount.
    gae_lambda: 1 gives unbiased returns; 0 bootstraps after one step.
    penalties: what each token's reward loses. None: nothing.

  Returns:
    Advantages, and returns A + V, which the critic learns. Both are 0 where
    mask is 0.
  """

  def step(
    next_token: _Next, token: tuple[jax.Array, ...]
  ) -> tuple[_Next, jax.Array]:
    value_B, cost_B, reward_B, mask_B, segment_B = token
    is_last_B = next_token.segment_B != segment_B
    next_value_B = jnp.where(is_last_B, 0.0, next_token.value_B)
    next_advantage_B = jnp.where(is_last_B, 0.0, next_token.advantage_B)
    delta_B = (
      jnp.where(is_last_B, reward_B, 0.0) + gamma * next_value_B - cost_B
    )
    advantage_B = delta_B + gamma * gae_lambda * next_advantage_B
    this_token = _Next(value_B, advantage_B, segment_B)
    carry = jax.tree.map(
      lambda this, following: jnp.where(mask_B > 0, this, following),
      this_token,
      next_token,
    )
    return carry, jnp.where(mask_B > 0, advantage_B, 0.0)

  zeros_B = jnp.zeros(values.shape[0], jnp.float32)
  # -1 matches no sequence, so the scan starts after the end of a sequence.
  no_segment_B = jnp.full(values.shape[0], -1, segment_ids.dtype)
  costs = values if penalties is None else values + penalties
  by_time = tuple(x.T for x in (values, costs, rewards, mask, segment_ids))
  _, advantages = jax.lax.scan(
    step, _Next(zeros_B, zeros_B, no_segment_B), by_time, reverse=True
  )
  advantages = advantages.T
  return advantages, (advantages + values) * (mask > 0)
