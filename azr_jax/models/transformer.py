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
from azr_jax.models import cache as cache_lib
from azr_jax.models.config import ModelConfig

Params = Any
KVCache = cache_lib.KVCache
RecentKV = cache_lib.RecentKV

# Names of what `jax.checkpoint` keeps from a layer's forward pass.
REMAT_POLICIES = {
  "none": None,
  "full": jax.checkpoint_policies.nothing_saveable,
  "dots": jax.checkpoint_policies.checkpoint_dots_with_no_batch_dims,
}


def init_cache(
  config: ModelConfig, batch: int, length: int, dtype: jnp.dtype, chunk: int
) -> KVCache:
  """An empty cache for sequences of up to `length` tokens."""
  c = config
  shape = (c.num_layers, batch, c.num_kv_heads, length, c.head_size)
  return cache_lib.init_cache(shape, dtype, chunk)


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
  """Grouped-query self-attention; with a cache, also to what it holds.

  With a cache, returns this call's keys and values too.
  """

  config: ModelConfig
  dtype: jnp.dtype
  attend: attention.AttentionFn

  @nn.compact
  def __call__(
    self,
    x: Float[Array, "B S D"],
    positions: Int[Array, "B S"],
    segment_ids: Int[Array, "B S"],
    cache: KVCache | None,
    recent: RecentKV | None,
    layer: jax.Array,
  ) -> tuple[Float[Array, "B S D"], tuple[jax.Array, jax.Array] | None]:
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
    new = None
    if cache is not None:
      out = cache_lib.cached_attention(q, k, v, cache, recent, layer)
      new = cache_lib.by_entry(k, v)
    else:
      out = self.attend(q, k, v, segment_ids)
    out = Projection(
      (c.num_heads, c.head_size),
      (c.hidden_size,),
      ("heads", "head_size"),
      ("embed",),
      False,
      self.dtype,
      name="o",
    )(out)
    return out, new


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
  attend: attention.AttentionFn

  @nn.compact
  def __call__(
    self,
    carry: tuple[jax.Array, jax.Array],
    positions: Int[Array, "B S"],
    segment_ids: Int[Array, "B S"],
    cache: KVCache | None,
    recent: RecentKV | None,
  ) -> tuple[tuple[jax.Array, jax.Array], tuple[jax.Array, jax.Array] | None]:
    x, layer = carry
    eps = self.config.norm_eps
    attended, new = Attention(
      self.config, self.dtype, self.attend, name="attention"
    )(
      RMSNorm(eps, "embed", name="attention_norm")(x),
      positions,
      segment_ids,
      cache,
      recent,
      layer,
    )
    x = x + attended
    normed = RMSNorm(eps, "embed", name="mlp_norm")(x)
    x = x + MLP(self.config, self.dtype, name="mlp")(normed)
    return (x, layer + 1), new


class Transformer(nn.Module):
  """A decoder-only language model without its output head.

  Attributes:
    config: shapes and constants.
    dtype: compute type; parameters are float32.
    attend: the attention of training, from `attention.make`.
    remat: what the backward pass keeps, a key of `REMAT_POLICIES`.
  """

  config: ModelConfig
  dtype: jnp.dtype = jnp.float32
  attend: attention.AttentionFn = attention.xla_attention
  remat: str = "none"

  @nn.compact
  def __call__(
    self,
    tokens: Int[Array, "B S"],
    positions: Int[Array, "B S"],
    segment_ids: Int[Array, "B S"] | None = None,
    cache: KVCache | None = None,
    recent: RecentKV | None = None,
  ) -> tuple[Float[Array, "B S D"], tuple[jax.Array, jax.Array] | None]:
    """Runs the decoder.

    Without a cache, tokens attend to earlier tokens of their segment (all of
    one segment if `segment_ids` is None). With a cache, tokens attend to what
    it holds, then to `recent`, then to each other.

    Returns:
      Final normalised hidden states and, with a cache, the keys and values of
      these tokens, as a cache holds them, for the caller to store.
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
    segments = jnp.ones_like(tokens) if segment_ids is None else segment_ids
    if recent is not None:  # Each layer gets its own slice.
      counts = jnp.broadcast_to(recent.count, (c.num_layers,))
      recent = recent.replace(count=counts)
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
      in_axes=(nn.broadcast, nn.broadcast, nn.broadcast, 0),
      length=c.num_layers,
      metadata_params={nn.PARTITION_NAME: "layers"},
    )(c, self.dtype, self.attend, name="layers")
    (x, _), new = layers(
      (x, jnp.zeros((), jnp.int32)), positions, segments, cache, recent
    )
    return RMSNorm(c.norm_eps, "embed", name="final_norm")(x), new


def unembedding(params: Params, config: ModelConfig) -> Float[Array, "D V"]:
  """Returns the output head's matrix; logits are hidden @ it."""
  return params["embedding"].T if config.tie_embeddings else params["head"]


def compute_params(dtype: jnp.dtype, params: Params) -> Params:
  """Casts the matrices to the type they are computed in.

  Norms stay as they are: they are computed in float32.
  """

  def cast(path: Any, leaf: jax.Array) -> jax.Array:
    return leaf if path[-1].key == "scale" else leaf.astype(dtype)

  return jax.tree_util.tree_map_with_path(cast, params)


def abstract_params(model: Transformer) -> Params:
  """Returns the parameter tree as shapes boxed with their logical axes."""
  return jax.eval_shape(lambda: _init(model, jax.random.key(0)))


def init_params(model: Transformer, key: jax.Array) -> Params:
  """Draws random parameters; uses up `key`. Jit with out_shardings to shard."""
  return nn.unbox(_init(model, key))


def _init(model: Transformer, key: jax.Array) -> Params:
  token = jnp.zeros((1, 1), jnp.int32)
  # One row divides over no mesh; parameters do not depend on the backend.
  model = model.clone(attend=attention.xla_attention)
  return model.init(key, token, token)["params"]
