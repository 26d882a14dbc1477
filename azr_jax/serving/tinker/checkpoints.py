"""Names of saved states: tinker://MODEL/KIND/NAME, each a folder."""

import contextlib
import dataclasses
import datetime
import pathlib
import re
import shutil
import threading
from collections.abc import Iterator
from typing import Any

from azr_jax.models.adapters import Lora
from azr_jax.serving.errors import ApiError
from azr_jax.serving.tinker import store

WEIGHTS, SAMPLER = "weights", "sampler_weights"
_SCHEME = "tinker://"
_NEW = ".new"
_NAME = re.compile(r"[\w-][\w.-]{0,127}", re.A)


@dataclasses.dataclass(frozen=True)
class Saved:
  """A saved state.

  Attributes:
    path: its name for clients.
    folder: where it is.
    about: what `store.save` wrote for clients.
  """

  path: str
  folder: pathlib.Path
  about: dict[str, Any]

  @property
  def lora(self) -> Lora | None:
    """The shape of its adapter; None if all parameters were trained."""
    fields = self.about["lora"]
    if fields is None:
      return None
    return Lora(**fields | {"targets": tuple(fields["targets"])})


class Checkpoints:
  """The saved states below a folder. Every method is thread-safe.

  A state is written to a hidden folder beside its own. Once that has the file
  that ends a save, it replaces what it supersedes, also after a kill.
  """

  def __init__(self, root: pathlib.Path):
    """Creates nothing.

    Args:
      root: the folder of all states.
    """
    self._root = root
    self._lock = threading.Lock()

  def path(self, model_id: str, kind: str, name: str) -> str:
    """Returns the name of a state for clients.

    Raises:
      ApiError: the name would not be a file's.
    """
    if not _NAME.fullmatch(name):
      raise ApiError(
        400,
        f"path={name!r:.80}: expected letters, digits, '_', '-' and '.', at "
        "most 128",
      )
    return f"{_SCHEME}{model_id}/{kind}/{name}"

  def _folder(self, path: str) -> pathlib.Path:
    """Returns the folder of a name.

    Raises:
      ApiError: it is no such name.
    """
    parts = path.removeprefix(_SCHEME).split("/")
    is_named = path.startswith(_SCHEME) and len(parts) == 3
    if not is_named or parts[1] not in (WEIGHTS, SAMPLER):
      raise ApiError(
        404, f"{path!r:.200}: expected tinker://MODEL/{WEIGHTS}/NAME"
      )
    model, kind, name = parts
    if not (_NAME.fullmatch(model.replace(":", "_")) and _NAME.fullmatch(name)):
      raise ApiError(404, f"{path!r:.200}: expected the path of a saved state")
    return self._root / model.replace(":", "_") / kind / name

  def find(self, path: str) -> Saved:
    """Returns a finished state.

    Raises:
      ApiError: there is none of this name.
    """
    folder = self._folder(path)
    with self._lock:
      _settle(_new(folder))
      about = store.read_about(folder)
    if about is None:
      raise ApiError(404, f"{path!r:.200}: expected the path of a saved state")
    return Saved(path, folder, about)

  def exists(self, path: str) -> bool:
    """Returns whether there is a finished state of a name."""
    try:
      self.find(path)
    except ApiError:
      return False
    return True

  @contextlib.contextmanager
  def replacing(self, path: str) -> Iterator[pathlib.Path]:
    """Yields a new folder, which becomes that of a name if it was saved."""
    folder = self._folder(path)
    new = _new(folder)
    with self._lock:
      _settle(new)
    shutil.rmtree(new, ignore_errors=True)  # A save that was killed.
    yield new
    with self._lock:
      _settle(new)

  def every(self) -> list[Saved]:
    """Returns all finished states, the oldest first."""
    found = []
    with self._lock:
      for new in self._root.glob(f"*/*/.*{_NEW}"):
        _settle(new)
      for file in self._root.glob(f"*/*/*/{store.ABOUT}"):
        about = store.read_about(file.parent)
        if about is not None:
          found.append(Saved(about["path"], file.parent, about))
    return sorted(found, key=lambda one: one.about["time"])

  def delete(self, path: str) -> None:
    """Deletes a state.

    Raises:
      ApiError: there is none of this name.
    """
    folder = self.find(path).folder
    with self._lock:
      _delete(folder)

  def describe(self, saved: Saved) -> dict[str, Any]:
    """Returns the fields of a state in lists of states."""
    _, kind, name = saved.path.removeprefix(_SCHEME).split("/")
    return {
      "checkpoint_id": f"{kind}/{name}",
      "checkpoint_type": "training" if kind == WEIGHTS else "sampler",
      "time": saved.about["time"],
      "tinker_path": saved.path,
      "size_bytes": sum(
        file.stat().st_size
        for file in saved.folder.rglob("*")
        if file.is_file()
      ),
      "public": False,
    }


def _new(folder: pathlib.Path) -> pathlib.Path:
  """Returns the hidden folder in which a state is written."""
  return folder.with_name(f".{folder.name}{_NEW}")


def _settle(new: pathlib.Path) -> None:
  """Puts a state that was written to a hidden folder in its place."""
  if store.read_about(new) is not None:
    folder = new.with_name(new.name[1 : -len(_NEW)])
    _delete(folder)
    new.rename(folder)


def _delete(folder: pathlib.Path) -> None:
  """Deletes a state, if it exists."""
  # Without this file, the rest no longer counts as a state.
  (folder / store.ABOUT).unlink(missing_ok=True)
  shutil.rmtree(folder, ignore_errors=True)


def about(
  path: str,
  model_id: str,
  base_model: str,
  lora: Lora | None,
) -> dict[str, Any]:
  """Returns what a state says about itself."""
  return {
    "path": path,
    "model_id": model_id,
    "base_model": base_model,
    "lora": None if lora is None else dataclasses.asdict(lora),
    "time": datetime.datetime.now(datetime.UTC).isoformat(),
  }
