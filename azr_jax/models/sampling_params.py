"""Parameters as sampling reads them: cast or quantized, fused, unstacked.

Decoding reads every kernel for each token. Training keeps kernels separate and
layers stacked, as in checkpoints and exports.

The query, key and value kernels are joined into one, because a layer with few
large products is faster than one with many small ones. Gate and up stay
separate. Joining them would speed up a layer by 3 % on a TPU, but only in a
layout that a GPU would transpose for each token.

Layer kernels may have 8 bits, with a scale per output channel
(`quantization.py`). The token table, the output head, norms and biases keep
their dtype: they are a small part of a large model, and rounding the head
affects the logits directly.

In a loop over stacked layers, XLA copies each layer's kernels on CPUs and GPUs
before it multiplies by them, and on TPUs it loads none of them early. So each
layer has its own arrays.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.typing import DTypeLike
from jaxtyping import Array, Num

from azr_jax.models import quantization, transformer
from azr_jax.models.config import ModelConfig
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.types import Params, Rules


def fits(config: ModelConfig, mesh: Mesh, rules: Rules) -> bool:
  """Returns whether a fused kernel is sharded like its parts.

  Queries are fused with the key head that they attend to. If a mesh divides the
  query heads but not the key heads, every device would hold the whole fused
  kernel.

  Args:
    config: the model's config.
    mesh: the device mesh of sampling.
    rules: logical parameter axis to mesh axis.
  """
  heads, kv_heads = (
    mesh_lib.param_spec((name,), (size,), mesh, rules)
    for name, size in (
      ("heads", config.num_heads),
      ("kv_heads", config.num_kv_heads),
    )
  )
  return heads == kv_heads


def fuse(params: Params, config: ModelConfig) -> Params:
  """Returns the parameters of a decoder with `fused` kernels.

  Args:
    params: as from `transformer.init_params`: kernels q [L, D, H, E], and k and
      v [L, D, K, E].
    config: the model's config.

  Returns:
    The parameters with qkv [L, D, K, H / K + 2, E] in place of the three.
  """
  layers = dict(params["layers"])
  attention = dict(layers["attention"])
  parts = [attention.pop(name) for name in ("q", "k", "v")]
  attention["qkv"] = {
    leaf: _join_heads(config, *(part[leaf] for part in parts))
    for leaf in parts[0]
  }
  return params | {"layers": layers | {"attention": attention}}


def _join_heads(
  config: ModelConfig,
  q: Num[Array, "... H E"],
  k: Num[Array, "... K E"],
  v: Num[Array, "... K E"],
) -> Num[Array, "... K H//K+2 E"]:
  """Joins the queries of each key head with its key and value."""
  c = config
  group = c.num_heads // c.num_kv_heads
  q = q.reshape(*q.shape[:-2], c.num_kv_heads, group, c.head_size)
  return jnp.concatenate([q, k[..., None, :], v[..., None, :]], axis=-2)


# The input axes of each kernel in a layer; axis 0 is the layer.
_SUMMED_AXES = {
  "attention": {"q": (1,), "k": (1,), "v": (1,), "o": (1, 2)},
  "mlp": {"gate": (1,), "up": (1,), "down": (1,)},
}


def quantize(params: Params, dtype: DTypeLike) -> Params:
  """Returns the parameters of a decoder with a `kernel_dtype`.

  Args:
    params: as from `transformer.init_params`.
    dtype: a dtype of `quantization.DTYPES`.

  Returns:
    The parameters with layer kernels in this dtype, and next to each kernel its
    `scale`, float32 [L, *O], where O are the kernel's output axes.
  """
  layers: dict[str, Any] = dict(params[transformer.LAYERS])
  for part, projections in _SUMMED_AXES.items():
    layers[part] = dict(layers[part])
    for name, axes in projections.items():
      projection = layers[part][name]
      kernel, scale = quantization.quantize(projection["kernel"], dtype, axes)
      layers[part][name] = projection | {"kernel": kernel, "scale": scale}
  return params | {transformer.LAYERS: layers}


def layer_bytes(model: transformer.Transformer) -> int:
  """Returns the size of one layer's parameters as sampling reads them.

  Args:
    model: the sampling decoder, with layers neither fused nor unrolled.
  """
  boxed = transformer.abstract_params(model)
  params = jax.eval_shape(
    lambda params: convert(model, params), nn.unbox(boxed)
  )
  leaves = jax.tree.leaves(params[transformer.LAYERS])
  total = sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)
  return total // model.config.num_layers


def unstack(params: Params, num_layers: int) -> Params:
  """Returns the parameters of an `unrolled` decoder.

  Args:
    params: parameters with leaves [L, ...] in `layers`.
    num_layers: L.

  Returns:
    The parameters with `layers_0` and so on in place of `layers`.
  """
  others = {k: v for k, v in params.items() if k != transformer.LAYERS}
  stacked = params[transformer.LAYERS]
  return others | {
    f"{transformer.LAYERS}_{index}": jax.tree.map(
      lambda leaf, index=index: leaf[index], stacked
    )
    for index in range(num_layers)
  }


def stack(params: Params, num_layers: int) -> Params:
  """Returns parameters as before `unstack`; copies the layers."""
  names = [f"{transformer.LAYERS}_{index}" for index in range(num_layers)]
  others = {k: v for k, v in params.items() if k not in names}
  layers = [params[name] for name in names]
  stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *layers)
  return others | {transformer.LAYERS: stacked}


def convert(model: transformer.Transformer, params: Params) -> Params:
  """Converts training parameters to those that sampling reads.

  Args:
    model: the sampling decoder.
    params: the training parameters.
  """
  if model.kernel_dtype is not None:
    # Quantize before the cast to `dtype`, so that kernels are rounded once.
    params = quantize(params, model.kernel_dtype)
  params = transformer.compute_params(model.dtype, params)
  if model.fused:
    params = fuse(params, model.config)
  if model.unrolled:
    params = unstack(params, model.config.num_layers)
  return params
