"""Locks a run's folder for one process and one configuration."""

import contextlib
import fcntl
import json
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from azr_jax.config import overrides, user_files
from azr_jax.parallel.hosts import Hosts
from azr_jax.run import storage

CONFIG = "config.json"
# Prefixes of the keys that a resumed run may change: they set devices, length
# and logging, not what is learned.
MUTABLE_KEYS = (
  "train.steps",
  "train.save_every",
  "train.save_minutes",
  "train.keep_checkpoints",
  "train.checksums",
  "train.samples_per_step",
  "train.show_every",
  "train.style",
  "train.flag_texts",
  "train.flag_classifier",
  "train.trackers.",
  "train.model_dtype",
  "evaluation.",
  "prompts.templates",
  "learner.nonfinite",
  "mesh.",
  "sharding.",
  "hosts.",
  "rollout.mesh.",
  "executor.workers",
  "executor.backend",
  "executor.nodes",
  "executor.address",
  "model.cache_dir",
  "model.remat",
  "model.layers",
)
# A resumed evaluation may also change these, because scores do not depend on
# how sampling is batched.
SCORING_MUTABLE_KEYS = (
  *MUTABLE_KEYS,
  "prompts.digest",  # `trainer/user_prompts.py` checks it.
  "rollout.slots",
  "rollout.prompt_buckets",
  "rollout.prefill_tokens",
  "rollout.decode_chunk",
  "rollout.page_size",
  "rollout.extend_chunk",
  "rollout.cache_gib",
  # How a teacher's server is asked (`lab/data/teacher.py`).
  "teacher.url",
  "teacher.key_variable",
  "teacher.concurrency",
  "teacher.timeout_s",
  "teacher.retries",
)
# A run has started in a folder if one of these exists and is not empty.
RUN_FILES = ("metrics.jsonl", "checkpoints", "tokenizer", "records")


@contextlib.contextmanager
def lock(
  folder: pathlib.Path,
  config: Mapping[str, Any],
  hosts: Hosts,
  mutable_keys: Sequence[str] = MUTABLE_KEYS,
  marker_files: Sequence[str] = RUN_FILES,
  section: str = "config.",
  defaults: Mapping[str, Any] | None = None,
) -> Iterator[None]:
  """Holds a lock on a folder inside the context; writes config.json into it.

  The primary host creates and locks the folder, which all hosts share. If a run
  has started in it, its config.json must be equal except for `mutable_keys`.
  The operating system releases the lock when the process ends. Object stores
  have no locks.

  Args:
    folder: the folder. It is created if missing.
    config: everything that the folder's contents depend on, nested.
    hosts: the processes of the run.
    mutable_keys: prefixes of the keys that a resumed run may change.
    marker_files: patterns of files. A run has started if one of them exists.
    section: the prefix of keys of `config` in error messages.
    defaults: nested like `config`. The values of keys that the run's
      config.json lacks because an earlier version wrote it.

  Raises:
    ValueError: another process has locked the folder, or config.json differs.
    RuntimeError: host 0 could not lock the folder (raised on the others), or
      configs or folders differ between hosts.
  """
  hosts.assert_equal("config", config)
  hosts.assert_equal("workdir", str(folder))
  with contextlib.ExitStack() as stack:
    error = None
    if hosts.is_primary:
      try:
        stack.enter_context(lock_file(folder))
        _write_config(
          folder, config, mutable_keys, marker_files, section, defaults or {}
        )
      except (OSError, ValueError) as caught:
        error = caught
    hosts.raise_on_all("workdir", error)
    unshared = None
    if not (folder / CONFIG).exists():
      unshared = ValueError(
        f"{folder} is not the folder of the primary host: expected a --workdir "
        "that all hosts share"
      )
    hosts.raise_on_all("workdir", unshared)
    yield


@contextlib.contextmanager
def lock_file(folder: pathlib.Path) -> Iterator[None]:
  """Creates a folder and locks it for this process inside the context.

  Raises:
    ValueError: the path is a file, or another process has locked the folder.
  """
  if folder.exists() and not folder.is_dir():
    raise ValueError(f"{folder} is a file: expected the folder of a run")
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
        f"{folder} is in use by process {lock.read().strip()}: expected "
        "another --workdir, or wait for that process to end"
      ) from None
    lock.truncate(0)
    lock.write(f"{os.getpid()}\n")
    lock.flush()
    yield


def _has_content(path: pathlib.Path) -> bool:
  """Returns whether a file or folder is not empty.

  A run that fails before its first step leaves empty files and folders.
  """
  if not path.exists():
    return False
  if path.is_dir():
    return any(path.iterdir())
  with path.open("rb") as file:
    return bool(file.read(1))


def begun_config(
  folder: pathlib.Path, marker_files: Sequence[str] = RUN_FILES
) -> dict[str, Any] | None:
  """Returns the config of the run that has started in a folder, or None.

  Raises:
    ValueError: config.json is damaged.
  """
  if not (folder / CONFIG).exists():
    return None
  has_begun = any(
    _has_content(file) for name in marker_files for file in folder.glob(name)
  )
  return read_config(folder) if has_begun else None


def write_config(folder: pathlib.Path, config: Mapping[str, Any]) -> None:
  """Writes config.json."""
  text = json.dumps(config, indent=2)
  storage.write_atomically(folder / CONFIG, text + "\n")


def _write_config(
  folder: pathlib.Path,
  config: Mapping[str, Any],
  mutable_keys: Sequence[str],
  marker_files: Sequence[str],
  section: str,
  defaults: Mapping[str, Any],
) -> None:
  """Writes config.json.

  Raises:
    ValueError: a run has started with another config, or config.json is
      damaged.
  """
  current = json.loads(json.dumps(config))
  begun_with = begun_config(folder, marker_files)
  if begun_with is not None:
    _refuse_changed_config(
      folder,
      current,
      begun_with,
      mutable_keys,
      section,
      json.loads(json.dumps(defaults)),
    )
  write_config(folder, current)


def read_config(folder: pathlib.Path) -> dict[str, Any]:
  """Returns the config in a folder that a run has locked.

  Raises:
    ValueError: the folder was never locked, or its config.json is damaged.
  """
  path = folder / CONFIG
  if not path.exists():
    raise ValueError(f"{folder}: expected the folder of a run")
  return user_files.read_object(path)


def _refuse_changed_config(
  folder: pathlib.Path,
  current: dict[str, Any],
  begun_with: dict[str, Any],
  mutable_keys: Sequence[str],
  section: str,
  defaults: dict[str, Any],
) -> None:
  """Raises ValueError for the first key that changed but must not.

  `system` is compared first, because other keys change with it.
  """
  new, old = overrides.flatten(current), overrides.flatten(begun_with)
  # Keys that were added since the run started have their defaults.
  for key, value in overrides.flatten(defaults).items():
    if key in new:
      old.setdefault(key, value)
  for key in sorted(new.keys() | old.keys(), key=lambda k: (k != "system", k)):
    if key.startswith(tuple(mutable_keys)) or new.get(key) == old.get(key):
      continue
    raise ValueError(
      f"{section}{key}={new.get(key)!r}: expected {old.get(key)!r}, the value "
      f"that {folder} started with, or another --workdir"
    )
