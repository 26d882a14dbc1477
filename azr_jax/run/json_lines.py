"""Reads JSON files that may be incomplete or still being written."""

import json
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any


def read(path: pathlib.Path) -> list[dict[str, Any]]:
  """Returns the JSON objects of a file's lines, skipping invalid lines."""
  return list(_objects(_text(path).split("\n")))


def read_one(path: pathlib.Path) -> dict[str, Any]:
  """Returns the JSON object of a file, {} if it is missing or invalid."""
  return next(_objects([_text(path)]), {}) if path.exists() else {}


def _text(path: pathlib.Path) -> str:
  return path.read_bytes().decode("utf-8", "replace")


def _objects(texts: Iterable[str]) -> Iterator[dict[str, Any]]:
  """Yields the JSON objects among the texts."""
  for text in texts:
    try:
      record = json.loads(text)
    except (ValueError, RecursionError):
      continue
    if isinstance(record, dict):
      yield record
