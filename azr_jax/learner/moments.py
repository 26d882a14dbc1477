"""Moments of an optimizer with 16 or 8 bits per entry.

float32 moments take twice the memory of float32 parameters. `compressed` stores
them with fewer bits. Each update decodes a moment, computes in float32 and
encodes the result, entry by entry, so no float32 copy of a moment outlives its
array's update.

The second moment moves by a thousandth of its distance to g^2 in an update
(b2 = 0.999), less than half a unit of either format. So both moments are
rounded stochastically (`rounding.py`).

8 bits: `BLOCK` consecutive entries along one input axis of a kernel share a
float32 scale, their largest absolute value s. A code c stands for

  first moment: sign(c) (c / 127)^2 s, with c in [-127, 127]
  second moment: (c / 255)^4 s, with c in [0, 255]

Small entries have small steps between codes: a second moment of 1e-8 s still
has a step of 64 %. An update divides by the second moment's root, so a positive
entry is never rounded to 0. Blocks never lie along the last axis, where
splitting an array costs a TPU a copy.

8-bit optimizers: Dettmers et al., arXiv 2110.02861.
"""

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Float32, Int, Int32, Integer, UInt32

from azr_jax.learner import rounding
from azr_jax.learner.rounding import Draws
from azr_jax.models import transformer
from azr_jax.types import Leaf, Params

FLOAT32, BFLOAT16, INT8 = "float32", "bfloat16", "int8"
KINDS = (FLOAT32, BFLOAT16, INT8)
# Bytes of both moments of a parameter in a layer's kernel.
BYTES = {FLOAT32: 8.0, BFLOAT16: 4.0, INT8: 2.25}
# Entries that share a scale.
BLOCK = 32
# The largest code of a first and of a second moment.
_FIRST, _SECOND = 127, 255
# Last names of the parameters whose moments stay float32.
_VECTORS = ("scale", "bias")
# Smallest scale that entries are divided by: smaller ones may be flushed to 0.
_TINY = 1e-37
# Names of first and second moments in Optax's states.
_MU, _NU = _MOMENTS = "mu", "nu"
# `mu` or `nu`, and the name of a parameter.
_Name: TypeAlias = tuple[str, str]


class Blocks(NamedTuple):
  """A moment with 8 bits.

  Attributes:
    codes: the codes, int8 for a first moment and uint8 for a second.
    scales: the scales, with one entry per block of an axis.
  """

  codes: Integer[Leaf, "..."]
  scales: Float32[Leaf, "..."]


class CompressedState(NamedTuple):
  """The state of `compressed`.

  Attributes:
    count: number of updates.
    inner: the optimizer's state, with compressed moments.
  """

  count: Int32[Leaf, ""]
  inner: optax.OptState


_Moment: TypeAlias = Float[Array, "..."] | Blocks


def compressed(
  optimizer: optax.GradientTransformation, kind: str, draws: Draws
) -> optax.GradientTransformation:
  """Returns an optimizer whose state has compressed moments.

  Norm scales, biases and other vectors keep float32 moments. With `INT8`,
  arrays outside the layers, and kernels whose input axes are no multiples of
  `BLOCK`, have bfloat16 moments: rows of rare tokens are orders of magnitude
  smaller than other rows of the token table.

  Args:
    optimizer: AdamW or Muon, whose moments are float32.
    kind: `BFLOAT16` or `INT8`.
    draws: the random bits of rounding.
  """

  def init(params: Params) -> CompressedState:
    count = jnp.zeros((), jnp.int32)
    inner = optimizer.init(params)
    scales = _scales(inner, kind)
    return CompressedState(count, _packed(inner, scales, kind, draws, count))

  def update(
    grads: optax.Updates,
    state: CompressedState,
    params: Params | None = None,
  ) -> tuple[optax.Updates, CompressedState]:
    _, inner = optimizer.update(grads, _unpacked(state.inner), params)
    scales = _scales(inner, kind)
    if scales:
      # Encoding needs the largest new entry first. The barrier makes XLA
      # compute the moments a second time instead of storing them in float32.
      before, scales = jax.lax.optimization_barrier((state.inner, scales))
      state = state._replace(inner=before)
    change, inner = optimizer.update(grads, _unpacked(state.inner), params)
    inner = _packed(inner, scales, kind, draws, state.count)
    return change, CompressedState(state.count + 1, inner)

  return optax.GradientTransformation(init, update)


def _packed(
  state: optax.OptState,
  scales: Mapping[_Name, Float32[Array, "..."]],
  kind: str,
  draws: Draws,
  updates: Int[Array, ""],
) -> optax.OptState:
  """Compresses the moments in an optimizer's state.

  Args:
    state: the state, with float32 moments.
    scales: the scales of its 8-bit moments, from `_scales`.
    kind: `BFLOAT16` or `INT8`.
    draws: the random bits of rounding.
    updates: number of updates before this one.
  """
  numbers: dict[str, int] = {}

  def pack(path: jax.tree_util.KeyPath, leaf: jax.Array) -> _Moment:
    stored = _stored_as(kind, path, leaf.shape)
    if stored == FLOAT32:
      return leaf
    moment, param = _name(path)
    # Both moments of a parameter use the same draw, each half of its bits.
    number = numbers.setdefault(param, len(numbers))
    bits = draws.bits(rounding.MOMENTS, updates, number, leaf.shape)
    is_second = moment == _NU
    half = rounding.high_bits if is_second else rounding.low_bits
    if stored == BFLOAT16:
      return rounding.to_bfloat16(leaf, half(bits))
    return encode(leaf, scales[moment, param], half(bits), is_second)

  return jax.tree_util.tree_map_with_path(pack, state)


