"""Experts: each token passes some of a layer's many small MLPs.

1. `Experts` computes the router's logits in float32 and chooses experts.
2. `arrange` gives every (token, expert) pair a row, so that rows of the same
   expert lie together. No pair is dropped, whatever the experts' load.
3. The rows pass their experts' MLPs by grouped products
   (`grouped_products.py`).
4. A token's output is the sum of its rows, weighted by the router.

On a mesh, steps 2 to 4 run on each device for its own tokens (`make`).
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Float, Float32, Int, Int32, Num

from azr_jax.models import adapters, gated, grouped_products
from azr_jax.models.config import ExpertShape, ModelConfig
from azr_jax.models.naming import named
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.types import Rules

# Name of the module that computes the router's logits, which stay float32.
ROUTER = "router"
# Flax's collection of a call's `Routing`, for callers that make it mutable.
ROUTING = "routing"
_NAMES = ("gate", "up", "down")


class ExpertParams(NamedTuple):
  """One of the three projections of all experts of a layer.

  Attributes:
    kernel: one matrix per expert.
    scale: scales of 8-bit kernels, by output channel; None for other dtypes.
    a: A of the adapters; None without adapters.
    b: B of the adapters, like `a`.
  """

  kernel: Num[Array, "X inner outer"]
  scale: Float32[Array, "X outer"] | None = None
  a: Float[Array, "X inner rank"] | None = None
  b: Float[Array, "X rank outer"] | None = None


class Projections(NamedTuple):
  """The projections of all experts of a layer."""

  gate: ExpertParams
  up: ExpertParams
  down: ExpertParams


# (tokens x [B, S, D], weight of each expert [B, S, choices], chosen experts
# [B, S, choices], projections, scale of adapters) -> [B, S, D]. Experts >= X
# are no experts, and add nothing.
ExpertsFn: TypeAlias = Callable[
  [
    Float[Array, "B S D"],
    Float32[Array, "B S choices"],
    Int32[Array, "B S choices"],
    Projections,
    float,
  ],
  Float[Array, "B S D"],
]


class Routing(NamedTuple):
  """What the routers of all layers did in a call.

  Attributes:
    chosen: the experts of each token; X for padding.
    entropy: the entropy of the router's distribution, in nats.
    differs: 1 where the router would have chosen other experts.
  """

  chosen: Int32[Array, "L B S choices"]
  entropy: Float32[Array, "L B S"]
  differs: Float32[Array, "L B S"]


class ExpertRows(NamedTuple):
  """Rows for pairs of a token and an expert, sorted by expert.

  Attributes:
    position: the row of each pair; the number of rows if it has none.
    source: the number of each row's pair, token x choices + choice; the number
      of pairs for rows of padding.
    sizes: the rows of each expert, padding included.
  """

  position: Int32[Array, "tokens choices"]
  source: Int32[Array, " rows"]
  sizes: Int32[Array, " X"]


def arrange(
  chosen: Int32[Array, "tokens choices"],
  experts: int,
  product: grouped_products.GroupedProduct,
) -> ExpertRows:
  """Returns the rows of some pairs.

  Args:
    chosen: the experts of each token; those >= `experts` get no row.
    experts: X.
    product: the product that reads the rows.
  """
  pairs = chosen.size
  flat = chosen.reshape(pairs)
  order = jnp.argsort(flat, stable=True).astype(jnp.int32)
  by_expert = flat[order]
  ends = jnp.searchsorted(by_expert, jnp.arange(experts), side="right")
  first = jnp.concatenate([jnp.zeros(1, ends.dtype), ends])
  counts = first[1:] - first[:-1]
  sizes = -(-counts // product.block) * product.block
  starts = jnp.cumsum(sizes) - sizes
  own = jnp.minimum(by_expert, experts - 1)
  row = starts[own] + jnp.arange(pairs) - first[own]
  rows = product.rows(pairs, experts)
  row = jnp.where(by_expert < experts, row, rows).astype(jnp.int32)
  source = jnp.full(rows, pairs, jnp.int32).at[row].set(order, mode="drop")
  position = jnp.zeros(pairs, jnp.int32).at[order].set(row)
  return ExpertRows(
    position.reshape(chosen.shape), source, sizes.astype(jnp.int32)
  )


def _rows_of(
  x: Float[Array, "_of D"], index: Int[Array, "*rows"]
) -> Float[Array, "*rows D"]:
  """Returns rows of an array; 0 where it has none."""
  return x.at[index].get(mode="fill", fill_value=0)


@jax.custom_vjp
def dispatch(
  x: Float[Array, "tokens D"], groups: ExpertRows
) -> Float[Array, "rows D"]:
  """Returns the token of each row."""
  return _rows_of(x, groups.source // groups.position.shape[1])


def _dispatch_forward(
  x: Float[Array, "tokens D"], groups: ExpertRows
) -> tuple[Float[Array, "rows D"], ExpertRows]:
  return dispatch(x, groups), groups


def _dispatch_backward(
  groups: ExpertRows, grad: Float[Array, "rows D"]
) -> tuple[Float[Array, "tokens D"], None]:
  # A gather, where the transposed gather would be a scatter.
  each = _rows_of(grad, groups.position)
  return each.astype(jnp.float32).sum(axis=1).astype(grad.dtype), None


dispatch.defvjp(_dispatch_forward, _dispatch_backward)


@jax.custom_vjp
def combine(
  rows: Float[Array, "rows D"],
  weights: Float32[Array, "tokens choices"],
  groups: ExpertRows,
) -> Float[Array, "tokens D"]:
  """Returns the weighted sum of each token's rows."""
  each = _rows_of(rows, groups.position).astype(jnp.float32)
  return jnp.einsum("tkd,tk->td", each, weights).astype(rows.dtype)


