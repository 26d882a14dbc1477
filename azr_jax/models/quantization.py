"""Numbers of 8 bits with scales, for the weights and the cache of sampling.

Decoding waits for memory, not for products: it reads every weight and every
cached key and value for each token. A number of 8 bits is half of one in
bfloat16. It is converted where it is multiplied, so products are those of
`model.dtype`, and a scale multiplies their result.

Quantization is symmetric: q = x / s, rounded, where s is the largest |x| of
those that share it divided by the largest number of the type. A product's
output channel has a scale, and each cached token in each key head.
"""

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float

# The types by name: int8, and e4m3 of "FP8 Formats for Deep Learning", arXiv
# 2209.05433.
DTYPES: dict[str, jnp.dtype] = {
  "int8": jnp.dtype(jnp.int8),
  "fp8": jnp.dtype(jnp.float8_e4m3fn),
}
_LARGEST = {DTYPES["int8"]: 127.0, DTYPES["fp8"]: 448.0}
# The largest value of those that share a scale is taken for no less than this.
_SMALLEST = 1e-30


def is_quantized(dtype: DTypeLike) -> bool:
  """Returns whether numbers of a type have scales."""
  return jnp.dtype(dtype) in _LARGEST


def quantize(
  values: Float[Array, "..."], dtype: DTypeLike, axes: tuple[int, ...]
) -> tuple[jax.Array, Float[Array, "..."]]:
  """Returns numbers of 8 bits, and the scales that multiply them.

  Args:
    values: of any float type.
    dtype: one of `DTYPES`.
    axes: the values along these axes share a scale.

  Returns:
    An array of `dtype` as large as `values`, and float32 scales without `axes`.
    Scales are positive, also of values that are all 0.
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
  quantized: jax.Array, scale: Float[Array, "..."], axes: tuple[int, ...]
) -> Float[Array, "..."]:
  """Returns the float32 numbers that `quantize` has rounded.

  Args:
    quantized: what it returned.
    scale: the same.
    axes: as for `quantize`.
  """
  return quantized.astype(jnp.float32) * jnp.expand_dims(scale, axes)
