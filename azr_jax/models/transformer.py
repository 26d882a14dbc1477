"""The decoder: RMSNorm, rotary grouped-query attention, SwiGLU.

Left out on purpose: the output head. `__call__` returns final hidden states;
`unembedding` gives the head's matrix, so that callers compute logits only
where they need them (one position when sampling, chunks when learning).
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from azr_jax.models import attention, rope
from azr_jax.models.config import ModelConfig

Params = Any
KVCache = dict[str, jax.Array]

# Names of what `jax.checkpoint` keeps from a layer's forward pass.
REMAT_POLICIES = {
  "none": None,
  "full": jax.checkpoint_policies.nothing_saveable,
  "dots": jax.checkpoint_policies.checkpoint_dots_with_no_batch_dims,
}


def init_cache(
  config: ModelConfig, batch: int, length: int, dtype: jnp.dtype
) -> KVCache:
  """Returns an empty cache: keys and values [L, B, T, K, E]."""
  shape = (
    config.num_layers,
    batch,
    length,
    config.num_kv_heads,
    config.head_size,
  )
  return {"k": jnp.zeros(shape, dtype), "v": jnp.zeros(shape, dtype)}


def _named(initializer: Any, axes: tuple[str, ...]) -> Any:
  """The initializer of a parameter with logical axis names."""
  return nn.with_logical_partitioning(initializer, axes)


class RMSNorm(nn.Module):
  """Root-mean-square normalisation in float32, with a learned scale."""

  eps: float
  axis_name: str

  @nn.compact
  def __call__(self, x: Float[Array, "*B D"]) -> Float[Array, "*B D"]:
    scale = self.param(
      "scale",
      _named(nn.initializers.ones, (self.axis_name,)),
      (x.shape[-1],),
      jnp.float32,
    )
    x32 = x.astype(jnp.float32)
    mean_square = jnp.mean(x32**2, axis=-1, keepdims=True)
    normed = x32 * jax.lax.rsqrt(mean_square + self.eps)
    scale = jnp.expand_dims(scale, range(x.ndim - 1))
    return (normed * scale).astype(x.dtype)


class Projection(nn.Module):
  """A matrix over the last axes of its input, with named parameter axes."""

  shape_in: tuple[int, ...]
  shape_out: tuple[int, ...]
  axes_in: tuple[str, ...]
  axes_out: tuple[str, ...]
  bias: bool
  dtype: jnp.dtype

  @nn.compact
  def __call__(self, x: jax.Array) -> jax.Array:
    initializer = nn.initializers.variance_scaling(
      1.0,
      "fan_in",
      "truncated_normal",
      in_axis=tuple(range(len(self.shape_in))),
      out_axis=tuple(
        range(len(self.shape_in), len(self.shape_in) + len(self.shape_out))
      ),
    )
    kernel = self.param(
      "kernel",
      _named(initializer, self.axes_in + self.axes_out),
      self.shape_in + self.shape_out,
      jnp.float32,
    )
    y = jnp.tensordot(
      x, kernel.astype(self.dtype), axes=len(self.shape_in)
    ).astype(self.dtype)
    if self.bias:
      bias = self.param(
        "bias",
        _named(nn.initializers.zeros, self.axes_out),
        self.shape_out,
        jnp.float32,
      )
      bias = jnp.expand_dims(bias, range(y.ndim - bias.ndim))
      y = y + bias.astype(self.dtype)
    return y


class Attention(nn.Module):
  """Grouped-query self-attention; with a cache, writes then reads it."""

  config: ModelConfig
  dtype: jnp.dtype
  backend: str

  @nn.compact
  def __call__(
    self,
    x: Float[Array, "B S D"],
    positions: Int[Array, "B S"],
    mask: jax.Array,
    cache: KVCache | None,
    layer: jax.Array,
  ) -> tuple[Float[Array, "B S D"], KVCache | None]:
    c = self.config

    def project(heads: int, axis: str, name: str) -> jax.Array:
      return Projection(
        (c.hidden_size,),
        (heads, c.head_size),
        ("embed",),
        (axis, "head_size"),
        c.qkv_bias,
        self.dtype,
        name=name,
      )(x)

    q = project(c.num_heads, "heads", "q")
    k = project(c.num_kv_heads, "kv_heads", "k")
    v = project(c.num_kv_heads, "kv_heads", "v")
    if c.qk_norm:
      q = RMSNorm(c.norm_eps, "head_size", name="q_norm")(q)
      k = RMSNorm(c.norm_eps, "head_size", name="k_norm")(k)
    frequencies = rope.inverse_frequencies(c)
    q = rope.rotate(q, positions, frequencies)
    k = rope.rotate(k, positions, frequencies)
    if cache is not None:
      cache = _write_cache(cache, layer, positions, k, v)
      k = jax.lax.dynamic_index_in_dim(cache["k"], layer, keepdims=False)
      v = jax.lax.dynamic_index_in_dim(cache["v"], layer, keepdims=False)
      k, v = k.astype(self.dtype), v.astype(self.dtype)
    out = attention.BACKENDS[self.backend](q, k, v, mask)
    out = Projection(
      (c.num_heads, c.head_size),
      (c.hidden_size,),
      ("heads", "head_size"),
      ("embed",),
      False,
      self.dtype,
      name="o",
    )(out)
    return out, cache


def _write_cache(
  cache: KVCache,
  layer: jax.Array,
  positions: Int[Array, "B S"],
  k: Float[Array, "B S K E"],
  v: Float[Array, "B S K E"],
) -> KVCache:
  """Stores this call's keys and values at their rows' positions."""
  rows = jnp.arange(positions.shape[0])[:, None]
  return {
    name: cache[name]
    .at[layer, rows, positions]
    .set(new.astype(cache[name].dtype), mode="drop")
    for name, new in (("k", k), ("v", v))
  }


class MLP(nn.Module):
  """SwiGLU: down(silu(gate(x)) * up(x))."""

  config: ModelConfig
  dtype: jnp.dtype

  @nn.compact
  def __call__(self, x: Float[Array, "B S D"]) -> Float[Array, "B S D"]:
    D, F = (self.config.hidden_size,), (self.config.mlp_size,)
    into = (D, F, ("embed",), ("mlp",), False, self.dtype)
    gate = Projection(*into, name="gate")(x)
    up = Projection(*into, name="up")(x)
    out = (F, D, ("mlp",), ("embed",), False, self.dtype)
    return Projection(*out, name="down")(nn.silu(gate) * up)


class Block(nn.Module):
  """One pre-norm layer, in the carry form that `nn.scan` wants."""

  config: ModelConfig
  dtype: jnp.dtype
  backend: str

  @nn.compact
  def __call__(
    self,
    carry: tuple[jax.Array, KVCache | None, jax.Array],
    positions: Int[Array, "B S"],
    mask: jax.Array,
  ) -> tuple[tuple[jax.Array, KVCache | None, jax.Array], None]:
    x, cache, layer = carry
    eps = self.config.norm_eps
    attended, cache = Attention(
      self.config, self.dtype, self.backend, name="attention"
    )(
      RMSNorm(eps, "embed", name="attention_norm")(x),
      positions,
      mask,
      cache,
      layer,
    )
    x = x + attended
    normed = RMSNorm(eps, "embed", name="mlp_norm")(x)
    x = x + MLP(self.config, self.dtype, name="mlp")(normed)
    return (x, cache, layer + 1), None


class Transformer(nn.Module):
  """A decoder-only language model without its output head.

  Attributes:
    config: shapes and constants.
    dtype: compute type; parameters are float32.
    backend: attention backend, a key of `attention.BACKENDS`.
    remat: what the backward pass keeps, a key of `REMAT_POLICIES`.
  """

  config: ModelConfig
  dtype: jnp.dtype = jnp.float32
  backend: str = "xla"
  remat: str = "none"

  @nn.compact
  def __call__(
    self,
    tokens: Int[Array, "B S"],
    positions: Int[Array, "B S"],
    segment_ids: Int[Array, "B S"] | None = None,
    cache: KVCache | None = None,
  ) -> tuple[Float[Array, "B S D"], KVCache | None]:
    """Runs the decoder.

    Without a cache, tokens attend to earlier tokens of their segment (all of
    one segment if `segment_ids` is None). With a cache, this call's keys and
    values are stored at `positions` and each token attends to every entry up
    to its own position; positions past the end of the cache are not stored.

    Returns:
      Final normalised hidden states and the updated cache (None without).
    """
    c = self.config
    embedding = self.param(
      "embedding",
      _named(nn.initializers.normal(0.02), ("vocab", "embed")),
      (c.vocab_size, c.hidden_size),
      jnp.float32,
    )
    if not c.tie_embeddings:
      self.param(
        "head",
        _named(nn.initializers.normal(0.02), ("embed", "vocab")),
        (c.hidden_size, c.vocab_size),
        jnp.float32,
      )
    if cache is not None:
      mask = attention.cache_mask(positions, cache["k"].shape[2])
    else:
      segments = jnp.ones_like(tokens) if segment_ids is None else segment_ids
      mask = attention.causal_mask(positions, segments)
    x = embedding[tokens].astype(self.dtype)
    block = Block
    if self.remat != "none":
      block = nn.remat(
        Block, policy=REMAT_POLICIES[self.remat], prevent_cse=False
      )
    layers = nn.scan(
      block,
      variable_axes={"params": 0},
      split_rngs={"params": True},
      in_axes=(nn.broadcast, nn.broadcast),
      length=c.num_layers,
      metadata_params={nn.PARTITION_NAME: "layers"},
    )(c, self.dtype, self.backend, name="layers")
    (x, cache, _), _ = layers(
      (x, cache, jnp.zeros((), jnp.int32)), positions, mask
    )
    return RMSNorm(c.norm_eps, "embed", name="final_norm")(x), cache


def unembedding(params: Params, config: ModelConfig) -> Float[Array, "D V"]:
  """Returns the output head's matrix; logits are hidden @ it."""
  return params["embedding"].T if config.tie_embeddings else params["head"]


def abstract_params(model: Transformer) -> Params:
  """Returns the parameter tree as shapes boxed with their logical axes."""
  token = jax.ShapeDtypeStruct((1, 1), jnp.int32)
  variables = jax.eval_shape(model.init, jax.random.key(0), token, token)
  return variables["params"]


def init_params(model: Transformer, key: jax.Array) -> Params:
  """Draws random parameters; uses up `key`. Jit with out_shardings to shard."""
  token = jnp.zeros((1, 1), jnp.int32)
  return nn.unbox(model.init(key, token, token)["params"])
