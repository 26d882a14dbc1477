"""The decoder: RMSNorm, rotary grouped-query attention, gated MLP.

`__call__` returns final hidden states, without the output head;
`unembedding` gives the head's matrix, so that callers compute logits only
where they need them (one position when sampling, chunks in training).
"""

import functools
from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int, Int32, Key

from azr_jax.models import (
  adapters,
  attention,
  cached_attention,
  expert_mlps,
  expert_sharding,
  experts,
  gpu_projection_kernel,
  products,
  quantization,
  splash,
)
from azr_jax.models.computation import Computation, Inputs, varying
from azr_jax.models.config import ModelConfig
from azr_jax.models.layers import Block
from azr_jax.models.naming import named
from azr_jax.models.norms import RMSNorm
from azr_jax.models.pages import Entries, PagedCache, RecentKV
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.types import BoxedParams, Params, Rules

# The parameters of all layers, stacked; `LAYERS_0` and so on are unrolled.
LAYERS = "layers"
# Name -> what `jax.checkpoint` keeps of a layer's forward pass.
REMAT_POLICIES = {
  "none": None,
  "full": jax.checkpoint_policies.nothing_saveable,
  "attention": jax.checkpoint_policies.save_only_these_names(splash.RESIDUALS),
  "dots": jax.checkpoint_policies.save_from_both_policies(
    jax.checkpoint_policies.checkpoint_dots_with_no_batch_dims,
    jax.checkpoint_policies.save_only_these_names(splash.RESIDUALS),
  ),
}
# A value of `model.remat` and `model.layers` that lets the mesh decide.
AUTO = "auto"
# How training runs the layers: values of `model.layers` besides `AUTO`.
SCAN, UNROLLED = "scan", "unrolled"
# Maximum number of layers that `auto` unrolls. Each takes half a CPU second to
# compile. Scanning over blocks of layers would not help: it copies more than
# scanning over layers, because `jax.lax.scan` joins the arrays that a block
# keeps for the backward pass before it stacks the blocks.
MAX_UNROLLED = 64


class Transformer(nn.Module):
  """A decoder-only language model without its output head.

  Attributes:
    config: shapes and constants.
    dtype: compute type.
    attend: attention without a cache, from `attention.make`.
    remat: what the backward pass keeps, a key of `REMAT_POLICIES`.
    multiply: the product with a layer's kernel, from `products.make`.
    fused: whether query, key and value share a kernel, from
      `sampling_params.fuse`.
    kernel_dtype: 8-bit dtype of the layers' kernels, which are stored with
      scales, from `sampling_params.quantize`. None: not quantized.
    unrolled: whether each layer has its own parameters (`layers_0`, ..., from
      `sampling_params.unstack`) and its own code in the program.
    attend_cached: attention with a cache, from `cached_attention.make`.
    inlined: whether each layer has its own code although parameters are
      stacked. Compiling takes longer, but activations are not stacked.
    joined: see `computation.Computation`.
    project: see `computation.Computation`.
    lora: the adapters of its projections; None without adapters.
    param_dtype: dtype of the matrices and biases that are trained. Norm scales
      and adapters are float32.
    compute_experts: computes the layers' experts, from `expert_sharding.make`.
  """

  config: ModelConfig
  dtype: jnp.dtype = jnp.float32
  attend: attention.AttentionFn = attention.xla_attention
  remat: str = "none"
  multiply: products.MultiplyFn = products.multiply
  fused: bool = False
  kernel_dtype: jnp.dtype | None = None
  unrolled: bool = False
  attend_cached: cached_attention.CachedAttentionFn = (
    cached_attention.cached_attention
  )
  inlined: bool = False
  joined: bool = False
  project: gpu_projection_kernel.HeadProjection | None = None
  lora: adapters.Lora | None = None
  param_dtype: jnp.dtype = jnp.float32
  compute_experts: expert_mlps.ExpertsFn = expert_mlps.compute

  @property
  def has_stack(self) -> bool:
    """Whether there are several adapters, of which each token gets one."""
    return self.lora is not None and self.lora.stacked > 0

  @nn.compact
  def __call__(
    self,
    tokens: Int[Array, "B S"],
    positions: Int[Array, "B S"],
    segment_ids: Int[Array, "B S"] | None = None,
    cache: PagedCache | None = None,
    recent: RecentKV | None = None,
    adapter_ids: Int[Array, "B _S"] | None = None,
    chosen: Int32[Array, "L B S choices"] | None = None,
  ) -> tuple[Float[Array, "B S D"], Entries | None]:
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
      adapter_ids: see `computation.Inputs`.
      chosen: see `computation.Varying`.

    Returns:
      Final normalized hidden states and, with a cache, the keys and values of
      these tokens, for the caller to store.
    """
    c = self.config
    segments = jnp.ones_like(tokens) if segment_ids is None else segment_ids
    computation = Computation(
      self.dtype,
      self.attend,
      self.attend_cached,
      self.multiply,
      self.fused,
      self.kernel_dtype is not None,
      self.joined,
      self.project,
      self.lora,
      self.compute_experts,
    )
    block = _block(self.remat, in_loop=not (self.inlined or self.unrolled))
    carry = self._embed(tokens), jnp.zeros((), jnp.int32)
    inputs = Inputs(positions, segments, cache, recent, adapter_ids)
    own = varying(c)._replace(chosen=chosen)
    if self.unrolled:
      # Layers are traced once, and the program calls one function for each.
      block = nn.jit(block)
      each_kv = []
      for index in range(c.num_layers):
        layer = block(c, computation, name=f"{LAYERS}_{index}")
        of_layer = jax.tree.map(lambda x, index=index: x[index], own)
        carry, kv = layer(carry, inputs, of_layer)
        each_kv.append(kv)
      new_kv = jax.tree.map(lambda *kv: jnp.stack(kv), *each_kv)
    else:
      loop = nn.scan(
        block,
        variable_axes={"params": 0, experts.ROUTING: 0},
        split_rngs={"params": True},
        in_axes=(nn.broadcast, 0),
        length=c.num_layers,
        metadata_params={nn.PARTITION_NAME: LAYERS},
        unroll=c.num_layers if self.inlined else 1,
      )
      if self.inlined and not self.is_initializing():
        loop = nn.map_variables(loop, "params", with_whole_gradients)
      layers = loop(c, computation, name=LAYERS)
      carry, new_kv = layers(carry, inputs, own)
    # The norm's float32 scale divides, so that logits are rounded once.
    final_norm = RMSNorm(
      *(c.norm_eps, "embed"),
      offset=c.norm_offset,
      divisor=c.logits_scale,
      name="final_norm",
    )
    return final_norm(carry[0]), new_kv

  @nn.nowrap
  def _embed(self, tokens: Int[Array, "B S"]) -> Float[Array, "B S D"]:
    """Returns the tokens' embeddings; also declares the output head."""
    c = self.config
    embedding = self.param(
      "embedding",
      named(nn.initializers.normal(0.02), ("vocab", "embed")),
      (c.vocab_size, c.hidden_size),
      jnp.float32,
    )
    if not c.tie_embeddings:
      self.param(
        "head",
        named(nn.initializers.normal(0.02), ("embed", "vocab")),
        (c.hidden_size, c.vocab_size),
        jnp.float32,
      )
    x = embedding[tokens].astype(self.dtype)
    return x if c.embedding_scale == 1.0 else x * c.embedding_scale


