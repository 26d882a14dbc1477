"""One run, one folder, one process, one config."""

import contextlib
import fcntl
import json
import os
import pathlib
from collections.abc import Iterator

import ml_collections

from azr_jax.parallel.hosts import Hosts
from azr_jax.run import storage
from azr_jax.trainer import checks

# A run may go on with other values of these; the others make another run.
MAY_CHANGE = (
  "train.",
  "mesh.",
  "rollout.mesh.",
  "hosts.",
  "executor.workers",
  "executor.backend",
  "executor.nodes",
  "executor.address",
  "model.cache_dir",
)
# What shows that a run has begun in a folder.
RUN_FILES = ("metrics.jsonl", "checkpoints", "tokenizer")


@contextlib.contextmanager
def claim(
  folder: pathlib.Path, config: ml_collections.ConfigDict, hosts: Hosts
) -> Iterator[None]:
  """Holds a run folder, made if missing, and writes config.json into it.

  The first of the hosts does so for all: they share the folder.

  Where a run has begun, it must have this config, keys of `MAY_CHANGE` apart:
  a run may be made longer, or go on elsewhere. The lock goes with the process,
  however that ends.

  In an object store there are no locks, so nothing keeps others out.

  Raises:
    ValueError: another process holds the folder, or its run has another
      config.
    RuntimeError: so it is for the first host, and this is another; or the
      hosts were not given the same config or folder.
  """
  hosts.assert_equal("config", config.to_dict())
  hosts.assert_equal("workdir", str(folder))
  with contextlib.ExitStack() as held:
    error = None
    if hosts.is_primary:
      try:
        held.enter_context(_hold(folder, config))
      except (OSError, ValueError) as caught:
        error = caught
    hosts.raise_on_all("workdir", error)
    unseen = None
    if not (folder / "config.json").exists():
      unseen = ValueError(
        f"{folder} is not what the first host made: expected a --workdir that "
        "all hosts see"
      )
    hosts.raise_on_all("workdir", unseen)
    yield


@contextlib.contextmanager
def _hold(
  folder: pathlib.Path, config: ml_collections.ConfigDict
) -> Iterator[None]:
  """Locks the folder for this process, where there are locks."""
  folder.mkdir(parents=True, exist_ok=True)
  if storage.is_object_store(folder):
    _write_config(folder, config)
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
    _write_config(folder, config)
    yield


def _has(path: pathlib.Path) -> bool:
  """Whether there is a folder or file with something in it.

  What fails before its first step leaves empty ones.
  """
  if not path.exists():
    return False
  return any(path.iterdir()) if path.is_dir() else bool(path.read_bytes())


def _write_config(
  folder: pathlib.Path, config: ml_collections.ConfigDict
) -> None:
  path = folder / "config.json"
  mine = json.loads(json.dumps(config.to_dict()))
  if path.exists() and any(_has(folder / name) for name in RUN_FILES):
    flat_mine = checks.flatten(mine)
    flat_theirs = checks.flatten(json.loads(path.read_text("utf-8")))
    for key in sorted(flat_mine.keys() | flat_theirs.keys()):
      if key.startswith(MAY_CHANGE):
        continue
      if flat_mine.get(key) != flat_theirs.get(key):
        raise ValueError(
          f"config.{key}={flat_mine.get(key)!r}: expected "
          f"{flat_theirs.get(key)!r}, the value of the run in {folder}; "
          "give another --workdir to start a new run"
        )
  storage.write_whole(path, json.dumps(mine, indent=2) + "\n")
