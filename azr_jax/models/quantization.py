"""8-bit values with scales, for the weights and the KV cache of sampling.

Decoding is bound by memory, not by compute: it reads every weight and every
cached key and value for each token. An 8-bit value takes half the bytes of
bfloat16. Values are converted when they are multiplied, so products run in
`model.dtype`, and a scale multiplies their result.

Quantization is symmetric: q = round(x / s), where s is the largest |x| of the
values that share s, divided by the largest number of the dtype. Each output
channel of a product has a scale, and so does each cached token in each key
head.
"""

import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Float32, Num

# Dtypes by name: int8, and e4m3 of "FP8 Formats for Deep Learning", arXiv
# 2209.05433.
DTYPES: dict[str, jnp.dtype] = {
  "int8": jnp.dtype(jnp.int8),
  "fp8": jnp.dtype(jnp.float8_e4m3fn),
}
_LARGEST = {DTYPES["int8"]: 127.0, DTYPES["fp8"]: 448.0}
# Lower bound of the largest value that determines a scale.
_SMALLEST = 1e-30


def is_quantized(dtype: DTypeLike) -> bool:
  """Returns whether values of a dtype have scales."""
  return jnp.dtype(dtype) in _LARGEST


def quantize(
  values: Float[Array, "..."], dtype: DTypeLike, axes: tuple[int, ...]
) -> tuple[Num[Array, "..."], Float32[Array, "..."]]:
  """Returns 8-bit values and the scales that multiply them.

  Args:
    values: values of any float dtype.
    dtype: one of `DTYPES`.
    axes: values along these axes share a scale.

  Returns:
    An array of `dtype` shaped like `values`, and scales without `axes`.
    Scales are positive, even if all values are 0.
  """
  dtype = jnp.dtype(dtype)
  values = values.astype(jnp.float32)
  largest = jnp.max(jnp.abs(values), axis=axes, keepdims=True)
  scale = jnp.maximum(largest, _SMALLEST) / _LARGEST[dtype]
  values = values / scale
  if dtype == jnp.int8:
    values = jnp.round(values)
  return values.astype(dtype), jnp.squeeze(scale, axes)


def dequantize(
  quantized: Num[Array, "..."],
  scale: Float32[Array, "..."],
  axes: tuple[int, ...],
) -> Float32[Array, "..."]:
  """Returns values from 8-bit values and scales.

  Args:
    quantized: the values from `quantize`.
    scale: the scales from `quantize`.
    axes: the axes passed to `quantize`.
  """
  return quantized.astype(jnp.float32) * jnp.expand_dims(scale, axes)
