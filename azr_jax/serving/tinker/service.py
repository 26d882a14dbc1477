"""The state of a training server: sessions, models, samplers and futures.

All of it belongs to the HTTP server's thread. Everything that touches the
device is a task of the worker's thread (`decoding.py`).
"""

import asyncio
import dataclasses
import json
import logging
import shutil
import time
import uuid
from collections.abc import Callable, Hashable, Mapping
from typing import Any

from azr_jax.models.adapters import Lora
from azr_jax.serving.decoding import DecodeWorker
from azr_jax.serving.errors import ApiError
from azr_jax.serving.tinker import bodies, store, wire
from azr_jax.serving.tinker.checkpoints import (
  SAMPLER,
  WEIGHTS,
  Checkpoints,
  Saved,
  about,
)
from azr_jax.serving.tinker.futures import Futures, Lane, Reply
from azr_jax.serving.tinker.studio import Studio, TrainedModel
from azr_jax.verbs.residents import Snapshot
from azr_jax.verbs.trainable import Scored

_log = logging.getLogger(__name__)
# alpha of every adapter; the API has no field for it.
ALPHA = 32.0
_BUSY = 429
_ATTENTION, _MLP = ("q", "k", "v", "o"), ("gate", "up", "down")


@dataclasses.dataclass(eq=False)
class _Session:
  """A client.

  Attributes:
    seen: when it last gave a sign of life, seconds.
    user_metadata: what it said about itself.
  """

  seen: float
  user_metadata: Mapping[str, Any]


@dataclasses.dataclass(eq=False)
class _Trained:
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


@dataclasses.dataclass(eq=False)
class SamplingSession:
  """A sampling session.

  Attributes:
    session_id: the session that it ends with.
    snapshot: the weights, which never change; None for the base model.
    model_path: the name of the saved weights, if it samples some.
  """

  session_id: str
  snapshot: Snapshot | None
  model_path: str | None = None


