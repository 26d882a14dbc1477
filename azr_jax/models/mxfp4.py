"""Reads tensors in MXFP4, in which gpt-oss stores the kernels of its experts.

A group of 32 weights shares a power of two, and each weight has 4 bits: a sign,
two of exponent and one of mantissa (the format of the Open Compute Project). A
kernel [X, in, out] is in two tensors of bytes: `NAME_blocks` [X, out, in / 32,
16], with two weights a byte, the first in the low bits, and `NAME_scales` [X,
out, in / 32], exponents plus 127.
"""

import pathlib
from collections.abc import Collection

import numpy as np
from jaxtyping import Float

from azr_jax.models.safetensors_io import SafetensorsReader
from azr_jax.models.weight_loading import TensorReader

_BLOCKS, _SCALES = "_blocks", "_scales"
_BYTES = ("U8",)
_POSITIVE = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
# A scale is an exponent plus this.
_BIAS = 127
# Weights that share a scale, and their bytes.
_GROUP, _GROUP_BYTES = 32, 16


def dequantizing(reader: SafetensorsReader) -> TensorReader:
  """Returns a reader of the same tensors, dequantized where they are MXFP4."""
  is_packed = any(name.endswith(_BLOCKS) for name in reader.names())
  return Mxfp4Reader(reader) if is_packed else reader


class Mxfp4Reader:
  """A checkpoint whose packed kernels read as float32; a `TensorReader`."""

  def __init__(self, reader: SafetensorsReader):
    """Lists the tensors, without reading them."""
    self.path: pathlib.Path = reader.path
    self._reader, names = reader, {*reader.names()}
    self._packed = {
      name.removesuffix(_BLOCKS)
      for name in names
      if name.endswith(_BLOCKS)
      and name.removesuffix(_BLOCKS) + _SCALES in names
    }
    halves = {
      name + half for name in self._packed for half in (_BLOCKS, _SCALES)
    }
    self._names = self._packed | (names - halves)

  def names(self) -> Collection[str]:
    """Returns the names of all tensors; a packed kernel is one tensor."""
    return self._names

  def shape(self, name: str) -> tuple[int, ...]:
    """Returns a tensor's shape without reading it.

    Raises:
      ValueError: the two parts of a kernel do not go together.
    """
    if name not in self._packed:
      return self._reader.shape(name)
    blocks, scales = (
      self._reader.shape(name + half) for half in (_BLOCKS, _SCALES)
    )
    if len(blocks) != 4 or blocks != (*scales, _GROUP_BYTES):
      raise ValueError(
        f"{self.path}: tensors {name}{_BLOCKS} {blocks} and {name}{_SCALES} "
        f"{scales}: expected [X, out, in / {_GROUP}, {_GROUP_BYTES}] and the "
        "same without the last axis"
      )
    experts, outputs, groups = scales
    return experts, groups * _GROUP, outputs

  def read(
    self, name: str, index: tuple[slice, ...]
  ) -> Float[np.ndarray, "..."]:
    """Reads a range of a tensor: one slice of step 1 per axis."""
    if name not in self._packed:
      return self._reader.read(name, index)
    experts, inputs, outputs = index
    first = inputs.start // _GROUP
    groups = slice(first, -(-inputs.stop // _GROUP))
    at = experts, outputs, groups
    scales = self._reader.read(name + _SCALES, at, _BYTES)
    blocks = (*at, slice(0, _GROUP_BYTES))
    packed = self._reader.read(name + _BLOCKS, blocks, _BYTES)
    factors = np.ldexp(np.float32(1), scales.astype(np.int32) - _BIAS)
    weights = _values()[packed].reshape(*scales.shape, _GROUP)
    weights = (weights * factors[..., None]).reshape(*scales.shape[:2], -1)
    begin = inputs.start - first * _GROUP
    own = weights[..., begin : begin + inputs.stop - inputs.start]
    return own.swapaxes(1, 2)


def _values() -> Float[np.ndarray, "bytes 2"]:
  """Returns the two weights of each byte, without their scale."""
  values = np.asarray((*_POSITIVE, *(-x for x in _POSITIVE)), np.float32)
  byte = np.arange(256)
  return np.stack([values[byte & 15], values[byte >> 4]], axis=-1)