def _combine_forward(
  rows: Float[Array, "rows D"],
  weights: Float32[Array, "tokens choices"],
  groups: ExpertRows,
) -> tuple[Float[Array, "tokens D"], Any]:
  return combine(rows, weights, groups), (rows, weights, groups)


def _combine_backward(
  kept: Any, grad: Float[Array, "tokens D"]
) -> tuple[Float[Array, "rows D"], Float32[Array, "tokens choices"], None]:
  rows, weights, groups = kept
  choices = weights.shape[1]
  of_pair = weights.reshape(-1, 1)
  of_rows = _rows_of(grad, groups.source // choices).astype(jnp.float32)
  of_rows = of_rows * _rows_of(of_pair, groups.source)
  each = _rows_of(rows, groups.position).astype(jnp.float32)
  of_weights = jnp.einsum("tkd,td->tk", each, grad.astype(jnp.float32))
  return of_rows.astype(rows.dtype), of_weights, None


combine.defvjp(_combine_forward, _combine_backward)


def compute(
  x: Float[Array, "B S D"],
  weights: Float32[Array, "B S choices"],
  chosen: Int32[Array, "B S choices"],
  projections: Projections,
  scale: float,
  platform: str = "cpu",
  interpret: bool = False,
) -> Float[Array, "B S D"]:
  """Returns the outputs of the tokens of one device; see `ExpertsFn`.

  Args:
    x: the tokens.
    weights: the weight of each expert of a token.
    chosen: the experts of each token.
    projections: the projections of all experts.
    scale: the factor of adapters.
    platform: the device's platform: cpu, gpu or tpu.
    interpret: run kernels in interpret mode, for tests.
  """
  D, choices = x.shape[-1], chosen.shape[-1]
  experts = projections.gate.kernel.shape[0]
  chosen = chosen.reshape(-1, choices)
  product = grouped_products.make(
    platform, chosen.size, experts, interpret=interpret
  )
  groups = arrange(chosen, experts, product)
  rows = dispatch(x.reshape(-1, D), groups)
  project = functools.partial(
    _project, product=product, sizes=groups.sizes, scale=scale
  )
  hidden = gated.silu(
    project(rows, projections.gate), project(rows, projections.up)
  )
  out = project(hidden, projections.down)
  y = combine(out, weights.reshape(-1, choices), groups)
  return y.reshape(x.shape)


def _project(
  rows: Float[Array, "rows inner"],
  own: ExpertParams,
  product: grouped_products.GroupedProduct,
  sizes: Int32[Array, " X"],
  scale: float,
) -> Float[Array, "rows outer"]:
  """Returns the product of rows with their experts' kernels and adapters."""
  y = product(rows, own.kernel, sizes)
  if own.scale is not None:
    at = jnp.arange(rows.shape[0])
    group = jnp.searchsorted(jnp.cumsum(sizes), at, side="right")
    # Rows after the last group's are 0.
    factors = own.scale[jnp.minimum(group, sizes.shape[0] - 1)]
    y = (y.astype(jnp.float32) * factors).astype(y.dtype)
  if own.a is not None and own.b is not None:
    narrow = product(rows, own.a, sizes)
    y = y + product(narrow * scale, own.b, sizes)
  return y


def make(mesh: Mesh, rules: Rules, *, interpret: bool = False) -> ExpertsFn:
  """Returns `compute` for tokens and parameters that are split over a mesh.

  Each device gathers the kernels of its experts. If several devices share the
  experts, each computes its own experts for the tokens of all of them, and the
  sums go back to the tokens' devices.

  Args:
    mesh: the device mesh; tokens are split by `mesh.TOKENS`.
    rules: logical parameter axis to mesh axis.
    interpret: run kernels in interpret mode, for tests.
  """
  platform = mesh_lib.platform(mesh)
  run = functools.partial(compute, platform=platform, interpret=interpret)
  if mesh.size == 1:
    return run

  def split(
    x: Float[Array, "B S D"],
    weights: Float32[Array, "B S choices"],
    chosen: Int32[Array, "B S choices"],
    projections: Projections,
    scale: float,
  ) -> Float[Array, "B S D"]:
    axes = _logical_axes(projections)
    specs = jax.tree.map(
      lambda leaf, names: mesh_lib.param_spec(names, leaf.shape, mesh, rules),
      projections,
      axes,
    )
    owner, width, _ = specs.down.kernel

    def on_shard(x: Any, weights: Any, chosen: Any, projections: Any) -> Any:
      whole = jax.tree.map(_gathered, projections, axes, specs)
      if owner is not None:
        experts = whole.down.kernel.shape[0]
        x, weights, chosen = (
          _of_all(owner, array) for array in (x, weights, chosen)
        )
        own = chosen - jax.lax.axis_index(owner) * experts
        chosen = jnp.where((own >= 0) & (own < experts), own, experts)
      y = run(x, weights, chosen, whole, scale)
      if owner is not None:
        y = _summed(owner, y)
      return jax.lax.psum(y, "tensor") if width == "tensor" else y

    tokens: Any = mesh_lib.TOKENS
    return jax.shard_map(
      on_shard,
      mesh=mesh,
      in_specs=(tokens, tokens, tokens, specs),
      out_specs=tokens,
      check_vma=False,
    )(x, weights, chosen, projections)

  return split


def _token_axis(owner: str) -> int | None:
  """Returns the axis of tokens [B, S, ...] that a mesh axis splits."""
  if owner in mesh_lib.BATCH_AXES:
    return 0
  return 1 if owner == "context" else None


def _of_all(
  owner: str, x: Num[Array, "B S channels"]
) -> Num[Array, "_B _S channels"]:
  """Returns the tokens of all devices that share the experts."""
  axis = _token_axis(owner)
  return (
    x if axis is None else jax.lax.all_gather(x, owner, axis=axis, tiled=True)
  )


def _summed(
  owner: str, y: Float[Array, "_B _S channels"]
) -> Float[Array, "B S channels"]:
  """Returns the sum over experts for the tokens of a device."""
  axis = _token_axis(owner)
  if axis is None:
    return jax.lax.psum(y, owner)
  return jax.lax.psum_scatter(y, owner, scatter_dimension=axis, tiled=True)


class _Names(tuple):
  """The names of a parameter's axes, as one leaf of a tree."""


def _axes(inner: str, outer: str) -> tuple[_Names, ...]:
  """Returns the names of the axes of each field of `ExpertParams`."""
  return (
    _Names(("experts", inner, outer)),
    _Names(("experts", outer)),
    _Names(("experts", inner, None)),
    _Names(("experts", None, outer)),
  )


def _logical_axes(projections: Projections) -> Any:
  """Returns the names of each parameter's axes, in a tree of its structure."""
  wide, narrow = _axes("embed", "mlp"), _axes("mlp", "embed")
  names = [
    name
    for own, each in zip(projections, (wide, wide, narrow), strict=True)
    for leaf, name in zip(own, each, strict=True)
    if leaf is not None
  ]
  return jax.tree.unflatten(jax.tree.structure(projections), names)


def _gathered(
  shard: Num[Array, "..."],
  axes: _Names,
  spec: PartitionSpec,
) -> Num[Array, "..."]:
  """Returns a parameter of a device's experts, whole but for `tensor`."""
  for axis, (name, split) in enumerate(zip(axes, spec, strict=True)):
    stays = name == "experts" or (name, split) == ("mlp", "tensor")
    if split is not None and not stays:
      shard = jax.lax.all_gather(shard, split, axis=axis, tiled=True)
  return shard


def choose(
  logits: Float32[Array, "B S X"],
  shape: ExpertShape,
  replayed: Int32[Array, "B S choices"] | None,
) -> tuple[Int32[Array, "B S choices"], Float32[Array, "B S"]]:
  """Returns each token's experts, and 1 where they are not the likeliest.

  Args:
    logits: the router's logits.
    shape: how many experts a token gets.
    replayed: the experts to choose instead of the likeliest; none for a token
      that has some number >= X.
  """
  _, likeliest = jax.lax.top_k(jax.lax.stop_gradient(logits), shape.per_token)
  if replayed is None:
    return likeliest, jnp.zeros(logits.shape[:2], jnp.float32)
  is_known = jnp.all(replayed < shape.count, axis=-1, keepdims=True)
  chosen = jnp.where(is_known, replayed, likeliest)
  is_same = chosen[..., None] == likeliest[..., None, :]
  is_likely = jnp.all(jnp.any(is_same, axis=-1), axis=-1)
  return chosen, 1.0 - is_likely


def weigh(
  logits: Float32[Array, "B S X"],
  chosen: Int32[Array, "B S choices"],
  shape: ExpertShape,
) -> Float32[Array, "B S choices"]:
  """Returns the weight of each of a token's experts.

  Args:
    logits: the router's logits.
    chosen: the token's experts.
    shape: whether weights sum to 1.
  """
  chances = jax.nn.softmax(logits)
  # A sum over a mask, whose gradient needs no scatter.
  is_chosen = jax.nn.one_hot(chosen, shape.count, dtype=bool)
  weights = jnp.sum(jnp.where(is_chosen, chances[..., None, :], 0), axis=-1)
  if shape.normalized:
    weights = weights / jnp.sum(weights, axis=-1, keepdims=True)
  return weights


class _Declared(nn.Module):
  """Declares parameters and returns them by name.

  Attributes:
    parameters: name, initializer, logical axes and shape of each.
  """

  parameters: tuple[
    tuple[
      str,
      nn.initializers.Initializer,
      tuple[str | None, ...],
      tuple[int, ...],
    ],
    ...,
  ]

  @nn.compact
  def __call__(self) -> dict[str, Num[Array, "..."]]:
    return {
      name: self.param(name, named(start, axes), shape, jnp.float32)
      for name, start, axes, shape in self.parameters
    }


class Experts(nn.Module):
  """A layer's router and experts.

  Attributes:
    config: shapes and constants.
    dtype: compute type; the router computes in float32.
    compute: computes the experts, from `make`.
    quantized: whether kernels have 8 bits and scales.
    lora: the adapters; those of experts have `Lora.expert_rank`.
  """

  config: ModelConfig
  dtype: jnp.dtype
  compute: ExpertsFn = compute
  quantized: bool = False
  lora: adapters.Lora | None = None

  @nn.compact
  def __call__(
    self,
    x: Float[Array, "B S D"],
    segment_ids: Int[Array, "B S"],
    replayed: Int32[Array, "B S choices"] | None = None,
  ) -> tuple[Float[Array, "B S D"], Int32[Array, "B S choices"]]:
    """Returns the outputs of all tokens, 0 for padding, and their experts.

    Args:
      x: the tokens.
      segment_ids: the sequence of each token; 0 is padding.
      replayed: see `choose`.
    """
    shape = self.config.experts
    assert shape is not None
    start = nn.initializers.lecun_normal()
    router = _Declared(
      (("kernel", start, (None, None), (x.shape[-1], shape.count)),),
      name=ROUTER,
    )()
    logits = jnp.einsum(
      "bsd,dx->bsx",
      x.astype(jnp.float32),
      router["kernel"].astype(jnp.float32),
      precision=jax.lax.Precision.HIGHEST,
    )
    chosen, differs = choose(logits, shape, replayed)
    weights = weigh(logits, chosen, shape)
    chosen = jnp.where(segment_ids[..., None] > 0, chosen, shape.count)
    if self.is_mutable_collection(ROUTING):
      logs = jax.nn.log_softmax(jax.lax.stop_gradient(logits))
      entropy = -jnp.sum(jnp.exp(logs) * logs, axis=-1)
      for name, value in Routing(chosen, entropy, differs)._asdict().items():
        self.sow(ROUTING, name, value)
    scale = self.lora.expert_scale if self.lora else 1.0
    y = self.compute(x, weights, chosen, self._projections(), scale)
    return y, chosen

  def _projections(self) -> Projections:
    """Declares the experts' parameters."""
    return Projections(*(self._weights(name) for name in _NAMES))

  def _weights(self, name: str) -> ExpertParams:
    """Declares the parameters of one projection of all experts."""
    c, lora = self.config, self.lora
    assert c.experts is not None
    sides = {"embed": c.hidden_size, "mlp": c.experts.size}
    inner, outer = ("mlp", "embed") if name == "down" else ("embed", "mlp")
    axes, count = _axes(inner, outer), c.experts.count
    start = nn.initializers.variance_scaling(
      *(1.0, "fan_in", "truncated_normal"),
      in_axis=1,
      out_axis=2,
      batch_axis=(0,),
    )
    own: list[Any] = [
      ("kernel", start, axes[0], (count, sides[inner], sides[outer]))
    ]
    if self.quantized:
      ones = nn.initializers.ones
      own.append(("scale", ones, axes[1], (count, sides[outer])))
    found = _Declared(tuple(own), name=name)()
    if lora is not None and name in lora.targets:
      if lora.stacked:
        raise ValueError(
          f"lora.targets={lora.targets}: expected some of q, k, v and o, as "
          "several adapters on one model with experts need"
        )
      rank, zeros = lora.expert_rank, nn.initializers.zeros
      drawn = adapters.uniform(1 / math.sqrt(sides[inner]))
      found |= _Declared(
        (
          ("a", drawn, axes[2], (count, sides[inner], rank)),
          ("b", zeros, axes[3], (count, rank, sides[outer])),
        ),
        name=f"{name}{adapters.SUFFIX}",
      )()
    exact = ("scale", *["kernel"] * self.quantized)
    return ExpertParams(
      **{
        name: x if name in exact else x.astype(self.dtype)
        for name, x in found.items()
      }
    )