def _scales(
  state: optax.OptState, kind: str
) -> dict[_Name, Float32[Array, "..."]]:
  """Returns the scales of the moments that get 8 bits, by `_name`."""
  return {
    _name(path): block_scales(leaf)
    for path, leaf in jax.tree_util.tree_leaves_with_path(state)
    if _stored_as(kind, path, leaf.shape) == INT8
  }


def _name(path: jax.tree_util.KeyPath) -> _Name:
  """Returns `mu`, `nu` or "", and the name of the parameter.

  Args:
    path: the path of an array in an optimizer's state.
  """
  moments = [
    entry.name
    for entry in path
    if isinstance(entry, jax.tree_util.GetAttrKey) and entry.name in _MOMENTS
  ]
  keys = [
    str(entry.key) for entry in path if isinstance(entry, jax.tree_util.DictKey)
  ]
  return moments[-1] if moments else "", "/".join(keys)


def _unpacked(state: optax.OptState) -> optax.OptState:
  """Returns an optimizer's state with float32 moments."""

  def unpack(leaf: _Moment) -> Float[Array, "..."]:
    if isinstance(leaf, Blocks):
      return decode(leaf)
    return leaf.astype(jnp.float32) if leaf.dtype == jnp.bfloat16 else leaf

  return jax.tree.map(
    unpack, state, is_leaf=lambda node: isinstance(node, Blocks)
  )


def _stored_as(
  kind: str, path: jax.tree_util.KeyPath, shape: tuple[int, ...]
) -> str:
  """Returns how an array of an optimizer's state is stored.

  Args:
    kind: `BFLOAT16` or `INT8`.
    path: the array's path in the state.
    shape: the array's shape.
  """
  moment, param = _name(path)
  keys = param.split("/")
  if not moment or len(shape) < 2 or keys[-1] in _VECTORS:
    return FLOAT32
  in_layers = transformer.LAYERS in keys and len(shape) > 2
  if kind == INT8 and in_layers and shape[_axis(shape)] % BLOCK == 0:
    return INT8
  return BFLOAT16


def _axis(shape: tuple[int, ...]) -> int:
  """Returns the axis of a stacked kernel [L, ...] that is split into blocks.

  It is the longest one between the first and the last.
  """
  return max(range(1, len(shape) - 1), key=shape.__getitem__)


def block_scales(x: Float32[Array, "..."]) -> Float32[Array, "..."]:
  """Returns the largest absolute value of each block of a stacked kernel."""
  axis = _axis(x.shape)
  blocks = (x.shape[axis] // BLOCK, BLOCK)
  split = jnp.abs(x).reshape(*x.shape[:axis], *blocks, *x.shape[axis + 1 :])
  return jnp.max(split, axis + 1)


def encode(
  x: Float32[Array, "..."],
  scales: Float32[Array, "..."],
  bits: UInt32[Array, "..."],
  is_second: bool,
) -> Blocks:
  """Returns a moment with 8 bits per entry.

  Args:
    x: the moment of a stacked kernel.
    scales: its scales, from `block_scales`.
    bits: random numbers below 2^16, shaped like `x`.
    is_second: whether this is a second moment, which has no negative entries.
  """
  size = jnp.abs(x)
  ratio = _ratio(size, _repeated(scales, x.shape))
  fraction = rounding.to_fraction(bits)
  if not is_second:
    low = jnp.floor(_FIRST * jnp.sqrt(ratio))
    above = (_FIRST**2 * ratio - low**2) / (2 * low + 1)
    code = jnp.minimum(low + (above > fraction), _FIRST)
    return Blocks((jnp.sign(x) * code).astype(jnp.int8), scales)
  low = jnp.floor(_SECOND * jnp.sqrt(jnp.sqrt(ratio)))
  below, over = (low / _SECOND) ** 4, ((low + 1) / _SECOND) ** 4
  above = (ratio - below) / (over - below)
  code = jnp.minimum(low + (above > fraction), _SECOND)
  code = jnp.where((code == 0) & (ratio > 0), 1, code)
  return Blocks(code.astype(jnp.uint8), scales)


def _ratio(
  size: Float32[Array, "..."], scale: Float32[Array, "..."]
) -> Float32[Array, "..."]:
  """Returns size / scale, between 0 and 1.

  Next to an infinite entry, every positive entry counts as infinite: the scale
  shows that the state is not finite, and nothing becomes NaN.
  """
  is_usable = (scale >= _TINY) & jnp.isfinite(scale)
  ratio = size / jnp.where(is_usable, scale, 1.0)
  positive = ((size > 0) & (scale >= _TINY)).astype(jnp.float32)
  return jnp.where(is_usable, jnp.minimum(ratio, 1.0), positive)


def decode(moment: Blocks) -> Float32[Array, "..."]:
  """Returns a moment from its codes and scales."""
  codes, scales = moment
  code = codes.astype(jnp.float32)
  if codes.dtype == jnp.int8:
    unit = jnp.sign(code) * (code / _FIRST) ** 2
  else:
    unit = (code / _SECOND) ** 4
  # 0 times an infinite scale would be NaN.
  value = unit * _repeated(scales, codes.shape)
  return jnp.where(codes == 0, 0.0, value)


def _repeated(
  scales: Float32[Array, "..."], shape: tuple[int, ...]
) -> Float32[Array, "..."]:
  """Returns the scale of each entry of an array with this shape."""
  axis = _axis(shape)
  split = (*scales.shape[: axis + 1], BLOCK, *scales.shape[axis + 1 :])
  repeated = jnp.broadcast_to(jnp.expand_dims(scales, axis + 1), split)
  return repeated.reshape(shape)
