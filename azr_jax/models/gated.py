"""Gated activations, whose backward pass keeps only their inputs."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


@jax.custom_vjp
def silu(
  gate: Float[Array, "*B F"], up: Float[Array, "*B F"]
) -> Float[Array, "*B F"]:
  """Returns silu(gate) * up."""
  return nn.silu(gate) * up


def _silu_forward(
  gate: Float[Array, "*B F"], up: Float[Array, "*B F"]
) -> tuple[
  Float[Array, "*B F"], tuple[Float[Array, "*B F"], Float[Array, "*B F"]]
]:
  return nn.silu(gate) * up, (gate, up)


def _silu_backward(
  kept: tuple[Float[Array, "..."], Float[Array, "..."]],
  grad: Float[Array, "..."],
) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
  dtype = kept[0].dtype
  gate, up, grad = (x.astype(jnp.float32) for x in (*kept, grad))
  part = jax.nn.sigmoid(gate)
  gate_grad = grad * up * part * (1.0 + gate * (1.0 - part))
  return gate_grad.astype(dtype), (grad * gate * part).astype(dtype)


silu.defvjp(_silu_forward, _silu_backward)


@jax.custom_vjp
def silu_of_pairs(pairs: Float[Array, "B S F 2"]) -> Float[Array, "B S F"]:
  """Returns silu(gate) * up for pairs (gate, up)."""
  return nn.silu(pairs[..., 0]) * pairs[..., 1]


def _pairs_forward(
  pairs: Float[Array, "B S F 2"],
) -> tuple[Float[Array, "B S F"], Float[Array, "B S F 2"]]:
  return silu_of_pairs(pairs), pairs


def _pairs_backward(
  pairs: Float[Array, "B S F 2"], grad: Float[Array, "B S F"]
) -> tuple[Float[Array, "B S F 2"]]:
  # Swapping the pairs gives each number its partner, so one elementwise pass
  # writes both gradients.
  is_gate = jax.lax.broadcasted_iota(jnp.int32, pairs.shape, 3) == 0
  swapped = pairs[..., ::-1]
  gate = jnp.where(is_gate, pairs, swapped)
  up = jnp.where(is_gate, swapped, pairs)
  gate_grad, up_grad = _silu_backward((gate, up), grad[..., None])
  return (jnp.where(is_gate, gate_grad, up_grad),)


silu_of_pairs.defvjp(_pairs_forward, _pairs_backward)


@jax.checkpoint
def gelu(
  gate: Float[Array, "B S F"], up: Float[Array, "B S F"]
) -> Float[Array, "B S F"]:
  """Returns gelu(gate) * up."""
  return nn.gelu(gate, approximate=True) * up


# With a barrier against common subexpressions, GPUs would store float32 inputs.
@functools.partial(jax.checkpoint, static_argnums=(2, 3), prevent_cse=False)
def clamped(
  gate: Float[Array, "*B F"],
  up: Float[Array, "*B F"],
  alpha: float,
  limit: float,
) -> Float[Array, "*B F"]:
  """Returns (up + 1) gate sigmoid(alpha gate), after clamping both inputs.

  Args:
    gate: clamped from above alone.
    up: clamped from both sides.
    alpha: the sigmoid's factor.
    limit: the largest gate, and the largest magnitude of `up`.
  """
  dtype = gate.dtype
  gate = jnp.minimum(gate.astype(jnp.float32), limit)
  up = jnp.clip(up.astype(jnp.float32), -limit, limit)
  return ((up + 1.0) * gate * jax.nn.sigmoid(alpha * gate)).astype(dtype)
