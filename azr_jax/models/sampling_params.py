"""The parameters as sampling reads them: cast or quantized, joined, unstacked.

Decoding reads every kernel for each token. Training keeps kernels apart and
layers stacked, as checkpoints and exports have them.

The kernels of query, key and value are joined to one, because a layer of few
large products is faster than one of many. Gate and up stay apart: joined, they
are 3 % of a layer faster on a TPU, but only in a layout that a GPU would
transpose for each token.

The kernels of layers may have 8 bits, with a scale for each output channel
(`quantization.py`). The table of tokens, the output head, norms and biases stay
as they are: of a large model they are a small part, and logits feel the
rounding of a head at once.

Where a loop over stacked layers would copy each layer's kernels before it
multiplies by them, as XLA does on CPUs and GPUs, each layer has its own.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.typing import DTypeLike

from azr_jax.models import quantization, transformer
from azr_jax.models.config import ModelConfig
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.types import Params, Rules


def fits(config: ModelConfig, mesh: Mesh, rules: Rules) -> bool:
  """Returns whether a joint kernel is split over a mesh as its parts are.

  Queries are joined with the key head that they attend to. If a mesh divides
  the query heads and not the key heads, the joint kernel would lie whole on
  each device.

  Args:
    config: the model's config.
    mesh: where sampling runs.
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
    params: as `transformer.init_params` makes them: kernels q [L, D, H, E], and
      k and v [L, D, K, E].
    config: the model's config.

  Returns:
    The same, with qkv [L, D, K, H / K + 2, E] in place of the three.
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
  config: ModelConfig, q: jax.Array, k: jax.Array, v: jax.Array
) -> jax.Array:
  """Joins [..., H, E] and twice [..., K, E] to [..., K, H / K + 2, E]."""
  c = config
  group = c.num_heads // c.num_kv_heads
  q = q.reshape(*q.shape[:-2], c.num_kv_heads, group, c.head_size)
  return jnp.concatenate([q, k[..., None, :], v[..., None, :]], axis=-2)


# The input axes of each kernel of a layer, whose first axis is the layer.
_SUMMED_AXES = {
  "attention": {"q": (1,), "k": (1,), "v": (1,), "o": (1, 2)},
  "mlp": {"gate": (1,), "up": (1,), "down": (1,)},
}


def quantize(params: Params, dtype: DTypeLike) -> Params:
  """Returns the parameters of a decoder with a `kernel_dtype`.

  Args:
    params: as `transformer.init_params` makes them.
    dtype: a type of `quantization.DTYPES`.

  Returns:
    The same, with the kernels of layers in this type, and beside each its
    `scale`, float32 [L, *O], O the kernel's output axes.
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
    model: the decoder that samples, with layers that are neither fused nor
      unrolled.
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
    params: with leaves [L, ...] in `layers`.
    num_layers: L.

  Returns:
    The same, with `layers_0` and so on in place of `layers`.
  """
  others = {k: v for k, v in params.items() if k != transformer.LAYERS}
  stacked = params[transformer.LAYERS]
  return others | {
    f"{transformer.LAYERS}_{index}": jax.tree.map(
      lambda leaf, index=index: leaf[index], stacked
    )
    for index in range(num_layers)
  }


def convert(model: transformer.Transformer, params: Params) -> Params:
  """Returns a decoder's parameters as sampling reads them.

  Args:
    model: the decoder that samples.
    params: the parameters of training.
  """
  if model.kernel_dtype is not None:
    # Kernels are rounded once, so not to `dtype` before.
    params = quantize(params, model.kernel_dtype)
  params = transformer.compute_params(model.dtype, params)
  if model.fused:
    params = fuse(params, model.config)
  if model.unrolled:
    params = unstack(params, model.config.num_layers)
  return params
