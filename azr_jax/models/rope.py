"""Rotary position embeddings, with the frequency scaling of Llama 3.1."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32, Int

from azr_jax.models.config import Llama3RopeScaling, ModelConfig


def inverse_frequencies(
  config: ModelConfig,
) -> Float32[np.ndarray, " pairs"]:
  """Returns the radians per position of each of the E / 2 channel pairs."""
  exponents = np.arange(0, config.head_size, 2, dtype=np.float32)
  frequencies = 1.0 / config.rope_theta ** (exponents / config.head_size)
  if config.rope_scaling is not None:
    frequencies = _scale_llama3(frequencies, config.rope_scaling)
  return frequencies.astype(np.float32)


def scaling_factors(config: ModelConfig) -> Float32[np.ndarray, " pairs"]:
  """Returns the divisor of each frequency.

  Args:
    config: config of a model with `rope_scaling`.
  """
  plain = dataclasses.replace(config, rope_scaling=None)
  return inverse_frequencies(plain) / inverse_frequencies(config)


def _scale_llama3(
  frequencies: Float[np.ndarray, " pairs"], scaling: Llama3RopeScaling
) -> Float[np.ndarray, " pairs"]:
  """Divides frequencies with long wavelengths by `factor`.

  Short wavelengths keep their frequency, and the band in between is blended.
  """
  wavelengths = 2 * math.pi / frequencies
  low = scaling.original_max_position / scaling.low_freq_factor
  high = scaling.original_max_position / scaling.high_freq_factor
  blend = (
    scaling.original_max_position / wavelengths - scaling.low_freq_factor
  ) / (scaling.high_freq_factor - scaling.low_freq_factor)
  blended = (1 - blend) * frequencies / scaling.factor + blend * frequencies
  scaled = np.where(wavelengths > low, frequencies / scaling.factor, blended)
  return np.where(wavelengths < high, frequencies, scaled)


@jax.named_scope("rope")
def rotate(
  x: Float[Array, "B S H E"],
  positions: Int[Array, "B S"],
  frequencies: Float32[np.ndarray, " E//2"],
) -> Float[Array, "B S H E"]:
  """Rotates channel pairs (e, e + E/2) of each head by position x frequency.

  Args:
    x: queries or keys.
    positions: position of each token in its sequence.
    frequencies: from `inverse_frequencies`.

  Returns:
    The rotated heads, computed in float32, in the dtype of `x`.
  """
  turns = angles(positions, frequencies)[:, :, None]
  sin, cos = jnp.sin(turns), jnp.cos(turns)
  first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
  rotated = jnp.concatenate(rotate_pairs(first, second, cos, sin), axis=-1)
  return jax.lax.convert_element_type(rotated, x.dtype)


def angles(
  positions: Int[Array, "*B"], frequencies: Float32[np.ndarray, " pairs"]
) -> Float32[Array, "*B pairs"]:
  """Returns the angle of each channel pair at each position."""
  per_pair = jnp.expand_dims(frequencies, range(positions.ndim))
  return positions[..., None].astype(jnp.float32) * per_pair


def rotate_pairs(
  first: Float32[Array, "..."],
  second: Float32[Array, "..."],
  cos: Float32[Array, "..."],
  sin: Float32[Array, "..."],
) -> tuple[Float32[Array, "..."], Float32[Array, "..."]]:
  """Returns the rotated channels of pairs."""
  return first * cos - second * sin, second * cos + first * sin
