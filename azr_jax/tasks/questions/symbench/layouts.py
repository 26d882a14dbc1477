"""Reads the two layouts of SymBench's public files.

`packed`: a JSON-lines file per dataset, with one line per sample. A line has
the `sample` (its folder) and the contents of its `files`.
`public`: the folder `dataset_gather` of CodeSteer-v1.0, where each sample is a
folder of small files. Three datasets are files of records in both layouts.
"""

import csv
import pathlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from azr_jax.config import user_files

Row = Mapping[str, Any]
_DIGITS = re.compile(r"(\d+)")
# Dataset -> its path in the public layout, unless it is the dataset's name.
_PUBLIC = {
  "24__24": "game24_dataset/24/24.csv",
  "gsmhardv2": "gsmhardv2.jsonl",
  "MATH_train_counting_and_probability": "MATH/train/counting_and_probability",
  "MATH_train_geometry": "MATH/train/geometry",
}
_PACKED = ("{}.jsonl", "{}.csv", "game24_dataset/{}.csv")


def find(folder: pathlib.Path, name: str) -> pathlib.Path | None:
  """Returns the path of a dataset in a folder, or None if it is missing.

  Args:
    folder: a folder in either layout.
    name: the dataset, such as `2048_dataset`.
  """
  places = [folder / pattern.format(name) for pattern in _PACKED]
  places.append(folder / _PUBLIC.get(name, name))
  return next((place for place in places if place.exists()), None)


def rows(path: pathlib.Path) -> list[Row]:
  """Returns the rows of a dataset: a file of records, or a folder of samples.

  Samples are in the natural order of their folders' names: 2 before 10.

  Raises:
    OSError, ValueError: the dataset cannot be read.
  """
  if path.is_dir():
    return list(_samples(path))
  with path.open(encoding=user_files.ENCODING, newline="") as file:
    if path.suffix == ".csv":
      return list(csv.DictReader(file))
    return list(map(user_files.parse_json, file))


def _samples(folder: pathlib.Path) -> Iterator[Row]:
  """Yields the samples of a folder in the public layout."""
  if folder.parent.name == "train":  # MATH has one file per sample.
    for path in sorted(folder.glob("*.json"), key=_natural):
      yield {"file": path.name, **user_files.read_object(path)}
    return
  by_sample: dict[pathlib.Path, dict[str, str]] = {}
  for path in sorted(folder.rglob("*.*"), key=_natural):
    if path.parent != folder and path.is_file():
      texts = by_sample.setdefault(path.parent, {})
      texts[path.name] = path.read_text(user_files.ENCODING)
  for sample, texts in by_sample.items():
    name = sample.relative_to(folder).as_posix()
    yield {"sample": name, "files": texts}


def _natural(path: pathlib.Path) -> list[tuple[int, int, str]]:
  """Returns a key that sorts `sample_2` before `sample_10`."""
  return [
    (1, int(part), "") if part.isdigit() else (0, 0, part)
    for part in _DIGITS.split(path.as_posix())
  ]
