"""Checksums of a checkpoint's files, by which damage is found.

`write` lists all files with their CRC-32 and size in a file of the checkpoint,
before the checkpoint gets its final name. So every finished checkpoint has one,
unless it was saved without; then it is taken to be whole. CRC-32 finds every
damage of up to 4 bytes in a row, and misses one in 4 billion others. It was
chosen because Python's own is 5 to 8 times as fast as the other checksums of
the standard library.
"""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import time
import zlib

FILE = "checksums.txt"
# Orbax adds the time of the commit to this file at the very end. The other
# fields are written by a thread that it does not wait for; this one says that
# they are there.
_METADATA, _ADDED_LATER = "_CHECKPOINT_METADATA", "commit_timestamp_nsecs"
_LAST_FIELD, _LAST_FIELD_S = "item_handlers", 60.0
_CHUNK_BYTES = 1 << 22
# Files that are read at the same time.
_THREADS = 8


def write(folder: pathlib.Path) -> None:
  """Writes the file of checksums, about all files below a folder."""
  names = _names(folder)
  if _METADATA in names and not _is_written(folder / _METADATA):
    names.remove(_METADATA)
  with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
    sums = list(pool.map(lambda name: _checksum(folder, name), names))
  lines = [f"{found} {name}\n" for found, name in zip(sums, names, strict=True)]
  body = "".join(lines)
  text = f"{zlib.crc32(body.encode()):08x}\n{body}"
  (folder / FILE).write_text(text, encoding="utf-8")


def find_damage(folder: pathlib.Path, index: int = 0, count: int = 1) -> str:
  """Returns what is wrong with the files of a checkpoint; "" if nothing is.

  Args:
    folder: the checkpoint.
    index: which part of the files is read, if several processes share them.
    count: into how many parts the files are split.
  """
  try:
    expected = _read(folder)
  except (OSError, ValueError):
    return f"{FILE} cannot be read"
  # The largest come first, so that the parts have about one size.
  by_size = sorted(expected, key=lambda n: -int(expected[n].split()[1]))
  names = by_size[index::count]
  with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
    damages = pool.map(lambda n: _difference(folder, n, expected[n]), names)
    return next(filter(None, damages), "")


def _read(folder: pathlib.Path) -> dict[str, str]:
  """Returns checksum and size by name; empty if there is no file of them.

  Raises:
    ValueError: the file of checksums is damaged itself.
  """
  path = folder / FILE
  if not path.exists():
    return {}
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
    found = _checksum(folder, name)
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


def _is_written(path: pathlib.Path) -> bool:
  """Waits for Orbax to write its metadata; returns whether it did."""
  deadline = time.monotonic() + _LAST_FIELD_S
  while time.monotonic() < deadline:
    # The file is not replaced at once, so it may be read half.
    with contextlib.suppress(OSError, ValueError):
      if json.loads(path.read_bytes()).get(_LAST_FIELD):
        return True
    time.sleep(0.01)
  return False


def _checksum(folder: pathlib.Path, name: str) -> str:
  """Returns the CRC-32 of a file in hexadecimal, and its size in bytes."""
  path = folder / name
  if name == _METADATA:
    fields = json.loads(path.read_bytes())
    fields.pop(_ADDED_LATER, None)
    data = json.dumps(fields, sort_keys=True).encode()
    return f"{zlib.crc32(data):08x} {len(data)}"
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
  return [name for name in names if name != FILE]
