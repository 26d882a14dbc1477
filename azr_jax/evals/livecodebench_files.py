"""The files of LiveCodeBench's contest problems: releases, dates, tests.

The public repository holds JSON-lines files and a loading script, which current
versions of `datasets` refuse to run. This module reads the files directly.
Release N consists of the first N files: `test.jsonl`, `test2.jsonl`, ...

Private tests are a zlib-compressed pickle of JSON, in base64. Unpacked, the
tests of a release take tens of gigabytes. So items hold packed tests, and the
grader unpacks them.
"""

import base64
import collections
import dataclasses
import datetime
import io
import json
import pathlib
import pickle
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import huggingface_hub

from azr_jax.config import user_files
from azr_jax.config.settings import Settings, setting
from azr_jax.evals.benchmark import Item
from azr_jax.run import console
from azr_jax.tasks import records

REPOSITORY = "livecodebench/code_generation_lite"
SOURCE = f"hf:{REPOSITORY}"
FILES = tuple(f"test{number}.jsonl" for number in ("", 2, 3, 4, 5, 6))
# The cumulative number of problems: entry N counts the first N + 1 files.
_PROBLEMS = (400, 511, 612, 713, 880, 1055)
RELEASES = {
  f"release_v{number}": FILES[:number] for number in range(1, len(FILES) + 1)
}
# Maximum size of a problem's unpacked tests.
_MAX_TEST_BYTES = 1 << 29
_BEGIN = "\nBegin with:\n```python\n{starter}\n```"


def _is_date(text: str) -> bool:
  try:
    datetime.date.fromisoformat(text)
  except ValueError:
    return False
  return len(text) == len("2025-02-28")


_DATE = (lambda text: not text or _is_date(text), "YYYY-MM-DD, or '' for any")


@dataclasses.dataclass(frozen=True)
class ContestSettings(Settings):
  """Which LiveCodeBench problems to run."""

  release: str = setting(
    "release_v5",
    "LiveCodeBench release; release N has the problems of the first N files",
    paper="AZR: v1-5, May 2023 to February 2025, which is release_v5",
    choices=tuple(RELEASES),
  )
  first_date: str = setting(
    "",
    "earliest contest date of the problems",
    paper="AZR: all of the release",
    accepts=_DATE,
  )
  last_date: str = setting(
    "",
    "latest contest date of the problems",
    paper="AZR: all of the release",
    accepts=_DATE,
  )


@dataclasses.dataclass(frozen=True)
class PackedTests:
  """A problem's tests as stored in its record: packed text, or a list."""

  public: Any
  private: Any

  def unpack(self) -> list[dict[str, str]]:
    """Returns all tests, each with its `input` and `output`."""
    return [*unpack(self.public), *unpack(self.private or "[]")]


def read(
  data: str, *, release: str, first_date: str, last_date: str
) -> list[Item]:
  """Reads the problems of a release.

  Args:
    data: a folder with the release's files, or a single file of records, whose
      problems are all read. "" downloads the release.
    release: a key of `RELEASES`.
    first_date, last_date: the range of contest dates, YYYY-MM-DD; "" for any.

  Raises:
    ValueError: a file is missing, damaged or cannot be downloaded, or no
      problem is within the dates.
  """
  path = pathlib.Path(data).expanduser()
  if data and not path.is_dir():
    kept = _within(records.read(data), first_date, last_date)
  else:
    names = RELEASES[release]
    paths = _in_folder(path, names) if data else map(_download, names)
    kept = _within(
      (record for path in paths for record in _lines(path)),
      first_date,
      last_date,
    )
  items = list(kept)
  dates = [item.reference["date"] for item in items]
  if not items:
    raise ValueError(
      f"{data or SOURCE}: expected problems from "
      f"{first_date or 'any date'} to {last_date or 'any date'}, but there "
      "are none"
    )
  is_release = not data or path.is_dir()
  is_whole = is_release and not first_date and not last_date
  note = _other_count(release, len(items)) if is_whole else ""
  console.print_status(
    f"livecodebench: {len(items)} problems, {min(dates) or 'undated'} to "
    f"{max(dates) or 'undated'}{note}"
  )
  return items


