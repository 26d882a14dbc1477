"""Moments of an optimizer with 16 or 8 bits per entry.

float32 moments take twice the memory of float32 parameters. `compressed` stores
them with fewer bits. Each update decodes a moment, computes in float32 and
encodes the result, entry by entry, so no float32 copy of a moment outlives its
array's update.

The second moment moves by a thousandth of its distance to g^2 in an update
(b2 = 0.999), less than half a unit of either format. So both moments are
rounded stochastically (`rounding.py`).

8 bits: a kernel's entry x_ij has the scale s_ij = min(r_i, c_j), where r_i and
c_j are the largest absolute values of its row and of its column (rank-1
normalization: Li et al., arXiv 2309.01507). A code c stands for

  first moment: sign(c) (c / 127)^4 s, with c in [-127, 127]
  second moment: (c / 255)^8 s, with c in [0, 255]

Small entries have small steps between codes: 3 % at s, and 18 % at 1e-3 s or,
for a second moment, at 1e-6 s. An update divides by the second moment's root,
so a positive entry is never rounded to 0.

8-bit optimizers: Dettmers et al., arXiv 2110.02861.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float32, Int, Int32, Integer, Num, UInt32

from azr_jax.learner import rounding
from azr_jax.learner.rounding import Draws
from azr_jax.types import Leaf

FLOAT32, BFLOAT16, INT8 = "float32", "bfloat16", "int8"
KINDS = (FLOAT32, BFLOAT16, INT8)
# Bytes of both moments of a matrix's entry; int8 has a few scales besides.
BYTES = {FLOAT32: 8.0, BFLOAT16: 4.0, INT8: 2.0}
# Of a first and of a second moment: the largest code, the power of c, and the
# codes' dtype.
_FIRST, _SECOND = (127, 4, jnp.int8), (255, 8, jnp.uint8)
# Last names of the parameters that are vectors, or one for each expert. Their
# moments stay float32.
VECTORS = ("scale", "bias", "sinks")
# Smallest scale that entries are divided by: smaller ones may be flushed to 0.
_TINY = 1e-37
_LARGEST = float(np.finfo(np.float32).max)
# Names of first and second moments in Optax's states.
_MU, _NU = _MOMENTS = "mu", "nu"
# `mu` or `nu`, and the name of a parameter.
_Name: TypeAlias = tuple[str, str]
# `ScaledCodes.rows` and `columns`.
_Scales: TypeAlias = tuple[Float32[Array, "..."], Float32[Array, "..."]]


class ScaledCodes(NamedTuple):
  """A moment of stacked kernels [L, ...] with 8 bits.

  Attributes:
    codes: the codes, int8 for a first moment and uint8 for a second.
    rows: the largest absolute values along the last axis, which has size 1.
    columns: the same along the axis after L.
  """

  codes: Integer[Leaf, "..."]
  rows: Float32[Leaf, "..."]
  columns: Float32[Leaf, "..."]


class CompressedState(NamedTuple):
  """The state of `compressed`.

  Attributes:
    count: number of updates.
    inner: the optimizer's state, with compressed moments.
  """

  count: Int32[Leaf, ""]
  inner: optax.OptState


# An array of an optimizer's state, or a moment with 8 bits.
_Stored: TypeAlias = Num[Array, "..."] | ScaledCodes


def compressed(
  optimizer: optax.GradientTransformation, kind: str, draws: Draws
) -> optax.GradientTransformation:
  """Returns an optimizer whose state has compressed moments.

  Norm scales, biases and other vectors keep float32 moments. With `INT8`, the
  token table and the output head have bfloat16 moments: 8 bits train embeddings
  badly (Dettmers et al.), and a gradient that XLA stores transposed would be
  copied.

  Args:
    optimizer: AdamW or Muon, whose moments are float32.
    kind: `BFLOAT16` or `INT8`.
    draws: the random bits of rounding.
  """

  def init(params: optax.Params) -> CompressedState:
    count = jnp.zeros((), jnp.int32)
    return CompressedState(count, _started(optimizer.init(params), kind))

  def update(
    updates: optax.Updates,
    state: optax.OptState,
    params: optax.Params | None = None,
  ) -> tuple[optax.Updates, CompressedState]:
    state = cast(CompressedState, state)
    before, scales = state.inner, []
    # Encoding needs the largest new entries first. The barriers make XLA
    # compute new moments three times instead of storing them in float32.
    for largest in (_rows, _columns) if kind == INT8 else ():
      _, inner = optimizer.update(updates, _unpacked(before), params)
      found = _largest(inner, largest)
      before, found = jax.lax.optimization_barrier((before, found))
      scales.append(found)
    change, inner = optimizer.update(updates, _unpacked(before), params)
    inner = _packed(inner, scales, kind, draws, state.count)
    return change, CompressedState(state.count + 1, inner)

  return optax.GradientTransformation(init, update)


def _started(state: optax.OptState, kind: str) -> optax.OptState:
  """Compresses moments that are all 0, which XLA would do at compile time."""

  def start(path: jax.tree_util.KeyPath, leaf: jax.Array) -> _Stored:
    stored = _stored_as(kind, path, leaf.shape)
    if stored == FLOAT32:
      return leaf
    if stored == BFLOAT16:
      return jnp.zeros(leaf.shape, jnp.bfloat16)
    _, _, dtype = _SECOND if _name(path)[0] == _NU else _FIRST
    rows, columns = jax.eval_shape(find_scales, leaf)
    return ScaledCodes(
      jnp.zeros(leaf.shape, dtype),
      jnp.zeros(rows.shape),
      jnp.zeros(columns.shape),
    )

  return jax.tree_util.tree_map_with_path(start, state)


def _packed(
  state: optax.OptState,
  scales: Sequence[Mapping[_Name, Float32[Array, "..."]]],
  kind: str,
  draws: Draws,
  updates: Int[Array, ""],
) -> optax.OptState:
  """Compresses the moments in an optimizer's state.

  Args:
    state: the state, with float32 moments.
    scales: rows and columns of its 8-bit moments, from `_largest`; () without.
    kind: `BFLOAT16` or `INT8`.
    draws: the random bits of rounding.
    updates: number of updates before this one.
  """
  numbers: dict[str, int] = {}

  def pack(path: jax.tree_util.KeyPath, leaf: jax.Array) -> _Stored:
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
    rows, columns = (found[moment, param] for found in scales)
    return encode(leaf, (rows, columns), half(bits), is_second)

  return jax.tree_util.tree_map_with_path(pack, state)


def _largest(
  state: optax.OptState,
  of: Callable[[Float32[Array, "..."]], Float32[Array, "..."]],
) -> dict[_Name, Float32[Array, "..."]]:
  """Returns the rows or columns of the moments that get 8 bits, by `_name`.

  Args:
    state: the state, with float32 moments.
    of: `_rows` or `_columns`.
  """
  return {
    _name(path): of(leaf)
    for path, leaf in jax.tree_util.tree_leaves_with_path(state)
    if _stored_as(INT8, path, leaf.shape) == INT8
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

  def unpack(leaf: _Stored) -> Num[Array, "..."]:
    if isinstance(leaf, ScaledCodes):
      return decode(leaf)
    return leaf.astype(jnp.float32) if leaf.dtype == jnp.bfloat16 else leaf

  return jax.tree.map(
    unpack, state, is_leaf=lambda node: isinstance(node, ScaledCodes)
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
  if not moment or len(shape) < 2 or param.split("/")[-1] in VECTORS:
    return FLOAT32
  return BFLOAT16 if len(shape) < 3 else kind


def _rows(x: Float32[Array, "..."]) -> Float32[Array, "..."]:
  """Returns the largest absolute values along the last axis."""
  return jnp.max(jnp.abs(x), -1, keepdims=True)


def _columns(x: Float32[Array, "..."]) -> Float32[Array, "..."]:
  """Returns the same along the axis after the layers'."""
  return jnp.max(jnp.abs(x), 1, keepdims=True)


