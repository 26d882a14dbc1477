"""Experts: each token passes some of a layer's many small MLPs.

1. `Experts` computes the router's logits in float32 and chooses experts.
2. `expert_rows.py` gives every pair of a token and an expert a row.
3. `expert_mlps.py` computes the experts' MLPs for their rows, by grouped
   products (`grouped_products.py`).
4. A token's output is the sum of its rows, weighted by the router.

On a mesh, steps 2 to 4 run on each device (`expert_sharding.py`).
"""

import math
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Float32, Int, Int32, Num

from azr_jax.models import adapters, expert_mlps
from azr_jax.models.config import ExpertShape, ModelConfig
from azr_jax.models.naming import named

# Name of the module that computes the router's logits, which stay float32.
ROUTER = "router"
# Flax's collection of a call's `Routing`, for callers that make it mutable.
ROUTING = "routing"
_NAMES = ("gate", "up", "down")


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
    compute: computes the experts, from `expert_sharding.make`.
    quantized: whether kernels have 8 bits and scales.
    lora: the adapters; those of experts have the rank `Lora.rank_in`.
  """

  config: ModelConfig
  dtype: jnp.dtype
  compute: expert_mlps.ExpertsFn = expert_mlps.compute
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
    own: list[Any] = [
      ("kernel", start, (None, None), (x.shape[-1], shape.count))
    ]
    if shape.biases:
      own.append(("bias", nn.initializers.zeros, (None,), (shape.count,)))
    router = _Declared(tuple(own), name=ROUTER)()
    logits = jnp.einsum(
      "bsd,dx->bsx",
      x.astype(jnp.float32),
      router["kernel"].astype(jnp.float32),
      precision=jax.lax.Precision.HIGHEST,
    )
    if shape.biases:
      logits = logits + router["bias"].astype(jnp.float32)[None, None]
    chosen, differs = choose(logits, shape, replayed)
    weights = weigh(logits, chosen, shape)
    chosen = jnp.where(segment_ids[..., None] > 0, chosen, shape.count)
    if self.is_mutable_collection(ROUTING):
      logs = jax.nn.log_softmax(jax.lax.stop_gradient(logits))
      entropy = -jnp.sum(jnp.exp(logs) * logs, axis=-1)
      for name, value in Routing(chosen, entropy, differs)._asdict().items():
        self.sow(ROUTING, name, value)
    lora = self.lora
    scale = lora.scale_of(lora.rank_in(shape)) if lora else 1.0
    each = self._projections()
    return self.compute(x, weights, chosen, each, scale, shape.clamp), chosen

  def _projections(self) -> expert_mlps.Projections:
    """Declares the experts' parameters."""
    return expert_mlps.Projections(*(self._weights(name) for name in _NAMES))

  def _weights(self, name: str) -> expert_mlps.ExpertParams:
    """Declares the parameters of one projection of all experts."""
    c, lora = self.config, self.lora
    assert c.experts is not None
    sides = {"embed": c.hidden_size, "mlp": c.experts.size}
    inner, outer = ("mlp", "embed") if name == "down" else ("embed", "mlp")
    axes, count = expert_mlps.parameter_axes(inner, outer), c.experts.count
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
    if c.experts.biases:
      zeros = nn.initializers.zeros
      own.append(("bias", zeros, axes[4], (count, sides[outer])))
    found = _Declared(tuple(own), name=name)()
    if lora is not None and name in lora.targets:
      if lora.stacked:
        raise ValueError(
          f"lora.targets={lora.targets}: expected some of q, k, v and o, as "
          "several adapters on one model with experts need"
        )
      rank, zeros = lora.rank_in(c.experts), nn.initializers.zeros
      drawn = adapters.uniform(1 / math.sqrt(sides[inner]))
      found |= _Declared(
        (
          ("a", drawn, axes[2], (count, sides[inner], rank)),
          ("b", zeros, axes[3], (count, rank, sides[outer])),
        ),
        name=f"{name}{adapters.SUFFIX}",
      )()
    exact = ("scale", *["kernel"] * self.quantized)
    return expert_mlps.ExpertParams(
      **{
        name: x if name in exact else x.astype(self.dtype)
        for name, x in found.items()
      }
    )
