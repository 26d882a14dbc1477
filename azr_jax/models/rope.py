"""Rotary position embeddings, with the frequency scalings of all families."""

import dataclasses
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32, Int

from azr_jax.models.config import (
  LinearRopeScaling,
  Llama3RopeScaling,
  LongRopeScaling,
  ModelConfig,
  YarnRopeScaling,
)


class Rotary(NamedTuple):
  """The rotation of one layer, or with a leading L of all layers.

  Attributes:
    frequencies: radians per position of each rotated channel pair; 0 rotates
      nothing.
    magnitude: factor of rotated queries and keys. None: 1.
  """

  frequencies: Float32[np.ndarray, "*L pairs"] | Float32[Array, "*L pairs"]
  magnitude: Float32[np.ndarray, "*L"] | Float32[Array, "*L"] | None = None


def of_layers(config: ModelConfig) -> Rotary:
  """Returns the rotation of all layers; without L if they are alike."""
  kinds = config.windows or (0,) * config.num_layers
  rotated = config.rotated or (True,) * config.num_layers
  is_local = [bool(w) and config.local_rope_theta is not None for w in kinds]
  layers = list(zip(rotated, is_local, strict=True))
  if len(set(layers)) == 1:
    return _rotary(config, *layers[0])
  each = [_rotary(config, *layer) for layer in layers]
  magnitudes = [
    1.0 if x.magnitude is None else float(x.magnitude) for x in each
  ]
  return Rotary(
    np.stack([x.frequencies for x in each]),
    None if set(magnitudes) == {1.0} else np.asarray(magnitudes, np.float32),
  )


def _rotary(config: ModelConfig, rotates: bool, is_local: bool) -> Rotary:
  """Returns the rotation of a layer.

  Args:
    config: the decoder's config.
    rotates: whether the layer rotates queries and keys.
    is_local: whether it has `local_rope_theta`.
  """
  if is_local:
    assert config.local_rope_theta is not None
    config = dataclasses.replace(
      config, rope_theta=config.local_rope_theta, rope_scaling=None
    )
  frequencies = inverse_frequencies(config)
  if not rotates:
    return Rotary(np.zeros_like(frequencies))
  factor = getattr(config.rope_scaling, "attention_factor", 1.0)
  return Rotary(
    frequencies, None if factor == 1.0 else np.asarray(factor, np.float32)
  )


def for_length(config: ModelConfig, longest: int) -> ModelConfig:
  """Returns the config for a run whose sequences have at most this length.

  LongRoPE has other frequencies for long sequences. A run takes one set for all
  of its sequences, so that cached keys and log-probabilities stay comparable.

  Args:
    config: the decoder's config.
    longest: maximum number of tokens of a sequence.
  """
  scaling = config.rope_scaling
  if not isinstance(scaling, LongRopeScaling):
    return config
  is_long = longest > scaling.original_max_position
  return dataclasses.replace(
    config, rope_scaling=dataclasses.replace(scaling, is_long=is_long)
  )


def inverse_frequencies(
  config: ModelConfig,
) -> Float32[np.ndarray, " pairs"]:
  """Returns the radians per position of each rotated channel pair."""
  rotary_size = config.rotary_size or config.head_size
  exponents = np.arange(0, rotary_size, 2, dtype=np.float32)
  frequencies = 1.0 / config.rope_theta ** (exponents / rotary_size)
  match config.rope_scaling:
    case Llama3RopeScaling() as scaling:
      frequencies = _scale_llama3(frequencies, scaling)
    case YarnRopeScaling() as scaling:
      frequencies = _scale_yarn(frequencies, config.rope_theta, scaling)
    case LongRopeScaling() as scaling:
      factors = scaling.short_factors
      if scaling.is_long:
        factors = scaling.long_factors
      frequencies = frequencies / np.asarray(factors, np.float32)
    case LinearRopeScaling() as scaling:
      frequencies = frequencies / scaling.factor
  return frequencies.astype(np.float32)


def scaling_factors(config: ModelConfig) -> Float32[np.ndarray, " pairs"]:
  """Returns the divisor of each frequency.

  Args:
    config: config of a model with `rope_scaling`.
  """
  plain = dataclasses.replace(config, rope_scaling=None)
  return inverse_frequencies(plain) / inverse_frequencies(config)


def _scale_yarn(
  frequencies: Float[np.ndarray, " pairs"],
  theta: float,
  scaling: YarnRopeScaling,
) -> Float[np.ndarray, " pairs"]:
  """Divides slow frequencies by `factor` and blends those in between.

  Args:
    frequencies: the unscaled frequencies.
    theta: their base.
    scaling: the speeds at which the blend begins and ends.
  """
  pairs = len(frequencies)

  def pair_of(turns: float) -> float:
    """Returns the index of the pair that turns so often in the length."""
    wavelength = scaling.original_max_position / turns
    return pairs * math.log(wavelength / (2 * math.pi)) / math.log(theta)

  first, last = pair_of(scaling.beta_fast), pair_of(scaling.beta_slow)
  if scaling.truncate:
    first, last = math.floor(first), math.ceil(last)
  first, last = max(first, 0), min(last, 2 * pairs - 1)
  # A blend of length 0 is a step between two pairs.
  length = max(last - first, 0.001)
  slow = np.clip((np.arange(pairs) - first) / length, 0, 1)
  return frequencies * (1 - slow) + frequencies / scaling.factor * slow


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
  frequencies: Float32[np.ndarray, " pairs"] | Float32[Array, " pairs"],
  magnitude: Float32[np.ndarray, ""] | Float32[Array, ""] | None = None,
) -> Float[Array, "B S H E"]:
  """Rotates channel pairs (e, e + R/2) of each head by position x frequency.

  R, the number of rotated channels, is twice the number of frequencies. The
  others stay as they are.

  Args:
    x: queries or keys.
    positions: position of each token in its sequence.
    frequencies: see `Rotary`.
    magnitude: see `Rotary`.

  Returns:
    The rotated heads, computed in float32, in the dtype of `x`.
  """
  turns = angles(positions, frequencies)[:, :, None]
  sin, cos = jnp.sin(turns), jnp.cos(turns)
  if magnitude is not None:
    sin, cos = sin * magnitude, cos * magnitude
  size = 2 * frequencies.shape[-1]
  rest = x[..., size:] if size < x.shape[-1] else None
  x = x if rest is None else x[..., :size]
  first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
  rotated = jnp.concatenate(rotate_pairs(first, second, cos, sin), axis=-1)
  rotated = jax.lax.convert_element_type(rotated, x.dtype)
  if rest is None:
    return rotated
  return jnp.concatenate([rotated, rest], axis=-1)


def angles(
  positions: Int[Array, "*B"],
  frequencies: Float32[np.ndarray, " pairs"] | Float32[Array, " pairs"],
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