def _other_count(release: str, count: int) -> str:
  """Returns a remark if a release lacks or gained problems, or ""."""
  expected = _PROBLEMS[list(RELEASES).index(release)]
  if count == expected:
    return ""
  return f", though the public {release} has {expected}"


def _in_folder(
  folder: pathlib.Path, names: Iterable[str]
) -> list[pathlib.Path]:
  paths = [folder / name for name in names]
  missing = [path.name for path in paths if not path.is_file()]
  if missing:
    raise ValueError(
      f"{folder}: {missing} are missing: expected all files of the release; "
      "set evaluate.livecodebench.release, or pass a single file"
    )
  return paths


def _download(name: str) -> pathlib.Path:
  """Downloads a file of the public repository unless it is in the cache."""
  try:
    path = huggingface_hub.hf_hub_download(
      REPOSITORY, name, repo_type="dataset"
    )
  # The hub raises several types of errors.
  except (OSError, ValueError, RuntimeError) as error:
    raise ValueError(
      f"{SOURCE}: {name} cannot be downloaded ({type(error).__name__}); "
      "expected network access, or a folder with the files: "
      "--data=livecodebench=FOLDER"
    ) from error
  return pathlib.Path(path)


def _lines(path: pathlib.Path) -> Iterator[Any]:
  """Yields the records of a file one at a time, because files are large."""
  with path.open("rb") as file:
    for number, line in enumerate(file, 1):
      if line.strip():
        with user_files.reading(f"{path} line {number}", "a record"):
          record = user_files.parse_json(line.decode(user_files.ENCODING))
        yield record


def _within(
  raw: Iterable[Mapping[str, Any]], first: str, last: str
) -> Iterator[Item]:
  """Yields the items whose contest date is in range."""
  for record in raw:
    date = str(record.get("contest_date") or "")[:10]
    if (first or last) and not _is_date(date):
      raise ValueError(
        f"problem {record['question_id']}: expected a contest_date, because "
        "evaluate.livecodebench sets first_date or last_date"
      )
    if (not first or first <= date) and (not last or date <= last):
      yield item(record)


def item(record: Mapping[str, Any]) -> Item:
  """Converts a record of the code generation scenario to an item.

  Unpacks the tests once, so that damaged ones fail before any sampling.
  """
  starter = record.get("starter_code") or ""
  begin = _BEGIN.format(starter=starter) if starter else ""
  metadata = record.get("metadata") or "{}"
  if isinstance(metadata, str):
    metadata = json.loads(metadata)
  tests = PackedTests(
    record["public_test_cases"], record.get("private_test_cases")
  )
  counts = collections.Counter(
    type(test[key]).__name__
    for test in tests.unpack()
    for key in ("input", "output")
  )
  if counts.keys() - {"str"}:
    raise ValueError(
      f"problem {record['question_id']}: expected tests with strings, not "
      f"{sorted(counts.keys() - {'str'})}"
    )
  return Item(
    str(record["question_id"]),
    f"Write a Python program.\n{record['question_content']}{begin}",
    {
      "function": metadata.get("func_name"),
      "date": str(record.get("contest_date") or "")[:10],
      "num_tests": counts["str"] // 2,
    },
    str(record.get("difficulty", "")),
    hidden=tests,
  )


class _TextOnly(pickle.Unpickler):
  """Unpickles strings and refuses every other object, for safety."""

  def find_class(self, module: str, name: str) -> Any:
    raise pickle.UnpicklingError(f"{module}.{name}: expected a text")


def unpack(packed: Any) -> list[dict[str, str]]:
  """Returns tests given as a list, as JSON, or as a compressed pickle.

  Raises:
    ValueError, zlib.error, pickle.UnpicklingError: the tests are damaged, too
      large, or contain anything but strings.
  """
  if not isinstance(packed, str):
    return list(packed)
  try:
    return json.loads(packed)
  except ValueError:
    unpacking = zlib.decompressobj()
    data = unpacking.decompress(base64.b64decode(packed), _MAX_TEST_BYTES)
    if not unpacking.eof:
      raise ValueError(
        "tests of a problem are truncated or too large: expected at most "
        f"{_MAX_TEST_BYTES} bytes"
      ) from None
    return json.loads(_TextOnly(io.BytesIO(data)).load())
