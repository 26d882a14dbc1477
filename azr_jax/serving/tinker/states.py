"""Saving and loading models, and the lists of what is saved."""

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from azr_jax.models.adapters import Lora
from azr_jax.serving.errors import ApiError
from azr_jax.serving.tinker import bodies, store
from azr_jax.serving.tinker.checkpoints import (
  SAMPLER,
  WEIGHTS,
  Checkpoints,
  Saved,
  about,
)
from azr_jax.serving.tinker.models import Models, adapter_fields
from azr_jax.serving.tinker.operations import Operations, as_json
from azr_jax.serving.tinker.studio import Studio, TrainedModel


class States:
  """What requests do with saved states.

  Attributes:
    checkpoints: the saved states.
  """

  def __init__(
    self,
    models: Models,
    operations: Operations,
    studio: Studio,
    checkpoints: Checkpoints,
  ):
    """Stores its arguments.

    Args:
      models: the models in training.
      operations: runs what clients ask for.
      studio: saves and loads; only tasks use it.
      checkpoints: the saved states.
    """
    self._models, self._studio = models, studio
    self._operations = operations
    self.checkpoints = checkpoints

  def save(self, body: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Saves a model under a name."""
    model_id, seq_id = bodies.operation(body)
    overwrites = bool(body.get("overwrite"))

    def task(model: TrainedModel) -> str:
      # A refused operation must count as done, or later ones would wait.
      name = bodies.text(body, "path", f"{seq_id:06d}")
      path = self.checkpoints.path(model_id, kind, name)
      if not overwrites and self.checkpoints.exists(path):
        raise ApiError(409, f"{path}: expected a name that is not taken")
      fields = about(path, model_id, self._models.base.name, model.lora)
      self._studio.save(model, self.checkpoints.folder(path), fields)
      return path

    types = {WEIGHTS: "save_weights", SAMPLER: "save_weights_for_sampler"}
    return self._models.in_order(
      *(model_id, seq_id, task),
      lambda path: as_json({"path": path, "type": types[kind]}),
    )

  def load(self, body: Mapping[str, Any]) -> dict[str, Any]:
    """Restores a saved state: as a new model, or in place of a model's."""
    path = bodies.text(body, "path")
    with_moments = bool(body.get("optimizer"))
    if body.get("model_id") is not None:
      return self._load_in_place(body, path, with_moments)

    def new(lora: Lora | None) -> TrainedModel:
      return self._studio.load(self.find(path).folder, lora, with_moments)

    return self._models.make(
      *(body, "load_weights", lambda: self.find(path).lora, new)
    )

  def find(self, path: str) -> Saved:
    """Returns a saved state of this base model.

    Raises:
      ApiError: there is none of this name, or its base is another.
    """
    saved = self.checkpoints.find(path)
    self._models.base.check(saved.about["base_model"])
    return saved

  def _load_in_place(
    self, body: Mapping[str, Any], path: str, with_moments: bool
  ) -> dict[str, Any]:
    model_id, seq_id = bodies.operation(body)

    def task(model: TrainedModel) -> str:
      saved = self.find(path)
      if saved.lora != model.lora:
        raise ApiError(
          400,
          f"{path} has {saved.lora}: expected {model.lora}, the model's own",
        )
      self._studio.load_into(model, saved.folder, with_moments)
      return path

    return self._models.in_order(
      *(model_id, seq_id, task),
      lambda path: as_json(
        {"path": path, "model_id": model_id, "type": "load_weights"}
      ),
    )

  def delete(self, path: str) -> "Future[None]":
    """Deletes a state, between the tasks that save and load.

    The future has an ApiError if there is none of this name.
    """

    def task() -> None:
      store.delete(self.checkpoints.find(path).folder)

    return self._operations.worker.call(task)

  # Lists.

  def info(self, path: str) -> dict[str, Any]:
    """Describes a saved state."""
    saved = self.checkpoints.find(path)
    return {
      "base_model": saved.about["base_model"],
      "optimizer_config": {"type": "adamw"},
    } | adapter_fields(saved.lora)

  def runs(self) -> list[dict[str, Any]]:
    """Describes every model with saved states, the newest last."""
    by_model: dict[str, list[Saved]] = {}
    for saved in self.checkpoints.every():
      by_model.setdefault(saved.about["model_id"], []).append(saved)
    return [self._run_body(model_id, own) for model_id, own in by_model.items()]

  def _run_body(self, model_id: str, own: list[Saved]) -> dict[str, Any]:
    newest = {
      kind: next(
        (
          self.checkpoints.describe(one)
          for one in reversed(own)
          if f"/{kind}/" in one.path
        ),
        None,
      )
      for kind in (WEIGHTS, SAMPLER)
    }
    return {
      "training_run_id": model_id,
      "base_model": own[-1].about["base_model"],
      "model_owner": "local",
      "last_request_time": own[-1].about["time"],
      "last_checkpoint": newest[WEIGHTS],
      "last_sampler_checkpoint": newest[SAMPLER],
    } | adapter_fields(own[-1].lora)
