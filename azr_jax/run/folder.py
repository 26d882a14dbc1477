"""One folder, one process, one configuration: what a command claims."""

import contextlib
import fcntl
import json
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from azr_jax.config import overrides
from azr_jax.parallel.hosts import Hosts
from azr_jax.run import storage

CONFIG = "config.json"
# A resumed run may have other values of these: where it runs and how long.
LAYOUT = (
  "train.",
  "mesh.",
  "sharding.",
  "hosts.",
  "rollout.mesh.",
  "executor.workers",
  "executor.backend",
  "executor.nodes",
  "executor.address",
  "model.cache_dir",
)
# Scores depend neither on these nor on how sampling is batched.
SCORING_LAYOUT = (
  *LAYOUT,
  "rollout.slots",
  "rollout.prompt_buckets",
  "rollout.prefill_tokens",
  "rollout.decode_chunk",
  "rollout.cache_chunk",
  "rollout.extend_chunk",
)
# Any of these with something in it shows that a run has begun in a folder.
RUN_FILES = ("metrics.jsonl", "checkpoints", "tokenizer")


@contextlib.contextmanager
def claim(
  folder: pathlib.Path,
  config: Mapping[str, Any],
  hosts: Hosts,
  may_change: Sequence[str] = LAYOUT,
  begun_by: Sequence[str] = RUN_FILES,
  section: str = "config.",
) -> Iterator[None]:
  """Holds a folder, made if missing, and writes config.json into it.

  Host 0 does so for all hosts, which share the folder. Where something has
  begun, the folder must be of this config. The lock goes with the process,
  however that ends. In an object store there are no locks.

  Args:
    folder: the folder.
    config: everything that the folder's contents depend on, nested.
    hosts: the processes of the run.
    may_change: beginnings of keys that may have another value later.
    begun_by: patterns of files that show that something has begun.
    section: what stands before a key of `config` in an error.

  Raises:
    ValueError: another process holds the folder, or it is of another config.
    RuntimeError: host 0 could not claim the folder (raised on the others), or
      configs or folders differ between hosts.
  """
  hosts.assert_equal("config", config)
  hosts.assert_equal("workdir", str(folder))
  with contextlib.ExitStack() as held:
    error = None
    if hosts.is_primary:
      try:
        held.enter_context(_hold(folder))
        _write_config(folder, config, may_change, begun_by, section)
      except (OSError, ValueError) as caught:
        error = caught
    hosts.raise_on_all("workdir", error)
    unseen = None
    if not (folder / CONFIG).exists():
      unseen = ValueError(
        f"{folder} is not what the first host made: expected a --workdir that "
        "all hosts see"
      )
    hosts.raise_on_all("workdir", unseen)
    yield


@contextlib.contextmanager
def _hold(folder: pathlib.Path) -> Iterator[None]:
  """Makes the folder and locks it for this process, where there are locks."""
  folder.mkdir(parents=True, exist_ok=True)
  if storage.is_object_store(folder):
    yield
    return
  with (folder / "lock").open("a+", encoding="utf-8") as lock:
    try:
      fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
      lock.seek(0)
      raise ValueError(
        f"{folder} is in use by process {lock.read().strip()}: expected a "
        "--workdir of its own, or the end of that process"
      ) from None
    lock.truncate(0)
    lock.write(f"{os.getpid()}\n")
    lock.flush()
    yield


def _has_content(path: pathlib.Path) -> bool:
  """Returns whether a file or folder holds anything.

  A run that fails before its first step leaves empty ones.
  """
  if not path.exists():
    return False
  return any(path.iterdir()) if path.is_dir() else bool(path.read_bytes())


def _write_config(
  folder: pathlib.Path,
  config: Mapping[str, Any],
  may_change: Sequence[str],
  begun_by: Sequence[str],
  section: str,
) -> None:
  """Writes config.json; refuses if the folder has begun with another one."""
  path = folder / CONFIG
  mine = json.loads(json.dumps(config))
  has_begun = any(
    _has_content(found) for name in begun_by for found in folder.glob(name)
  )
  if path.exists() and has_begun:
    theirs = json.loads(path.read_text("utf-8"))
    _refuse_another(folder, mine, theirs, tuple(may_change), section)
  storage.write_whole(path, json.dumps(mine, indent=2) + "\n")


def _refuse_another(
  folder: pathlib.Path,
  mine: dict[str, Any],
  theirs: dict[str, Any],
  may_change: tuple[str, ...],
  section: str,
) -> None:
  """Raises ValueError for the first key, `system` before all, that differs."""
  flat_mine, flat_theirs = overrides.flatten(mine), overrides.flatten(theirs)
  keys = sorted(
    flat_mine.keys() | flat_theirs.keys(),
    key=lambda key: (key != "system", key),
  )
  for key in keys:
    if key.startswith(may_change):
      continue
    if flat_mine.get(key) != flat_theirs.get(key):
      raise ValueError(
        f"{section}{key}={flat_mine.get(key)!r}: expected "
        f"{flat_theirs.get(key)!r}, the value that {folder} began "
        "with, or another --workdir"
      )
