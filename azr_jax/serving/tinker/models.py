"""The models that clients train: their creation, order and training."""

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any

from azr_jax.models.adapters import Lora
from azr_jax.serving import errors
from azr_jax.serving.errors import ApiError
from azr_jax.serving.tinker import bodies, wire
from azr_jax.serving.tinker.futures import Lane, Reply
from azr_jax.serving.tinker.operations import Operations, as_json
from azr_jax.serving.tinker.sessions import Sessions
from azr_jax.serving.tinker.studio import Studio, TrainedModel
from azr_jax.verbs.trainable import Scored

# alpha of every adapter; the API has no field for it.
ALPHA = 32.0
# How often a client that needs the room of others looks whether they live.
_LOOK_S = 0.5
_ATTENTION, _MLP = ("q", "k", "v", "o"), ("gate", "up", "down")


@dataclasses.dataclass(frozen=True)
class BaseModel:
  """The model that all others start from.

  Attributes:
    name: its name for clients.
    tokenizer_id: where clients find its tokenizer.
  """

  name: str
  tokenizer_id: str

  def check(self, name: str) -> None:
    """Raises ApiError if a client asks for another one."""
    if name != self.name:
      raise ApiError(404, f"base_model={name!r:.120}: expected {self.name!r}")


@dataclasses.dataclass(eq=False)
class ClientModel:
  """A model of a session.

  Attributes:
    session_id: the session that it ends with.
    lora: the adapter's shape; None trains all parameters.
    lane: orders its operations.
    model: the model; None until it exists.
    seen: when it was last used, for lists of runs.
  """

  session_id: str
  lora: Lora | None
  lane: Lane
  model: TrainedModel | None
  seen: float


