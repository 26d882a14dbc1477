"""The parameters as sampling reads them: cast, joined, and layer by layer.

Decoding reads every kernel for each token. Training keeps kernels apart and
layers stacked, as checkpoints and exports have them.

The kernels of query, key and value are joined to one, because a layer of few
large products is faster than one of many. Gate and up stay apart: joined, they
are 3 % of a layer faster on a TPU, but only in a layout that a GPU would
transpose for each token.

Where a loop over stacked layers would copy each layer's kernels before it
multiplies by them, as XLA does on CPUs and GPUs, each layer has its own.
"""

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from azr_jax.models import transformer
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


def layer_bytes(model: transformer.Transformer) -> int:
  """Returns the size of one layer's parameters in the type of computing."""
  layers = transformer.abstract_params(model)[transformer.LAYERS]
  values = sum(leaf.size for leaf in jax.tree.leaves(layers))
  return values // model.config.num_layers * jnp.dtype(model.dtype).itemsize


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
  params = transformer.compute_params(model.dtype, params)
  if model.fused:
    params = fuse(params, model.config)
  if model.unrolled:
    params = unstack(params, model.config.num_layers)
  return params
