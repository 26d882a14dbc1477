"""Generalised advantage estimation, as a scan over packed rows.

A_t = sum over k of (gamma lambda)^k delta_(t+k),
delta_t = r_t + gamma V_(t+1) - V_t, with the whole reward on a sequence's last
trained token. At gamma = lambda = 1 this is R - V_t (seed 002, section 2.1).

Tokens that the model did not write are no actions: the scan goes over them.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


def estimate(
  values: Float[Array, "B S"],
  rewards: Float[Array, "B S"],
  mask: Float[Array, "B S"],
  segment_ids: Int[Array, "B S"],
  *,
  gamma: float,
  gae_lambda: float,
) -> tuple[Float[Array, "B S"], Float[Array, "B S"]]:
  """Advantages and value targets of every trained token.

  Args:
    values: V of the state before each target, see `critic.values`.
    rewards: of each target's whole sequence.
    mask: 1 where the target was written by the model.
    segment_ids: which sequence of its row a target belongs to.
    gamma: the discount.
    gae_lambda: 1: unbiased returns; 0: one step and the value after it.

  Returns:
    Advantages, and returns A + V, which the critic learns; 0 where mask is.
  """

  def step(
    later: tuple[jax.Array, ...], now: tuple[jax.Array, ...]
  ) -> tuple[tuple[jax.Array, ...], jax.Array]:
    value_B, reward_B, mask_B, segment_B = now
    next_value_B, next_advantage_B, next_segment_B = later
    is_last_B = next_segment_B != segment_B
    next_value_B = jnp.where(is_last_B, 0.0, next_value_B)
    next_advantage_B = jnp.where(is_last_B, 0.0, next_advantage_B)
    delta_B = (
      jnp.where(is_last_B, reward_B, 0.0) + gamma * next_value_B - value_B
    )
    advantage_B = delta_B + gamma * gae_lambda * next_advantage_B
    own = (value_B, advantage_B, segment_B)
    carried = tuple(
      jnp.where(mask_B > 0, x, y) for x, y in zip(own, later, strict=True)
    )
    return carried, jnp.where(mask_B > 0, advantage_B, 0.0)

  nothing_B = jnp.zeros(values.shape[0], jnp.float32)
  # No sequence has this number, so the last token of a row is a last one.
  no_segment_B = jnp.full(values.shape[0], -1, segment_ids.dtype)
  by_time = tuple(x.T for x in (values, rewards, mask, segment_ids))
  _, advantages = jax.lax.scan(
    step, (nothing_B, nothing_B, no_segment_B), by_time, reverse=True
  )
  advantages = advantages.T
  return advantages, (advantages + values) * (mask > 0)
