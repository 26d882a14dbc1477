"""Copies a model's folder out of an object store, once for each machine.

Files of weights are memory-mapped, which works only for local files. `file://`
treats a folder of this machine as an object store.
"""

import concurrent.futures
import json
import pathlib
import shutil
import tempfile
import urllib.parse

from etils import epath

# The file that is put into a store last, so a folder with it is complete.
LAST_FILE = "config.json"
# A file of the copy with the size and time of each file that was copied.
_COPIED = ".copied"
_COPY_BYTES = 1 << 24
_MAX_COPIES = 4


def copy_here(url: str, cache: pathlib.Path) -> pathlib.Path:
  """Returns a copy of a store's folder, which is made again if that changes.

  Args:
    url: such as gs://BUCKET/FOLDER.
    cache: where copies are kept.

  Raises:
    ValueError: the folder holds no model.
    OSError: it cannot be read.
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
