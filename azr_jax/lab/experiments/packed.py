"""Reads and writes compressed lines of JSON in an archive."""

import gzip
import json
import os
import pathlib
from collections.abc import Sequence
from typing import Any

from azr_jax.config import user_files


def write(path: pathlib.Path, rows: Sequence[Any]) -> None:
  """Writes one row per line, unless the file has them already."""
  text = "".join(json.dumps(row) + "\n" for row in rows)
  # Without a date in the file, writing again changes nothing.
  data = gzip.compress(text.encode(), mtime=0)
  if path.exists() and path.read_bytes() == data:
    return
  path.parent.mkdir(parents=True, exist_ok=True)
  partial = path.with_name(f"{path.name}.{os.getpid()}")
  partial.write_bytes(data)
  partial.replace(path)


def read(path: pathlib.Path, expected: str) -> list[Any]:
  """Returns the rows of a file, [] if it does not exist.

  Args:
    path: the file.
    expected: its expected contents, for the error.

  Raises:
    ValueError: the file is damaged.
  """
  if not path.exists():
    return []
  with user_files.reading(path, expected):
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    return [user_files.parse_json(line) for line in lines]
