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

import functools
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.typing import DTypeLike
from jaxtyping import Array, Num

from azr_jax.models import adapters, quantization, transformer
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


# The input axes of each kernel in a layer; axis 0 is the layer. The router's
# kernel is missing, because it is never quantized.
SUMMED_AXES = {
  "attention": {"q": (1,), "k": (1,), "v": (1,), "o": (1, 2)},
  "mlp": {"gate": (1,), "up": (1,), "down": (1,)},
  "experts": {"gate": (2,), "up": (2,), "down": (2,)},
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
  for part, projections in SUMMED_AXES.items():
    if part not in layers:
      continue
    layers[part] = dict(layers[part])
    for name, axes in projections.items():
      projection = layers[part][name]
      kernel, scale = quantization.quantize(projection["kernel"], dtype, axes)
      layers[part][name] = projection | {"kernel": kernel, "scale": scale}
  return params | {transformer.LAYERS: layers}


def is_quantized(params: Params) -> bool:
  """Returns whether the kernels of stacked layers have 8 bits."""
  kernel = params[transformer.LAYERS]["attention"]["o"]["kernel"]
  return quantization.is_quantized(kernel.dtype)


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


def unstack_rest(params: Params, num_layers: int) -> Params:
  """Returns the parameters of an `unrolled` decoder with stacked adapters.

  Args:
    params: parameters with `layers_0` and so on and, if there are adapters,
      these with leaves [L, ...] in `layers`.
    num_layers: L.
  """
  if transformer.LAYERS not in params:
    return params
  rest = unstack({transformer.LAYERS: params[transformer.LAYERS]}, num_layers)
  others = {k: v for k, v in params.items() if k != transformer.LAYERS}
  return adapters.join(others, rest)


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
    params: the training parameters. Kernels may already have 8 bits.
  """
  if model.kernel_dtype is not None and not is_quantized(params):
    # Quantize before the cast to `dtype`, so that kernels are rounded once.
    params = quantize(params, model.kernel_dtype)
  params = transformer.compute_params(model.dtype, params)
  if model.fused:
    params = fuse(params, model.config)
  if model.unrolled:
    params = unstack(params, model.config.num_layers)
  return params


def convert_adapters(model: transformer.Transformer, trained: Params) -> Params:
  """Converts the adapters of a base model that sampling reads as it is.

  Args:
    model: the sampling decoder.
    trained: the adapters, stacked.
  """
  trained = transformer.compute_params(model.dtype, trained)
  return (
    unstack(trained, model.config.num_layers) if model.unrolled else trained
  )


def arrange(model: transformer.Transformer, params: Params) -> Params:
  """Returns a frozen base model in the layout of a decoder.

  Takes the arrays out of `params` one by one, so that memory for a second copy
  of the whole model is never needed.

  Args:
    model: the decoder that reads the base; its adapters are left out.
    params: stacked parameters in their final dtypes. They must not be used
      afterwards.
  """
  if not params:
    return params
  layers = params.pop(transformer.LAYERS)
  if model.fused:
    attention = layers["attention"]
    parts = [attention.pop(name) for name in ("q", "k", "v")]
    attention["qkv"] = {
      leaf: jax.jit(functools.partial(_join_heads, model.config))(
        *(part.pop(leaf) for part in parts)
      )
      for leaf in list(parts[0])
    }
  if not model.unrolled:
    return params | {transformer.LAYERS: layers}
  count = model.config.num_layers
  split = jax.jit(lambda leaf: [leaf[index] for index in range(count)])
  for index in range(count):
    params[f"{transformer.LAYERS}_{index}"] = {}
  _unstack_into(params, layers, (), split)
  return params


def _unstack_into(
  params: Params,
  stacked: Params,
  path: tuple[str, ...],
  split: Callable[[Num[Array, "L ..."]], list[Num[Array, "..."]]],
) -> None:
  """Moves the layers of each stacked leaf to `layers_0` and so on.

  Args:
    params: receives the leaves.
    stacked: leaves [L, ...], which are taken out.
    path: the keys of `stacked` in a layer.
    split: returns the layers of a leaf.
  """
  for name in list(stacked):
    value = stacked.pop(name)
    if isinstance(value, dict):
      _unstack_into(params, value, (*path, name), split)
      continue
    for index, part in enumerate(split(value)):
      node = params[f"{transformer.LAYERS}_{index}"]
      for key in path:
        node = node.setdefault(key, {})
      node[name] = part
