"""The decoder: RMSNorm, rotary grouped-query attention, SwiGLU.

Left out on purpose: the output head. `__call__` returns final hidden states;
`unembedding` gives the head's matrix, so that callers compute logits only
where they need them (one position when sampling, chunks in training).
"""

from typing import TypeAlias, cast

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from azr_jax.models import attention, rope
from azr_jax.models import cache as cache_lib
from azr_jax.models.config import ModelConfig
from azr_jax.types import BoxedParams, Params

KVCache = cache_lib.KVCache
RecentKV = cache_lib.RecentKV
# Keys [L, B, K, E, S] and values [L, B, K, S, E] of a call's tokens; within one
# layer, without L.
NewKV: TypeAlias = tuple[jax.Array, jax.Array]

# Name -> what `jax.checkpoint` keeps of a layer's forward pass.
REMAT_POLICIES = {
  "none": None,
  "full": jax.checkpoint_policies.nothing_saveable,
  "dots": jax.checkpoint_policies.checkpoint_dots_with_no_batch_dims,
}


def init_cache(
  config: ModelConfig, batch: int, length: int, dtype: jnp.dtype, chunk: int
) -> KVCache:
  """Returns an empty cache.

  Args:
    config: the model's config.
    batch: number of rows.
    length: minimum number of entries per row.
    dtype: the type of keys and values.
    chunk: entries that attention reads at a time.
  """
  c = config
  shape = (c.num_layers, batch, c.num_kv_heads, length, c.head_size)
  return cache_lib.init_cache(shape, dtype, chunk)


def _named(
  initializer: nn.initializers.Initializer, axes: tuple[str, ...]
) -> nn.initializers.Initializer:
  """Returns an initializer that boxes its array with logical axis names."""
  boxed = nn.with_logical_partitioning(initializer, axes)
  # `Module.param` opens the box, so modules see an array.
  return cast(nn.initializers.Initializer, boxed)


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
  """A linear map of the last axes of its input, with named parameter axes.

  Attributes:
    shape_in: sizes of the axes that are summed over.
    shape_out: sizes of the axes that replace them.
    axes_in: logical names of the kernel's input axes.
    axes_out: logical names of its output axes.
    bias: whether a bias is added.
    dtype: compute type.
  """

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
  """Grouped-query self-attention, also to a cache's tokens if there is one.

  Attributes:
    config: shapes and constants.
    dtype: compute type.
    attend: the attention without a cache.

  Returns:
    The output, and with a cache this call's keys and values.
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
  ) -> tuple[Float[Array, "B S D"], NewKV | None]:
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
    widen = (D, F, ("embed",), ("mlp",), False, self.dtype)
    gate = Projection(*widen, name="gate")(x)
    up = Projection(*widen, name="up")(x)
    narrow = (F, D, ("mlp",), ("embed",), False, self.dtype)
    return Projection(*narrow, name="down")(nn.silu(gate) * up)


class Block(nn.Module):
  """One pre-norm layer, in the carry form that `nn.scan` needs.

  The carry is (hidden states [B, S, D], index of the layer).
  """

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
  ) -> tuple[tuple[jax.Array, jax.Array], NewKV | None]:
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
    attend: the attention without a cache, from `attention.make`.
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
  ) -> tuple[Float[Array, "B S D"], NewKV | None]:
    """Runs the decoder.

    Without a cache, tokens attend to earlier tokens of their segment; a row is
    one segment if `segment_ids` is None. With a cache, tokens attend to the
    tokens in it, then to those in `recent`, then to each other.

    Args:
      tokens: input ids.
      positions: position of each token in its sequence.
      segment_ids: which sequence of its row a token belongs to.
      cache: keys and values of earlier tokens.
      recent: keys and values of the tokens after those.

    Returns:
      Final normalised hidden states and, with a cache, the keys and values of
      these tokens in the cache's layout, for the caller to store.
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
    if recent is not None:
      # The scan gives each layer a slice of every leaf, also of the count.
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
  """Returns the output head's matrix W; logits are hidden @ W."""
  return params["embedding"].T if config.tie_embeddings else params["head"]


def compute_params(dtype: jnp.dtype, params: Params) -> Params:
  """Casts matrices and biases to the type that they are computed in.

  Scales of norms stay float32, because norms are computed in float32.
  """

  def cast(path: jax.tree_util.KeyPath, leaf: jax.Array) -> jax.Array:
    return leaf if path[-1].key == "scale" else leaf.astype(dtype)

  return jax.tree_util.tree_map_with_path(cast, params)


def abstract_params(model: Transformer) -> BoxedParams:
  """Returns the parameter tree as shapes boxed with their logical axes."""
  return jax.eval_shape(lambda: _init(model, jax.random.key(0)))


def init_params(model: Transformer, key: jax.Array) -> Params:
  """Draws random parameters; uses up `key`.

  Under `jax.jit` with `out_shardings`, they are made in their shards.
  """
  return nn.unbox(_init(model, key))


def _init(model: Transformer, key: jax.Array) -> BoxedParams:
  """Draws random parameters, boxed with the names of their logical axes."""
  token = jnp.zeros((1, 1), jnp.int32)
  # One row does not divide over a mesh, so a backend that needs no mesh traces
  # the model; parameters do not depend on it.
  model = model.clone(attend=attention.xla_attention)
  return dict(model.init(key, token, token)["params"])