def _block(remat: str, in_loop: bool) -> type[nn.Module]:
  """Returns `Block`, wrapped to recompute what the backward pass does not keep.

  Args:
    remat: a key of `REMAT_POLICIES`.
    in_loop: whether a loop runs the layers.
  """
  if remat == "none":
    return Block
  # Outside a loop, XLA would merge the recomputation with the forward pass.
  return nn.remat(Block, policy=REMAT_POLICIES[remat], prevent_cse=not in_loop)


@jax.custom_vjp
def with_whole_gradients(params: Params) -> Params:
  """Returns parameters whose gradients are stacked before they are used.

  Otherwise XLA joins the gradients of all layers in each kernel that reads
  them. Compiling such kernels takes more than half of the compiler's time.
  """
  return params


with_whole_gradients.defvjp(
  lambda params: (params, None),
  lambda _, grads: (jax.lax.optimization_barrier(grads),),
)


def training(
  config: ModelConfig,
  dtype: DTypeLike,
  mesh: Mesh,
  rules: Rules,
  *,
  attention_name: str,
  max_sequences_per_row: int,
  remat: str,
  layers: str,
  lora: adapters.Lora | None = None,
  kernel_dtype: jnp.dtype | None = None,
  param_dtype: DTypeLike = jnp.float32,
) -> Transformer:
  """Returns the training decoder, with the fastest settings for a mesh.

  Args:
    config: the decoder's shape.
    dtype: compute type.
    mesh: the mesh of its parameters and rows.
    rules: logical parameter axis to mesh axis.
    attention_name: one of `attention.NAMES`.
    max_sequences_per_row: maximum sequences per packed row.
    remat: a key of `REMAT_POLICIES`.
    layers: `scan`, `unrolled` or `auto`.
    lora: the adapters, if only these are trained.
    kernel_dtype: 8-bit dtype of a frozen base's kernels; None: not quantized.
    param_dtype: dtype of trained matrices and biases.
  """
  return Transformer(
    config,
    jnp.dtype(dtype),
    attention.make(attention_name, mesh, dtype, max_sequences_per_row),
    remat,
    products.make(mesh, rules),
    kernel_dtype=kernel_dtype,
    inlined=is_inlined(layers, config.num_layers, mesh),
    joined=(
      lora is None
      and mesh_lib.platform(mesh) == "gpu"
      and mesh.shape["tensor"] == 1
    ),
    lora=lora,
    param_dtype=jnp.dtype(param_dtype),
    compute_experts=expert_sharding.make(mesh, rules),
  )


