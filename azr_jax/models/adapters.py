"""Low-rank adapters: the trained part of a model whose base is frozen.

An adapted projection computes y = x W + s (x A) B (LoRA, arXiv 2106.09685).
Only A and B are trained. They are float32 and lie next to the projection that
they adapt: `layers/attention/q_lora/a` adapts `layers/attention/q`.

A base model and its adapters are separate trees, because only adapters belong
to the state of training. `join` merges them into the tree that a decoder reads.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int, Key

from azr_jax.models import products
from azr_jax.models.config import ExpertShape, ModelConfig
from azr_jax.models.naming import named
from azr_jax.types import Params

# The projections of a layer that can have an adapter.
TARGETS = ("q", "k", "v", "o", "gate", "up", "down")
# Added to a projection's name, it names the projection's adapter.
SUFFIX = "_lora"


@dataclasses.dataclass(frozen=True)
class Lora:
  """The shape and scale of a model's adapters.

  Attributes:
    rank: R, the size of the axis between A and B.
    alpha: the scale before it is divided by the rank.
    rank_stabilized: whether alpha is divided by the rank's square root instead
      of the rank (rsLoRA, arXiv 2312.03732).
    targets: the adapted projections, some of `TARGETS`. Gate, up and down are
      those of each expert where a layer has experts.
    stacked: N, the number of adapters on one base, of which each token gets one
      (as in S-LoRA, arXiv 2311.03285). 0: one adapter, without an axis N.
    expert_rank: the rank of an expert's adapters. 0: `rank` divided by the
      experts per token, so that those of a token have `rank` together.
  """

  rank: int
  alpha: float
  rank_stabilized: bool = False
  targets: tuple[str, ...] = TARGETS
  stacked: int = 0
  expert_rank: int = 0

  @property
  def scale(self) -> float:
    """The factor s of an adapter's output."""
    return self.alpha / (
      math.sqrt(self.rank) if self.rank_stabilized else self.rank
    )

  def rank_in(self, experts: ExpertShape) -> int:
    """Returns the rank of an expert's adapters, at least 1."""
    return self.expert_rank or max(1, self.rank // experts.per_token)

  def of_model(self, config: ModelConfig) -> "Lora":
    """Returns the same shape, with the default `expert_rank` written as 0."""
    usual = dataclasses.replace(self, expert_rank=0)
    experts = config.experts
    if experts is None or usual.rank_in(experts) == self.rank_in(experts):
      return usual
    return self

  def scale_of(self, rank: int) -> float:
    """Returns the factor s of an adapter of some rank."""
    return dataclasses.replace(self, rank=rank).scale


class Adapter(nn.Module):
  """Adds an adapter's output to that of a projection.

  A is drawn as PEFT draws it and B is 0, so a new adapter changes nothing.

  Several adapters [*in, N, R] and [N, R, *out] are computed as one of rank N R,
  in which a token keeps the R numbers between A and B that are its adapter's.
  That costs N times the products of one adapter, which are small beside the
  base's, and needs no gathering of adapters by token.

  Attributes:
    lora: rank and scale.
    axes_in: logical names of the projection's input axes.
    axes_out: logical names of its output axes.
    dtype: compute type.
    multiply: the product with A and with B, from `products.make`.
  """

  lora: Lora
  axes_in: tuple[str | None, ...]
  axes_out: tuple[str | None, ...]
  dtype: DTypeLike
  multiply: products.MultiplyFn

  @nn.compact
  def __call__(
    self,
    x: Float[Array, "B S *in"],
    y: Float[Array, "B S *out"],
    adapter_ids: Int[Array, "B _S"] | None,
  ) -> Float[Array, "B S *out"]:
    shape_in, shape_out, count = x.shape[2:], y.shape[2:], self.lora.stacked
    between = (count, self.lora.rank) if count else (self.lora.rank,)
    bound = 1 / math.sqrt(math.prod(shape_in))
    unnamed = (None,) * len(between)
    axes_a, axes_b = (*self.axes_in, *unnamed), (*unnamed, *self.axes_out)
    a = self.param(
      "a", named(uniform(bound), axes_a), (*shape_in, *between), jnp.float32
    )
    b = self.param(
      "b",
      named(nn.initializers.zeros, axes_b),
      (*between, *shape_out),
      jnp.float32,
    )
    narrow = self.multiply(x.astype(self.dtype), a, axes_a, len(shape_in))
    if count:
      assert adapter_ids is not None, "stacked adapters need `adapter_ids`"
      is_own = jax.nn.one_hot(adapter_ids, count, dtype=bool)
      narrow = jnp.where(is_own[..., None], narrow, 0)
    wide = self.multiply(narrow * self.lora.scale, b, axes_b, len(between))
    return y + wide.astype(y.dtype)


def uniform(bound: float) -> nn.initializers.Initializer:
  """Returns an initializer that draws uniformly from [-bound, bound)."""

  def draw(
    key: Key[Array, ""], shape: Any, dtype: Any = jnp.float32
  ) -> Float[Array, "..."]:
    return jax.random.uniform(key, shape, dtype, -bound, bound)

  return draw


def parameter_count(config: ModelConfig, lora: Lora) -> int:
  """Returns the number of parameters of a decoder's adapters."""
  c = config
  model, heads = c.hidden_size, c.num_heads * c.head_size
  keys = c.num_kv_heads * c.head_size
  sizes = {
    "q": model + heads,
    "k": model + keys,
    "v": model + keys,
    "o": heads + model,
    "gate": model + c.mlp_size,
    "up": model + c.mlp_size,
    "down": c.mlp_size + model,
  }
  ranks = dict.fromkeys(sizes, lora.rank)
  if c.experts is not None:
    of_mlp = ("gate", "up", "down")
    sizes |= dict.fromkeys(of_mlp, model + c.experts.size)
    ranks |= dict.fromkeys(of_mlp, c.experts.count * lora.rank_in(c.experts))
  each = sum(ranks[name] * sizes[name] for name in lora.targets)
  return c.num_layers * each * max(lora.stacked, 1)


def join(base: Params, trained: Params) -> Params:
  """Returns the tree of a decoder from its frozen and its trained parameters.

  Copies no array.

  Args:
    base: the frozen parameters; {} if all are trained.
    trained: the trained parameters.
  """
  joined = dict(base)
  for name, value in trained.items():
    is_inner = isinstance(value, Mapping) and name in joined
    joined[name] = join(joined[name], dict(value)) if is_inner else value
  return joined


def adapters_of(params: Params) -> Params:
  """Returns the part of a decoder's parameters that are adapters."""
  return _part(params, adapters=True)


def base_of(params: Params) -> Params:
  """Returns a decoder's parameters without adapters."""
  return _part(params, adapters=False)


def _part(params: Params, adapters: bool) -> Params:
  """Returns the tree of all adapters, or of everything else."""
  found = {}
  for name, value in params.items():
    if name.endswith(SUFFIX):
      if adapters:
        found[name] = value
    elif isinstance(value, Mapping):
      if inner := _part(dict(value), adapters):
        found[name] = inner
    elif not adapters:
      found[name] = value
  return found
