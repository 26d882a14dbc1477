"""A training server without its HTTP side: what the API's requests do."""

from azr_jax.serving.decoding import DecodeWorker
from azr_jax.serving.protocol import ServedModel
from azr_jax.serving.tinker.checkpoints import Checkpoints
from azr_jax.serving.tinker.models import BaseModel, Models
from azr_jax.serving.tinker.operations import Operations
from azr_jax.serving.tinker.sample_requests import SampleRequests
from azr_jax.serving.tinker.samplers import Samplers
from azr_jax.serving.tinker.sessions import Sessions
from azr_jax.serving.tinker.states import States
from azr_jax.serving.tinker.studio import Studio


class Service:
  """The parts of a training server. They belong to the HTTP server's thread.

  Attributes:
    base: the base model.
    sessions: the clients.
    operations: what they started.
    models: the models in training.
    states: the saved states.
    samplers: the sampling sessions.
  """

  def __init__(
    self,
    worker: DecodeWorker,
    studio: Studio,
    checkpoints: Checkpoints,
    served: ServedModel,
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
      served: the base model, with the limits of sampling.
      tokenizer_id: where clients find its tokenizer.
      max_rank: as in `TinkerSettings`, like the others.
      max_models: see `max_rank`.
      max_snapshots: see `max_rank`.
      idle_s: see `max_rank`.
    """
    self.base = BaseModel(served.name, tokenizer_id)
    self.sessions = sessions = Sessions(idle_s)
    self.operations = operations = Operations(worker)
    # A session's operations end before what they use.
    sessions.on_end.append(operations.end_session)
    self.models = Models(
      *(self.base, operations, sessions, studio),
      max_rank=max_rank,
      max_models=max_models,
    )
    self.states = States(self.models, operations, studio, checkpoints)
    self.samplers = Samplers(
      *(operations, sessions, self.models, self.states, studio),
      SampleRequests(served),
      max_snapshots=max_snapshots,
    )

  def reap(self) -> None:
    """Ends silent sessions, and drops results that nobody fetched."""
    self.sessions.reap()
    self.operations.futures.drop_old()
