"""Copies a model folder from an object store, once per machine.

Weight files are memory-mapped, which works only for local files. `file://`
treats a local folder as an object store.
"""

import concurrent.futures
import json
import pathlib
import shutil
import tempfile
import urllib.parse

from etils import epath

# The file that is uploaded last, so a folder that has it is complete.
LAST_FILE = "config.json"
# A file in the copy with the size and time of each source file.
_COPIED = ".copied"
_COPY_BYTES = 1 << 24
_MAX_COPIES = 4


def copy_here(url: str, cache: pathlib.Path) -> pathlib.Path:
  """Returns a local copy of a stored folder, refreshed if the folder changed.

  Args:
    url: a URL such as gs://BUCKET/FOLDER.
    cache: folder of the copies.

  Raises:
    ValueError: the folder holds no model.
    OSError: the folder cannot be read.
  """
  source = epath.Path(url.removeprefix("file://"))
  if not (source / LAST_FILE).exists():
    raise ValueError(f"{url}: expected a model's folder, with {LAST_FILE}")
  files = sorted(path for path in source.iterdir() if not path.is_dir())
  there = json.dumps(
    {path.name: [(s := path.stat()).length, s.mtime] for path in files}
  )
  copy = cache / urllib.parse.quote(url, safe="")
  if (copy / _COPIED).exists() and (copy / _COPIED).read_text() == there:
    return copy
  cache.mkdir(parents=True, exist_ok=True)
  # A rename is atomic, so an interrupted copy leaves no partial folder.
  with tempfile.TemporaryDirectory(dir=cache) as scratch:
    partial = pathlib.Path(scratch) / "copy"
    partial.mkdir()
    with concurrent.futures.ThreadPoolExecutor(_MAX_COPIES) as pool:
      list(pool.map(lambda path: _copy(path, partial / path.name), files))
    (partial / _COPIED).write_text(there)
    shutil.rmtree(copy, ignore_errors=True)
    partial.rename(copy)
  return copy


def _copy(path: epath.Path, target: pathlib.Path) -> None:
  with path.open("rb") as source, target.open("wb") as sink:
    shutil.copyfileobj(source, sink, _COPY_BYTES)
