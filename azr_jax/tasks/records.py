"""Reads records, dictionaries or lists, from files and public datasets.

| spec | source |
| --- | --- |
| a path | `.jsonl`, `.json` (an array), `.csv`, `.parquet`; also `.gz` |
| `tfds:NAME`, `tfds:NAME/SPLIT` | tensorflow-datasets |
| `hf:OWNER/NAME`, `hf:OWNER/NAME/CONFIG:SPLIT` | Hugging Face datasets |
"""

import csv
import gzip
import importlib
import io
import json
import pathlib
from collections.abc import Iterable
from typing import Any

_DEFAULT_SPLIT = "train"


def read(spec: str) -> Iterable[Any]:
  """Reads the records that a spec names.

  Raises:
    ValueError: the file does not exist, it does not hold records, or a
      required package is missing.
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
  data = path.read_bytes()
  name = path.name
  if name.endswith(".gz"):
    data, name = gzip.decompress(data), name.removesuffix(".gz")
  if name.endswith(".parquet"):
    return _parquet(data, path)
  try:
    text = data.decode("utf-8")
    if name.endswith(".csv"):
      return list(csv.DictReader(io.StringIO(text)))
    if text.lstrip().startswith("["):
      return json.loads(text)
    return [json.loads(line) for line in text.split("\n") if line.strip()]
  except ValueError as error:
    raise ValueError(f"{path}: {error}; expected JSON records") from None


def _parquet(data: bytes, path: pathlib.Path) -> list[Any]:
  try:
    from pyarrow import parquet
  except ImportError:
    raise ValueError(
      f"{path}: reading parquet needs `pip install pyarrow`, or the same "
      "records as JSON lines"
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
    raise ValueError(
      f"hf:{name}: needs `pip install -e '.[eval]'` (datasets)"
    ) from None
  name, _, split = name.partition(":")
  owner, _, rest = name.partition("/")
  title, _, config = rest.partition("/")
  try:
    return datasets.load_dataset(
      f"{owner}/{title}", config or None, split=split or _DEFAULT_SPLIT
    )
  except OSError as error:  # Connection errors are OSErrors.
    raise ValueError(
      f"hf:{name}: {error}; expected a network connection; otherwise pass the "
      "path of a file with the same records"
    ) from None
