"""Training parameters, rounded as in a quantized sampler."""

import functools

import jax

from azr_jax.models import quantization, sampling_params


@functools.partial(jax.jit, static_argnums=1)
def rounded(params, dtype):
  """Returns float parameters with the layers' kernels rounded one by one."""
  quantized = sampling_params.quantize(params, dtype)

  def round_leaf(path, leaf):
    if path[-1].key != "kernel":
      return leaf
    projection = quantized
    for key in path[:-1]:
      projection = projection[key.key]
    numbers, scale = projection["kernel"], projection["scale"]
    assert numbers.dtype == dtype
    axes = tuple(range(1, 1 + numbers.ndim - scale.ndim))
    return quantization.dequantize(numbers, scale, axes)

  return jax.tree_util.tree_map_with_path(round_leaf, params)
