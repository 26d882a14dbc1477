"""Names of saved states: tinker://MODEL/KIND/NAME, each a folder."""

import dataclasses
import datetime
import pathlib
import re
from typing import Any

from azr_jax.models.adapters import Lora
from azr_jax.serving.errors import ApiError
from azr_jax.serving.tinker import store

WEIGHTS, SAMPLER = "weights", "sampler_weights"
_SCHEME = "tinker://"
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
  """The saved states below a folder. Every method is thread-safe."""

  def __init__(self, root: pathlib.Path):
    """Creates nothing.

    Args:
      root: the folder of all states.
    """
    self._root = root

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

  def folder(self, path: str) -> pathlib.Path:
    """Returns the folder of a name, whether or not there is such a state.

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
    folder = self.folder(path)
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

  def every(self) -> list[Saved]:
    """Returns all finished states, the oldest first."""
    found = []
    for file in self._root.glob(f"*/*/*/{store.ABOUT}"):
      about = store.read_about(file.parent)
      if about is not None:
        found.append(Saved(about["path"], file.parent, about))
    return sorted(found, key=lambda one: one.about["time"])

  def describe(self, saved: Saved) -> dict[str, Any]:
    """Returns the fields of a state in lists of states."""
    _, kind, name = saved.path.removeprefix(_SCHEME).split("/")
    return {
      "checkpoint_id": f"{kind}/{name}",
      "checkpoint_type": "training" if kind == WEIGHTS else "sampler",
      "time": saved.about["time"],
      "tinker_path": saved.path,
      "size_bytes": saved.about.get("size_bytes"),
      "public": False,
    }


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