class Models:
  """The models in training, by id."""

  def __init__(
    self,
    base: BaseModel,
    operations: Operations,
    sessions: Sessions,
    studio: Studio,
    *,
    max_rank: int,
    max_models: int,
  ):
    """Starts without models.

    Args:
      base: the base model.
      operations: runs what clients ask for.
      sessions: the clients.
      studio: makes models; only tasks use it.
      max_rank: as in `TinkerSettings`.
      max_models: as in `TinkerSettings`.
    """
    self.base = base
    self._operations, self._sessions = operations, sessions
    self._studio = studio
    self._max_rank, self._max_models = max_rank, max_models
    self._entries: dict[str, ClientModel] = {}
    sessions.on_end.append(self._end_session)

  def __len__(self) -> int:
    return len(self._entries)

  def _end_session(self, session_id: str) -> None:
    """Frees the models of a session."""
    for model_id, entry in list(self._entries.items()):
      if entry.session_id == session_id:
        del self._entries[model_id]

  def create(self, body: Mapping[str, Any]) -> dict[str, Any]:
    """Starts a new model of the base model."""
    lora_config = bodies.mapping(body, "lora_config")
    self.base.check(bodies.text(body, "base_model"))
    lora = self._lora(lora_config)
    seed = bodies.integer(lora_config, "seed", 0, -(1 << 62))
    return self.make(
      *(body, "create_model", lambda: lora),
      lambda lora: self._studio.create(lora, seed % (1 << 31)),
    )

  def make(
    self,
    body: Mapping[str, Any],
    kind: str,
    shape: Callable[[], Lora | None],
    new: Callable[[Lora | None], TrainedModel],
  ) -> dict[str, Any]:
    """Makes a model of a session; returns the future.

    Args:
      body: names the session and the model's number.
      kind: the type of the answer.
      shape: () -> the adapter's shape; None trains all parameters.
      new: makes the model, in the worker's thread.
    """
    session_id, begun = bodies.text(body, "session_id"), self._sessions.now()
    self._sessions.touch(session_id)
    model_id = f"{session_id}:train:{bodies.integer(body, 'model_seq_id')}"

    def start(request_id: str) -> None:
      lora = shape()
      are_alive = self._are_alive(lora, begun)  # Ends those that are dead.
      refusal = self._refusal(lora)
      if refusal is None:
        self._make(request_id, model_id, session_id, lora, kind, new)
      elif are_alive:
        raise refusal
      else:
        self._operations.retry(request_id, _LOOK_S, start)

    return self._operations.begin(
      *(("model", model_id), session_id, start), model_id=model_id
    )

  def _make(
    self,
    request_id: str,
    model_id: str,
    session_id: str,
    lora: Lora | None,
    kind: str,
    new: Callable[[Lora | None], TrainedModel],
  ) -> None:
    """Starts a model for which there is room; see `make`."""
    entry = ClientModel(session_id, lora, Lane(), None, time.time())
    self._entries[model_id] = entry

    def task() -> None:
      entry.model = new(lora)  # Set here, so that later tasks find it.

    def clean_up() -> None:
      if self._entries.get(model_id) is entry:
        del self._entries[model_id]

    def reply(_: None) -> Reply:
      return as_json({"model_id": model_id, "type": kind})

    self._operations.run(request_id, task, reply, clean_up)

  def _are_alive(self, lora: Lora | None, since: float) -> bool:
    """Returns whether the clients live whose room a model needs.

    Args:
      lora: the shape of the model's adapter.
      since: they must have given a sign of life since this time.
    """
    others = [
      entry.session_id
      for entry in self._entries.values()
      if lora is None or entry.lora is None or len(self) >= self._max_models
    ]
    return all([self._sessions.is_alive(other, since) for other in others])

  def _refusal(self, lora: Lora | None) -> ApiError | None:
    """Returns why no other model fits; None if one does.

    A model whose parameters are all trained needs the memory of all others.
    """
    others = list(self._entries.values())
    if lora is None and others:
      return ApiError(
        409,
        f"lora_rank=0 trains all parameters, which needs the server for itself:"
        f" expected no other model, {len(others)} are being trained",
      )
    if any(other.lora is None for other in others):
      return ApiError(
        409,
        "another client trains all parameters and has the server for itself: "
        "expected its end",
      )
    most = self._max_models
    if len(others) >= most:
      return errors.overloaded(
        f"{len(others)} models: expected at most tinker.max_models={most}"
      )
    return None

  def _lora(self, config: Mapping[str, Any]) -> Lora | None:
    """Returns the adapter that a client asks for; None trains all."""
    most = self._max_rank
    rank = bodies.integer(config, "rank", 32, 0, most)
    if not rank:
      return None
    targets: tuple[str, ...] = ()
    for name, projections in (("train_attn", _ATTENTION), ("train_mlp", _MLP)):
      targets += projections if config.get(name, True) else ()
    if not targets:
      raise ApiError(
        400,
        "train_attn and train_mlp are false: expected one of them, because the "
        "output head has no adapter",
      )
    return Lora(rank, ALPHA, targets=targets)

  def find(self, model_id: str) -> ClientModel:
    """Returns a model.

    Raises:
      ApiError: there is none of this id.
    """
    entry = self._entries.get(model_id)
    if entry is None:
      raise ApiError(
        404, f"model_id={model_id!r:.120}: expected a model of a live session"
      )
    self._sessions.touch(entry.session_id)
    entry.seen = time.time()
    return entry

  def in_order(
    self,
    model_id: str,
    seq_id: int,
    task: Callable[[TrainedModel], Any],
    reply: Callable[[Any], Reply],
  ) -> dict[str, Any]:
    """Runs a task of a model after all earlier ones; returns its future."""
    entry = self.find(model_id)

    def with_model() -> Any:
      if entry.model is None:
        raise ApiError(409, f"model_id={model_id!r}: expected its creation")
      return task(entry.model)

    def start(request_id: str) -> None:
      entry.lane.add(
        seq_id, lambda: self._operations.run(request_id, with_model, reply)
      )

    return self._operations.begin(
      *((model_id, seq_id), entry.session_id, start), model_id=model_id
    )

  def forward_backward(self, body: bytes) -> dict[str, Any]:
    """Scores data and, unless only that is wanted, adds gradients."""
    model_id, seq_id, read = wire.open_forward_backward(body)

    def task(model: TrainedModel) -> Scored:
      asked = read()
      if asked.is_forward:
        return model.trainable.forward(asked.data, asked.loss)
      return model.trainable.forward_backward(
        asked.data, asked.loss, asked.config
      )

    def reply(scored: Scored) -> Reply:
      metrics = {"loss:sum": scored.loss}
      return Reply(wire.write_outputs(scored.logprobs, metrics), True)

    return self.in_order(model_id, seq_id, task, reply)

  def optim_step(self, body: Mapping[str, Any]) -> dict[str, Any]:
    """Takes a step of AdamW with the numbers of the request."""

    def task(model: TrainedModel) -> dict[str, float]:
      return model.trainable.optim_step(bodies.adam(body))

    return self.in_order(
      *bodies.operation(body),
      task,
      lambda metrics: as_json({"metrics": metrics}),
    )

  def info(self, model_id: str) -> dict[str, Any]:
    """Describes a model."""
    lora = self.find(model_id).lora
    return {
      "model_id": model_id,
      "model_data": {
        "model_name": self.base.name,
        "tokenizer_id": self.base.tokenizer_id,
      },
      "model_name": self.base.name,
      "optimizer_config": {"type": "adamw"},
    } | adapter_fields(lora)


def adapter_fields(lora: Lora | None) -> dict[str, Any]:
  """Returns the fields that describe an adapter."""
  if lora is None:
    return {"is_lora": False, "lora_rank": 0}
  return {
    "is_lora": True,
    "lora_rank": lora.rank,
    "train_attn": "q" in lora.targets,
    "train_mlp": "up" in lora.targets,
    "train_unembed": False,
  }
