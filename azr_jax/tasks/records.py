"""Reads records (dictionaries or lists) from files and public datasets.

| spec | source |
| --- | --- |
| a path | `.jsonl`, `.json` (an array), `.csv`, `.parquet`, each also `.gz` |
| `tfds:NAME`, `tfds:NAME/SPLIT` | tensorflow-datasets |
| `hf:OWNER/NAME`, `hf:OWNER/NAME/CONFIG:SPLIT` | Hugging Face datasets |
"""

import csv
import importlib
import io
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any

from azr_jax.config import extras, user_files

_DEFAULT_SPLIT = "train"
_SHOWN_CHARS = 200


def read(spec: str) -> Iterable[Any]:
  """Reads the records of a spec.

  Raises:
    ValueError: the file does not exist or does not hold records, or a required
      package is missing.
  """
  kind, colon, name = spec.partition(":")
  if kind == "tfds" and colon:
    return _tfds(name)
  if kind == "hf" and colon:
    return _hugging_face(name)
  path = pathlib.Path(spec).expanduser()
  if not path.is_file():
    raise ValueError(
      f"{path}: there is no such file; expected a file of records, tfds:NAME "
      "or hf:OWNER/NAME"
    )
  return _file(path)


def _file(path: pathlib.Path) -> list[Any]:
  with user_files.reading(path, "records"):
    data = path.read_bytes()
    name = path.name
    if name.endswith(".gz"):
      data, name = user_files.unzip(data), name.removesuffix(".gz")
    if name.endswith(".parquet"):
      return _parquet(data, path)
    text = data.decode(user_files.ENCODING)
    if name.endswith(".csv"):
      return _csv(text)
    if text.lstrip().startswith("["):
      return user_files.parse_json(text)
    return list(_lines(text))


def _lines(text: str) -> Iterator[Any]:
  """Yields the records of JSON lines."""
  for number, line in enumerate(text.split("\n"), 1):
    if line.strip():
      try:
        yield user_files.parse_json(line)
      except ValueError as error:
        raise ValueError(f"line {number}: {error}") from error


def _csv(text: str) -> list[dict[str, str]]:
  """Returns the records of a CSV file. Its first line names the fields."""
  rows = list(csv.DictReader(io.StringIO(text, newline=""), strict=True))
  for number, row in enumerate(rows, 1):
    if None in row or None in row.values():
      raise ValueError(f"record {number}: expected a value for each field")
  return rows


def _parquet(data: bytes, path: pathlib.Path) -> list[Any]:
  try:
    from pyarrow import parquet
  except ImportError:
    raise ValueError(
      f"{path}: {extras.missing('pyarrow')}, or write the same records as JSON "
      "lines"
    ) from None
  return parquet.read_table(io.BytesIO(data)).to_pylist()


def _tfds(name: str) -> Iterable[Any]:
  import tensorflow_datasets as tfds

  name, _, split = name.partition("/")
  source: Any = tfds.data_source(name, split=split or _DEFAULT_SPLIT)
  for record in source:
    yield {
      key: value.decode() if isinstance(value, bytes) else value
      for key, value in record.items()
    }


def _hugging_face(name: str) -> Iterable[Any]:
  try:
    datasets = importlib.import_module("datasets")
  except ImportError:
    raise ValueError(f"hf:{name}: {extras.missing('datasets')}") from None
  path, _, split = name.partition(":")
  owner, _, rest = path.partition("/")
  title, _, config = rest.partition("/")
  try:
    return datasets.load_dataset(
      f"{owner}/{title}", config or None, split=split or _DEFAULT_SPLIT
    )
  except Exception as error:  # The library's errors share no base class.
    line = " ".join(str(error).split())[:_SHOWN_CHARS]
    raise ValueError(
      f"hf:{name}: {type(error).__name__}: {line}; expected network access and "
      "a dataset without a loading script; otherwise pass a file with the same "
      "records"
    ) from error