def is_inlined(layers: str, num_layers: int, mesh: Mesh) -> bool:
  """Returns whether a training program has separate code for each layer.

  `auto` unrolls up to `MAX_UNROLLED` layers on GPUs that hold all parameters.
  With sharded parameters or experts, the program could gather many layers at
  once.

  Args:
    layers: `scan`, `unrolled` or `auto`.
    num_layers: number of layers.
    mesh: the mesh of parameters and rows.
  """
  if layers == AUTO:
    holds_all = mesh.shape["fsdp"] == mesh.shape["expert"] == 1
    is_gpu = mesh_lib.platform(mesh) == "gpu"
    return is_gpu and holds_all and num_layers <= MAX_UNROLLED
  return layers == UNROLLED


def routing_of(
  variables: Mapping[str, Any], num_layers: int
) -> experts.Routing:
  """Returns the routing of a call from the collections that it changed.

  Args:
    variables: the second result of `apply` with `mutable=[experts.ROUTING]`.
    num_layers: L.
  """
  layers = variables[experts.ROUTING]
  # Flax keeps a tuple of what a module stored.
  if LAYERS in layers:
    found = {
      name: value[0] for name, value in layers[LAYERS]["experts"].items()
    }
    return experts.Routing(**found)
  each = [layers[f"{LAYERS}_{index}"]["experts"] for index in range(num_layers)]
  found = {
    name: jnp.stack([layer[name][0] for layer in each]) for name in each[0]
  }
  return experts.Routing(**found)


def unembedding(params: Params, config: ModelConfig) -> Float[Array, "D V"]:
  """Returns the output head's matrix W; logits are hidden @ W."""
  return params["embedding"].T if config.tie_embeddings else params["head"]


def compute_params(dtype: jnp.dtype, params: Params) -> Params:
  """Casts matrices and biases to the compute type.

  Norms and routers are computed in float32, so their parameters stay float32.
  Quantized kernels and their scales stay as they are.
  """

  def cast(path: jax.tree_util.KeyPath, leaf: jax.Array) -> jax.Array:
    is_exact = is_float32(*(entry.key for entry in path))
    stays = is_exact or quantization.is_quantized(leaf.dtype)
    return leaf if stays else leaf.astype(dtype)

  return jax.tree_util.tree_map_with_path(cast, params)


def is_float32(*path: str) -> bool:
  """Returns whether the parameter at a path has float32 in every model."""
  return path[-1] == "scale" or experts.ROUTER in path


def abstract_params(model: Transformer) -> BoxedParams:
  """Returns the parameter tree as shapes boxed with their logical axes."""
  boxed = _abstract_params(
    model.config, model.fused, model.kernel_dtype, model.unrolled, model.lora
  )
  # A copy, because callers may change what they get.
  return jax.tree.map(lambda leaf: leaf, boxed)


def abstract_trained(model: Transformer) -> BoxedParams:
  """Returns the shapes of the parameters that training changes.

  With adapters, these are the adapters of stacked layers. Otherwise they are
  all parameters.
  """
  if model.lora is None:
    boxed = abstract_params(model)
    if model.param_dtype == jnp.float32:
      return boxed
    cast = functools.partial(compute_params, model.param_dtype)
    return nn.meta.replace_boxed(boxed, jax.eval_shape(cast, nn.unbox(boxed)))
  return adapters.adapters_of(abstract_params(plain(model)))


def abstract_base(model: Transformer) -> BoxedParams:
  """Returns the shapes of the frozen parameters; {} without adapters."""
  if model.lora is None:
    return {}
  return adapters.base_of(abstract_params(model))


def plain(model: Transformer) -> Transformer:
  """Returns a decoder whose layers are stacked, neither fused nor quantized."""
  return model.clone(fused=False, unrolled=False, kernel_dtype=None)


@functools.cache
def _abstract_params(
  config: ModelConfig,
  fused: bool,
  kernel_dtype: jnp.dtype | None,
  unrolled: bool,
  lora: adapters.Lora | None,
) -> BoxedParams:
  """Traces a model; cached, because a start needs its shapes several times.

  The parameters depend on these arguments alone.
  """
  model = Transformer(
    config,
    fused=fused,
    kernel_dtype=kernel_dtype,
    unrolled=unrolled,
    lora=lora,
  )
  return jax.eval_shape(lambda: _init(model, jax.random.key(0)))


def init_params(model: Transformer, key: Key[Array, ""]) -> Params:
  """Draws random parameters; consumes `key`.

  Under `jax.jit` with `out_shardings`, each device draws only its own shards.
  """
  # A single row cannot be split over a mesh, so trace with backends that need
  # no mesh; parameters do not depend on them.
  model = model.clone(
    attend=attention.xla_attention,
    multiply=products.multiply,
    compute_experts=expert_mlps.compute,
  )
  return nn.unbox(_init(model, key))


def init_adapters(model: Transformer, key: Key[Array, ""]) -> Params:
  """Draws adapters of stacked layers, which change nothing yet.

  Consumes `key`. Under `jax.jit`, the base model is never drawn.
  """
  return adapters.adapters_of(init_params(plain(model), key))


def _init(model: Transformer, key: Key[Array, ""]) -> BoxedParams:
  """Draws random parameters, boxed with the names of their logical axes."""
  token = jnp.zeros((1, 1), jnp.int32)
  variables = model.init(key, token, token, adapter_ids=token)
  return dict(variables["params"])
