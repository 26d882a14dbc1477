"""Sampling sessions: each samples by the weights of its creation."""

import asyncio
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from azr_jax.serving.errors import ApiError
from azr_jax.serving.jobs import NewTokens, SamplingJob
from azr_jax.serving.tinker import bodies
from azr_jax.serving.tinker.futures import Reply
from azr_jax.serving.tinker.models import Models
from azr_jax.serving.tinker.operations import Operations, as_json, failed
from azr_jax.serving.tinker.sample_requests import SampleRequests
from azr_jax.serving.tinker.sessions import Sessions
from azr_jax.serving.tinker.states import States
from azr_jax.serving.tinker.studio import Studio
from azr_jax.verbs.residents import Snapshot

# Samples a job; its choices in order. Cancelling the task cancels the job.
Sample = Callable[[SamplingJob], "asyncio.Task[list[NewTokens]]"]


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


class Samplers:
  """The sampling sessions, by id."""

  def __init__(
    self,
    operations: Operations,
    sessions: Sessions,
    models: Models,
    states: States,
    studio: Studio,
    requests: SampleRequests,
    *,
    max_snapshots: int,
  ):
    """Starts without sampling sessions.

    Args:
      operations: runs what clients ask for.
      sessions: the clients.
      models: the models in training.
      states: the saved states.
      studio: takes and loads snapshots; only tasks use it.
      requests: parses what to sample.
      max_snapshots: as in `TinkerSettings`.
    """
    self._operations, self._sessions = operations, sessions
    self._models, self._states, self._studio = models, states, studio
    self._requests, self._max_snapshots = requests, max_snapshots
    self._open: dict[str, SamplingSession] = {}
    sessions.on_end.append(self._end_session)

  def __len__(self) -> int:
    return len(self._open)

  def _end_session(self, session_id: str) -> None:
    """Frees the snapshots of a session."""
    for sampler_id, one in list(self._open.items()):
      if one.session_id == session_id:
        self._close(sampler_id)

  def _close(self, sampler_id: str) -> None:
    """Frees the place of a sampling session's snapshot."""
    snapshot = self._open.pop(sampler_id).snapshot
    residents = self._operations.worker.residents
    if snapshot is not None and residents is not None:
      self._operations.worker.call(lambda: residents.forget(snapshot))

  def save(self, body: Mapping[str, Any]) -> dict[str, Any]:
    """Opens a sampling session with a model's present weights."""
    model_id, seq_id = bodies.operation(body)
    session_id = self._models.find(model_id).session_id
    sampler_id = _sampler_id(session_id, body)

    def reply(snapshot: Snapshot) -> Reply:
      self._sessions.touch(session_id)
      self._add(sampler_id, SamplingSession(session_id, snapshot))
      return as_json(
        {
          "sampling_session_id": sampler_id,
          "type": "save_weights_for_sampler",
        }
      )

    return self._models.in_order(
      *(model_id, seq_id, self._studio.snapshot, reply)
    )

  async def create(self, body: Mapping[str, Any]) -> dict[str, Any]:
    """Opens a sampling session of the base model or of saved weights."""
    session_id = bodies.text(body, "session_id")
    self._sessions.touch(session_id)
    sampler_id = _sampler_id(session_id, body)
    path = body.get("model_path")
    if sampler_id not in self._open:
      snapshot = None
      if path is not None:
        saved = self._states.find(bodies.text(body, "model_path"))
        task = self._operations.worker.call(
          lambda: self._studio.load_snapshot(saved.folder, saved.lora)
        )
        snapshot = await asyncio.shield(asyncio.wrap_future(task))
        self._sessions.touch(session_id)
      else:
        self._models.base.check(bodies.text(body, "base_model"))
      self._add(sampler_id, SamplingSession(session_id, snapshot, path))
    return {
      "sampling_session_id": sampler_id,
      "type": "create_sampling_session",
    }

  def _add(self, sampler_id: str, one: SamplingSession) -> None:
    """Adds a sampling session; the oldest of too many are closed."""
    self._open[sampler_id] = one
    own = [
      name
      for name, other in self._open.items()
      if other.session_id == one.session_id and other.snapshot is not None
    ]
    for name in own[: -self._max_snapshots]:
      self._close(name)

  def find(self, sampler_id: str) -> SamplingSession:
    """Returns a sampling session.

    Raises:
      ApiError: there is none of this id.
    """
    one = self._open.get(sampler_id)
    if one is None:
      raise ApiError(
        404, f"sampling_session_id={sampler_id!r:.120}: expected an open one"
      )
    return one

  def sample(self, body: Mapping[str, Any], sample: Sample) -> dict[str, Any]:
    """Starts sampling; returns the future.

    Args:
      body: what to sample.
      sample: samples a job.
    """
    sampler_id = bodies.text(body, "sampling_session_id")
    one = self.find(sampler_id)
    self._sessions.touch(one.session_id)
    seq_id = bodies.integer(body, "seq_id")
    count = self._requests.num_samples(body)
    futures = self._operations.futures

    def start(request_id: str) -> None:
      residents = self._operations.worker.residents
      assert residents is not None
      job, write = self._requests.read(body, one.snapshot or residents.base)
      task = sample(job)
      futures.run(request_id, task.cancel)

      def finish(done: "asyncio.Task[list[NewTokens]]") -> None:
        if done.cancelled():  # Its session ended, and has answered.
          return
        try:
          reply = write(done.result())
        except Exception as error:  # noqa: BLE001 - the client gets it.
          reply = failed(error)
        futures.finish(request_id, reply)

      task.add_done_callback(finish)

    return self._operations.begin(
      *((sampler_id, "sample", seq_id), one.session_id, start),
      sample_sequence_ids=[f"{sampler_id}:{seq_id}:{i}" for i in range(count)],
    )


def _sampler_id(session_id: str, body: Mapping[str, Any]) -> str:
  """Returns the id of a new sampling session."""
  number = bodies.integer(body, "sampling_session_seq_id")
  return f"{session_id}:sample:{number}"
