"""Checks the lengths in the header of a GGUF file.

The reader of the package `gguf` trusts them: if the length of an array is
damaged, it reads for ever, past the end of the file.
"""

import io
import pathlib
import struct
from typing import BinaryIO

_MAGIC = b"GGUF"
# Types of values by their numbers: fixed sizes in bytes, texts and arrays.
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_STRING, _ARRAY = 8, 9
# The reader takes microseconds per value; vocabularies have some 100,000.
_MAX_VALUES = 1 << 22


def check(path: pathlib.Path) -> None:
  """Reads the metadata of a file up to the names of its tensors.

  Raises:
    ValueError: it is no GGUF file of this byte order, or a length does not fit
      the file.
  """
  with path.open("rb") as file:
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    if file.read(4) != _MAGIC:
      raise ValueError("expected a file that begins with GGUF")
    _, tensors, pairs = _unpack(file, "<IQQ")
    # Each key and each tensor takes more than 8 bytes.
    if 8 * (tensors + pairs) > size:
      raise ValueError(f"{tensors} tensors, {pairs} keys: expected fewer")
    values = 0
    for _ in range(pairs):
      _skip(file, size, *_unpack(file, "<Q"))
      (kind,) = _unpack(file, "<I")
      values += _skip_value(file, size, kind)
      if values > _MAX_VALUES:
        raise ValueError(f"expected at most {_MAX_VALUES} values of keys")


def _skip_value(file: BinaryIO, size: int, kind: int) -> int:
  """Skips the value of a key, and returns how many values it is made of."""
  count, inner = 1, kind
  if kind == _ARRAY:
    inner, count = _unpack(file, "<IQ")
  if count > _MAX_VALUES:
    raise ValueError(f"an array of {count} values: expected fewer")
  if inner in _SIZES:
    _skip(file, size, count * _SIZES[inner])
  elif inner == _STRING:
    for _ in range(count):
      _skip(file, size, *_unpack(file, "<Q"))
  else:
    raise ValueError(f"a value of type {inner}: expected a known type")
  return count


def _skip(file: BinaryIO, size: int, count: int) -> None:
  if count > size - file.tell():
    raise ValueError(f"a length of {count} bytes: expected one inside the file")
  file.seek(count, io.SEEK_CUR)


def _unpack(file: BinaryIO, struct_format: str) -> tuple[int, ...]:
  data = file.read(struct.calcsize(struct_format))
  if len(data) < struct.calcsize(struct_format):
    raise ValueError("expected more metadata before the end of the file")
  return struct.unpack(struct_format, data)
