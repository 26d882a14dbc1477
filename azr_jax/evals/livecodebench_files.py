"""The files of LiveCodeBench's contest problems: releases, dates, tests.

The public repository is a folder of JSON lines beside a loading script, which
current versions of `datasets` refuse. Its files are read here instead. Release
N is the first N of them: `test.jsonl`, `test2.jsonl`, ...

Private tests are base64 of a compressed pickle of JSON. All tests of a release
take tens of gigabytes when they are unpacked, so an item keeps them packed, and
its grader unpacks them.
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
# The number of problems of the first N files.
_PROBLEMS = (400, 511, 612, 713, 880, 1055)
RELEASES = {
  f"release_v{number}": FILES[:number] for number in range(1, len(FILES) + 1)
}
# The tests of a problem take no more than this when they are unpacked.
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
  """Which of LiveCodeBench's contest problems are asked."""

  release: str = setting(
    "release_v5",
    "release, whose problems are in its first files",
    paper="AZR: v1-5, May 2023 to February 2025, which is release_v5",
    choices=tuple(RELEASES),
  )
  first_date: str = setting(
    "",
    "earliest date of a problem's contest",
    paper="AZR: all of the release",
    accepts=_DATE,
  )
  last_date: str = setting(
    "",
    "latest date of a problem's contest",
    paper="AZR: all of the release",
    accepts=_DATE,
  )


@dataclasses.dataclass(frozen=True)
class PackedTests:
  """The tests of a problem, as a record has them: texts, or lists of tests."""

  public: Any
  private: Any

  def unpack(self) -> list[dict[str, str]]:
    """Returns all tests, each with its `input` and `output`."""
    return [*unpack(self.public), *unpack(self.private or "[]")]


def read(data: str, settings: ContestSettings) -> list[Item]:
  """Reads the problems of a release.

  Args:
    data: a folder of the release's files; a file of records, which is read
      whole; "": the files are downloaded.
    settings: the release and the dates.

  Raises:
    ValueError: a file is missing, damaged or cannot be downloaded, or no
      problem is within the dates.
  """
  path = pathlib.Path(data).expanduser()
  if data and not path.is_dir():
    kept = _within(records.read(data), settings)
  else:
    names = RELEASES[settings.release]
    paths = _in_folder(path, names) if data else map(_download, names)
    kept = _within(
      (record for path in paths for record in _lines(path)), settings
    )
  items = list(kept)
  dates = [item.reference["date"] for item in items]
  if not items:
    raise ValueError(
      f"{data or SOURCE}: expected problems from "
      f"{settings.first_date or 'any date'} to "
      f"{settings.last_date or 'any date'}, but there are none"
    )
  console.print_status(
    f"livecodebench: {len(items)} problems, {min(dates) or 'undated'} to "
    f"{max(dates) or 'undated'}{_other_count(data, settings, len(items))}"
  )
  return items


def _other_count(data: str, settings: ContestSettings, count: int) -> str:
  """Returns a remark if a whole release has another number of problems."""
  is_whole = not settings.first_date and not settings.last_date
  is_release = not data or pathlib.Path(data).expanduser().is_dir()
  expected = _PROBLEMS[list(RELEASES).index(settings.release)]
  if not (is_whole and is_release) or count == expected:
    return ""
  return f", though the public {settings.release} has {expected}"


def _in_folder(
  folder: pathlib.Path, names: Iterable[str]
) -> list[pathlib.Path]:
  paths = [folder / name for name in names]
  missing = [path.name for path in paths if not path.is_file()]
  if missing:
    raise ValueError(
      f"{folder}: expected the files of the release, but {missing} are not "
      "there; evaluate.livecodebench.release chooses another, or give one file"
    )
  return paths


def _download(name: str) -> pathlib.Path:
  """Returns a file of the public repository; downloads it the first time."""
  try:
    path = huggingface_hub.hf_hub_download(
      REPOSITORY, name, repo_type="dataset"
    )
  # The hub's errors are OSErrors or ValueErrors, depending on their kind.
  except (OSError, ValueError, RuntimeError) as error:
    raise ValueError(
      f"{SOURCE}: {name} cannot be downloaded ({type(error).__name__}); "
      "expected a network, or a folder of the files as "
      "--data=livecodebench=FOLDER"
    ) from error
  return pathlib.Path(path)


def _lines(path: pathlib.Path) -> Iterator[Any]:
  """Yields the records of a file, which need not fit into memory at once."""
  with path.open("rb") as file:
    for number, line in enumerate(file, 1):
      if line.strip():
        with user_files.reading(f"{path} line {number}", "a record"):
          record = user_files.parse_json(line.decode(user_files.ENCODING))
        yield record


def _within(
  raw: Iterable[Mapping[str, Any]], settings: ContestSettings
) -> Iterator[Item]:
  """Yields the items of records whose contest is within the dates."""
  first, last = settings.first_date, settings.last_date
  for record in raw:
    date = str(record.get("contest_date") or "")[:10]
    if (first or last) and not _is_date(date):
      raise ValueError(
        f"problem {record['question_id']}: expected contest_date, because "
        "evaluate.livecodebench has a first or last date"
      )
    if (not first or first <= date) and (not last or date <= last):
      yield item(record)


def item(record: Mapping[str, Any]) -> Item:
  """Returns the item of a record of the code generation scenario.

  Its tests are unpacked once, so that damage is found before any sampling.
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
      f"problem {record['question_id']}: expected texts as tests, not "
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
  """Unpickles the public files' strings and refuses every other object."""

  def find_class(self, module: str, name: str) -> Any:
    raise pickle.UnpicklingError(f"{module}.{name}: expected a text")


def unpack(packed: Any) -> list[dict[str, str]]:
  """Returns tests from a list, JSON, or base64 of a compressed pickle.

  Raises:
    ValueError, zlib.error, pickle.UnpicklingError: they are damaged, too long
      or anything but texts.
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
        f"tests of a task: expected at most {_MAX_TEST_BYTES} bytes, whole"
      ) from None
    return json.loads(_TextOnly(io.BytesIO(data)).load())