class Service:
  """What the API's requests do."""

  def __init__(
    self,
    worker: DecodeWorker,
    studio: Studio,
    checkpoints: Checkpoints,
    base_model: str,
    tokenizer_id: str,
    *,
    max_rank: int,
    max_models: int,
    max_snapshots: int,
    idle_s: float,
  ):
    """Starts without sessions.

    Args:
      worker: samples, and runs tasks.
      studio: makes models; only tasks use it.
      checkpoints: the saved states.
      base_model: the name of the base model.
      tokenizer_id: where clients find its tokenizer.
      max_rank: as in `TinkerSettings`, like the others.
      max_models: see `max_rank`.
      max_snapshots: see `max_rank`.
      idle_s: see `max_rank`.
    """
    self.worker, self._studio = worker, studio
    self.checkpoints = checkpoints
    self._max_rank, self._max_models = max_rank, max_models
    self._max_snapshots, self._idle_s = max_snapshots, idle_s
    self.base_model, self.tokenizer_id = base_model, tokenizer_id
    self.futures = Futures()
    self._sessions: dict[str, _Session] = {}
    self._models: dict[str, _Trained] = {}
    self.samplers: dict[str, SamplingSession] = {}

  # Sessions.

  def create_session(self, body: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the id of a new session."""
    session_id = uuid.uuid4().hex
    metadata = bodies.mapping(body, "user_metadata")
    self._sessions[session_id] = _Session(time.monotonic(), metadata)
    return {"session_id": session_id, "type": "create_session"}

  def touch(self, session_id: str) -> _Session:
    """Records a sign of life.

    Raises:
      ApiError: the session is unknown or has ended.
    """
    session = self._sessions.get(session_id)
    if session is None:
      raise ApiError(
        410, f"session_id={session_id!r:.80}: expected a session that lives"
      )
    session.seen = time.monotonic()
    return session

  def finish_session(self, session_id: str) -> None:
    """Ends a session: its models and samplers are freed."""
    self._sessions.pop(session_id, None)
    for model_id, entry in list(self._models.items()):
      if entry.session_id == session_id:
        del self._models[model_id]
    for sampler_id, one in list(self.samplers.items()):
      if one.session_id == session_id:
        del self.samplers[sampler_id]
        self._forget(one.snapshot)

  def _forget(self, snapshot: Snapshot | None) -> None:
    """Frees a snapshot's place in the sampler."""
    residents = self.worker.residents
    if snapshot is not None and residents is not None:
      self.worker.call(lambda: residents.forget(snapshot))

  def reap(self) -> None:
    """Ends the sessions that gave no sign of life for too long."""
    oldest = time.monotonic() - self._idle_s
    for session_id, session in list(self._sessions.items()):
      if session.seen < oldest:
        _log.warning("session %s gave no sign of life: ended", session_id)
        self.finish_session(session_id)

  # Operations with futures.

  def begin(
    self,
    key: Hashable,
    start: Callable[[str], None],
    **fields: Any,
  ) -> dict[str, Any]:
    """Starts an operation once; returns its future.

    Args:
      key: names the operation.
      start: starts it, given the request id.
      **fields: more fields of the future.
    """
    request_id, is_new = self.futures.begin(key)
    if is_new:
      try:
        start(request_id)
      except ApiError as error:
        if error.status == _BUSY:  # The client slows down and tries again.
          self.futures.drop(request_id)
          raise
        self.futures.finish(request_id, failed(error))
      except Exception as error:  # noqa: BLE001 - the client gets it.
        self.futures.finish(request_id, failed(error))
    return {"request_id": request_id} | fields

  def run(
    self,
    request_id: str,
    task: Callable[[], Any],
    reply: Callable[[Any], Reply],
    clean_up: Callable[[], None] = lambda: None,
  ) -> None:
    """Runs a task of the worker's thread; its result becomes a reply.

    Args:
      request_id: the future of the result.
      task: runs between two calls of the sampler.
      reply: result -> reply.
      clean_up: runs if the task failed.
    """
    loop = asyncio.get_running_loop()
    future = self.worker.call(task)
    future.add_done_callback(
      lambda done: loop.call_soon_threadsafe(
        self._finish, request_id, done.result, reply, clean_up
      )
    )

  def _finish(
    self,
    request_id: str,
    result: Callable[[], Any],
    reply: Callable[[Any], Reply],
    clean_up: Callable[[], None],
  ) -> None:
    """Finishes a future by the result of its task, or by its error."""
    try:
      self.futures.finish(request_id, reply(result()))
    except Exception as error:  # noqa: BLE001 - the client gets it.
      clean_up()
      self.futures.finish(request_id, failed(error))

  # Models.

  def create_model(self, body: Mapping[str, Any]) -> dict[str, Any]:
    """Starts a new model of the base model."""
    session_id = bodies.text(body, "session_id")
    self.touch(session_id)
    model_id = f"{session_id}:train:{bodies.integer(body, 'model_seq_id')}"
    self._require_base(bodies.text(body, "base_model"))
    lora = self._lora(bodies.mapping(body, "lora_config"))
    seed = bodies.integer(
      bodies.mapping(body, "lora_config"), "seed", 0, -(1 << 62)
    )

    def start(request_id: str) -> None:
      self._require_room(lora)
      entry = self._add(session_id, model_id, lora)
      self._make(
        *(request_id, entry, model_id, "create_model"),
        lambda: self._studio.create(lora, seed % (1 << 31)),
      )

    return self.begin(("model", model_id), start, model_id=model_id)

  def _add(self, session_id: str, model_id: str, lora: Lora | None) -> _Trained:
    entry = _Trained(session_id, lora, Lane(), None, time.time())
    self._models[model_id] = entry
    return entry

  def _make(
    self,
    request_id: str,
    entry: _Trained,
    model_id: str,
    kind: str,
    make: Callable[[], TrainedModel],
  ) -> None:
    """Makes the model of an entry, which is removed if that fails."""

    def task() -> None:
      # Set here, so that later tasks find it.
      entry.model = make()

    def reply(_: None) -> Reply:
      return as_json({"model_id": model_id, "type": kind})

    self.run(request_id, task, reply, lambda: self._remove(model_id, entry))

  def _remove(self, model_id: str, entry: _Trained) -> None:
    if self._models.get(model_id) is entry:
      del self._models[model_id]

  def _require_base(self, name: str) -> None:
    if name != self.base_model:
      raise ApiError(
        404, f"base_model={name!r:.120}: expected {self.base_model!r}"
      )

  def _require_room(self, lora: Lora | None) -> None:
    """Raises ApiError unless another model fits.

    A model whose parameters are all trained needs the memory of all others.
    """
    others = list(self._models.values())
    if lora is None and others:
      raise ApiError(
        409,
        f"lora_rank=0 trains all parameters, which needs the server for itself:"
        f" expected no other model, {len(others)} are being trained",
      )
    if any(other.lora is None for other in others):
      raise ApiError(
        409,
        "another client trains all parameters and has the server for itself: "
        "expected its end",
      )
    most = self._max_models
    if len(others) >= most:
      raise ApiError(
        429,
        f"{len(others)} models: expected at most tinker.max_models={most}",
      )

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

  def find(self, model_id: str) -> _Trained:
    """Returns a model.

    Raises:
      ApiError: there is none of this id.
    """
    entry = self._models.get(model_id)
    if entry is None:
      raise ApiError(
        404, f"model_id={model_id!r:.120}: expected a model of a live session"
      )
    self.touch(entry.session_id)
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
      entry.lane.add(seq_id, lambda: self.run(request_id, with_model, reply))

    return self.begin((model_id, seq_id), start, model_id=model_id)

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
    model_id, seq_id = _names(body)

    def task(model: TrainedModel) -> dict[str, float]:
      return model.trainable.optim_step(bodies.adam(body))

    return self.in_order(
      model_id, seq_id, task, lambda metrics: as_json({"metrics": metrics})
    )

  # Saved states.

  def save(self, body: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Saves a model under a name."""
    model_id, seq_id = _names(body)
    overwrites = bool(body.get("overwrite"))

    def task(model: TrainedModel) -> str:
      # A refused operation must count as done, or later ones would wait.
      name = bodies.text(body, "path", f"{seq_id:06d}")
      path = self.checkpoints.path(model_id, kind, name)
      folder = self.checkpoints.folder(path)
      if store.read_about(folder) is None:
        shutil.rmtree(folder, ignore_errors=True)  # A save that was killed.
      else:
        if not overwrites:
          raise ApiError(409, f"{path}: expected a name that is not taken")
        self.checkpoints.delete(path)
      fields = about(path, model_id, self.base_model, model.lora)
      self._studio.save(model, folder, fields)
      return path

    types = {WEIGHTS: "save_weights", SAMPLER: "save_weights_for_sampler"}
    return self.in_order(
      *(model_id, seq_id, task),
      lambda path: as_json({"path": path, "type": types[kind]}),
    )

  def save_for_sampling(self, body: Mapping[str, Any]) -> dict[str, Any]:
    """Opens a sampling session with a model's present weights."""
    model_id, seq_id = _names(body)
    session_id = self.find(model_id).session_id
    number = bodies.integer(body, "sampling_session_seq_id")
    sampler_id = f"{session_id}:sample:{number}"

    def reply(snapshot: Snapshot) -> Reply:
      self.touch(session_id)
      self._add_sampler(sampler_id, SamplingSession(session_id, snapshot))
      return as_json(
        {
          "sampling_session_id": sampler_id,
          "type": "save_weights_for_sampler",
        }
      )

    return self.in_order(model_id, seq_id, self._studio.snapshot, reply)

  def load(self, body: Mapping[str, Any]) -> dict[str, Any]:
    """Restores a saved state: as a new model, or in place of a model's."""
    path = bodies.text(body, "path")
    with_moments = bool(body.get("optimizer"))
    if body.get("model_id") is not None:
      return self._load_in_place(body, path, with_moments)
    session_id = bodies.text(body, "session_id")
    self.touch(session_id)
    model_id = f"{session_id}:train:{bodies.integer(body, 'model_seq_id')}"

    def start(request_id: str) -> None:
      saved = self._saved(path)
      self._require_room(saved.lora)
      entry = self._add(session_id, model_id, saved.lora)
      self._make(
        *(request_id, entry, model_id, "load_weights"),
        lambda: self._studio.load(saved.folder, saved.lora, with_moments),
      )

    return self.begin(("model", model_id), start, model_id=model_id)

  def _saved(self, path: str) -> Saved:
    """Returns a saved state of this base model.

    Raises:
      ApiError: there is none of this name, or its base is another.
    """
    saved = self.checkpoints.find(path)
    self._require_base(saved.about["base_model"])
    return saved

  def _load_in_place(
    self, body: Mapping[str, Any], path: str, with_moments: bool
  ) -> dict[str, Any]:
    model_id, seq_id = _names(body)

    def task(model: TrainedModel) -> str:
      saved = self._saved(path)
      if saved.lora != model.lora:
        raise ApiError(
          400,
          f"{path} has {saved.lora}: expected {model.lora}, the model's own",
        )
      loaded = self._studio.load(saved.folder, saved.lora, with_moments)
      model.trainable.restore(loaded.trainable.state)
      return path

    return self.in_order(
      *(model_id, seq_id, task),
      lambda path: as_json(
        {"path": path, "model_id": model_id, "type": "load_weights"}
      ),
    )

  # Sampling sessions.

  async def create_sampler(self, body: Mapping[str, Any]) -> dict[str, Any]:
    """Opens a sampling session of the base model or of saved weights."""
    session_id = bodies.text(body, "session_id")
    self.touch(session_id)
    number = bodies.integer(body, "sampling_session_seq_id")
    sampler_id = f"{session_id}:sample:{number}"
    path, base = body.get("model_path"), body.get("base_model")
    if sampler_id not in self.samplers:
      snapshot = None
      if path is not None:
        saved = self._saved(bodies.text(body, "model_path"))
        task = self.worker.call(
          lambda: self._studio.load_snapshot(saved.folder, saved.lora)
        )
        snapshot = await asyncio.shield(asyncio.wrap_future(task))
        self.touch(session_id)
      else:
        self._require_base(bodies.text({"base_model": base}, "base_model"))
      one = SamplingSession(session_id, snapshot, path)
      self._add_sampler(sampler_id, one)
    return {
      "sampling_session_id": sampler_id,
      "type": "create_sampling_session",
    }

  def _add_sampler(self, sampler_id: str, one: SamplingSession) -> None:
    """Adds a sampling session; the oldest of too many are closed."""
    self.samplers[sampler_id] = one
    own = [
      name
      for name, other in self.samplers.items()
      if other.session_id == one.session_id and other.snapshot is not None
    ]
    for name in own[: -self._max_snapshots]:
      self._forget(self.samplers.pop(name).snapshot)

  # Lists.

  def info(self, model_id: str) -> dict[str, Any]:
    """Describes a model."""
    lora = self.find(model_id).lora
    return {
      "model_id": model_id,
      "model_data": {
        "model_name": self.base_model,
        "tokenizer_id": self.tokenizer_id,
      },
      "model_name": self.base_model,
      "optimizer_config": {"type": "adamw"},
    } | _adapter_fields(lora)

  def saved_info(self, path: str) -> dict[str, Any]:
    """Describes a saved state."""
    saved = self.checkpoints.find(path)
    return {
      "base_model": saved.about["base_model"],
      "optimizer_config": {"type": "adamw"},
    } | _adapter_fields(saved.lora)

  def runs(self) -> list[dict[str, Any]]:
    """Describes every model with saved states, the newest last."""
    by_model: dict[str, list[Any]] = {}
    for saved in self.checkpoints.every():
      by_model.setdefault(saved.about["model_id"], []).append(saved)
    return [self._run_body(model_id, own) for model_id, own in by_model.items()]

  def _run_body(self, model_id: str, own: list[Any]) -> dict[str, Any]:
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
      "base_model": self.base_model,
      "model_owner": "local",
      "last_request_time": own[-1].about["time"],
      "last_checkpoint": newest[WEIGHTS],
      "last_sampler_checkpoint": newest[SAMPLER],
    } | _adapter_fields(own[-1].lora)


def _names(body: Mapping[str, Any]) -> tuple[str, int]:
  """Returns the model and the number of an operation."""
  return bodies.text(body, "model_id"), bodies.integer(body, "seq_id")


def _adapter_fields(lora: Lora | None) -> dict[str, Any]:
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


def as_json(fields: Mapping[str, Any]) -> Reply:
  """Returns some fields as a reply."""
  return Reply(json.dumps(fields).encode())


def failed(error: BaseException) -> Reply:
  """Returns an error as a reply; the server's own errors are logged."""
  if isinstance(error, ApiError):
    kind = "user" if error.status < 500 else "server"
    return as_json({"error": error.message, "category": kind})
  if isinstance(error, ValueError):
    return as_json({"error": str(error), "category": "user"})
  _log.error("a task failed", exc_info=error)
  message = f"{type(error).__name__}: {error}"
  return as_json({"error": message[:2000], "category": "server"})
