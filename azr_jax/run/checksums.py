"""Checksums of a checkpoint's files, by which damage is found.

Once a checkpoint is finished, each host writes a file of it that lists its part
of the other files with their CRC-32 and size. A file that none of these lists
is taken to be whole: the run was killed before its host had written them, or
saves without checksums. CRC-32 finds every damage of up to 4 bytes in a row,
and misses one in 4 billion others. It was chosen because Python's own is 5 to 8
times as fast as the other checksums of the standard library.
"""

import concurrent.futures
import os
import pathlib
import zlib

from azr_jax.run import storage

# Each host writes a file of this name, with its number.
_NAME = "checksums_{}.txt"
_PREFIX, _PATTERN = "checksums", "checksums*.txt"
_CHUNK_BYTES = 1 << 22
# Files that are read at the same time.
_THREADS = 8


def write(folder: pathlib.Path, index: int = 0, count: int = 1) -> None:
  """Writes a file of checksums, about a part of the files below a folder.

  A kill leaves the whole file or none. Hosts choose their parts by the names
  alone, so a host whose view of a shared disk is late misses no file of
  another's part.

  Args:
    folder: a finished checkpoint.
    index: which host this is, from 0.
    count: how many hosts share the files.

  Raises:
    OSError: a file cannot be read, or that of the checksums not written.
  """
  names = [
    name
    for name in _names(folder)
    if zlib.crc32(name.encode()) % count == index
  ]
  with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
    sums = list(pool.map(lambda name: _checksum(folder / name), names))
  lines = [f"{found} {name}\n" for found, name in zip(sums, names, strict=True)]
  body = "".join(lines)
  text = f"{zlib.crc32(body.encode()):08x}\n{body}"
  storage.write_atomically(folder / _NAME.format(index), text)


def find_damage(folder: pathlib.Path, index: int = 0, count: int = 1) -> str:
  """Returns what is wrong with the files of a checkpoint; "" if nothing is.

  Args:
    folder: the checkpoint.
    index: which part of the files is read, if several processes share them.
    count: into how many parts the files are split.
  """
  expected: dict[str, str] = {}
  for path in sorted(folder.glob(_PATTERN)):
    try:
      expected |= _read(path)
    except (OSError, ValueError):
      return f"{path.name} cannot be read"
  # The largest come first, so that the parts have about one size.
  by_size = sorted(expected, key=lambda n: -int(expected[n].split()[1]))
  names = by_size[index::count]
  with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
    damages = pool.map(lambda n: _difference(folder, n, expected[n]), names)
    return next(filter(None, damages), "")


def _read(path: pathlib.Path) -> dict[str, str]:
  """Returns checksum and size by name, from a file of them.

  Raises:
    ValueError: the file is damaged itself.
  """
  own, _, body = path.read_text(encoding="utf-8").partition("\n")
  if own != f"{zlib.crc32(body.encode()):08x}":
    raise ValueError(f"{path}: expected the checksum of its lines first")
  found = {}
  for line in body.splitlines():
    checksum, size, name = line.split(" ", 2)
    found[name] = f"{checksum} {size}"
  return found


def _difference(folder: pathlib.Path, name: str, expected: str) -> str:
  """Returns what is wrong with a file; "" if nothing is."""
  try:
    found = _checksum(folder / name)
  except FileNotFoundError:
    return f"{name} is missing"
  except (OSError, ValueError):
    return f"{name} cannot be read"
  if found == expected:
    return ""
  size, expected_size = found.split()[1], expected.split()[1]
  if size != expected_size:
    return f"{name} has {size} bytes of {expected_size}"
  return f"{name} has other bytes than were saved"


def _checksum(path: pathlib.Path) -> str:
  """Returns the CRC-32 of a file in hexadecimal, and its size in bytes."""
  checksum = size = 0
  with path.open("rb") as file:
    while chunk := file.read(_CHUNK_BYTES):
      checksum = zlib.crc32(chunk, checksum)
      size += len(chunk)
  return f"{checksum:08x} {size}"


def _names(folder: pathlib.Path, prefix: str = "") -> list[str]:
  """Returns the files below a folder, by their paths from it, in order."""
  names = []
  for path in sorted(folder.iterdir(), key=lambda path: path.name):
    name = os.path.join(prefix, path.name)
    names += _names(path, name) if path.is_dir() else [name]
  return [name for name in names if not name.startswith(_PREFIX)]