def find_scales(x: Float32[Array, "..."]) -> _Scales:
  """Returns the largest absolute values of a moment's rows and columns."""
  return _rows(x), _columns(x)


def encode(
  x: Float32[Array, "..."],
  scales: _Scales,
  bits: UInt32[Array, "..."],
  is_second: bool,
) -> ScaledCodes:
  """Returns a moment with 8 bits per entry.

  Args:
    x: the moment.
    scales: its scales, from `find_scales`.
    bits: random numbers below 2^16, shaped like `x`.
    is_second: whether this is a second moment, which has no negative entries.
  """
  ratio = _ratio(jnp.abs(x), jnp.minimum(*scales))
  largest, power, dtype = _SECOND if is_second else _FIRST
  low = jnp.floor(largest * _root(ratio, power))
  below, over = (low / largest) ** power, ((low + 1) / largest) ** power
  chance = (ratio - below) / (over - below)
  code = low + (chance > rounding.to_fraction(bits))
  code = jnp.minimum(code, largest)
  if is_second:
    code = jnp.maximum(code, jnp.ceil(ratio))  # At least 1, unless x is 0.
  else:
    code = jnp.sign(x) * code
  return ScaledCodes(code.astype(dtype), *scales)


def _root(x: Float32[Array, "..."], power: int) -> Float32[Array, "..."]:
  """Returns the root of a power of two."""
  for _ in range(power.bit_length() - 1):
    x = jnp.sqrt(x)
  return x


def _ratio(
  size: Float32[Array, "..."], scale: Float32[Array, "..."]
) -> Float32[Array, "..."]:
  """Returns size / scale, between 0 and 1, also for scales of 0 or infinity."""
  scale = jnp.clip(scale, _TINY, _LARGEST)
  return jnp.minimum(jnp.minimum(size, _LARGEST) / scale, 1.0)


def decode(moment: ScaledCodes) -> Float32[Array, "..."]:
  """Returns a moment from its codes and scales."""
  codes, rows, columns = moment
  is_second = codes.dtype == jnp.uint8
  largest, power, _ = _SECOND if is_second else _FIRST
  code = codes.astype(jnp.float32)
  unit = jnp.sign(code) * (code / largest) ** power
  # 0 times an infinite scale would be NaN. Selecting zeros instead would make
  # XLA read them from memory, where it keeps zeros for gradients.
  return unit * jnp.minimum(jnp.minimum(rows, _LARGEST), columns)
