"""A training server that needs no device: its models are tables of bigrams."""

import contextlib
import dataclasses
import json
import threading
from typing import Any

import numpy as np
import rollout_model
from typed import stand_in

from azr_jax.rollout.adapter_ref import BASE
from azr_jax.rollout.meter import Meter
from azr_jax.rollout.sampler import Sampler
from azr_jax.rollout.weights import Weights
from azr_jax.serving.decoding import DecodeWorker
from azr_jax.serving.http_server import HttpServer
from azr_jax.serving.protocol import ServedModel
from azr_jax.serving.settings import TinkerSettings
from azr_jax.serving.tinker import store
from azr_jax.serving.tinker.checkpoints import Checkpoints
from azr_jax.serving.tinker.routes import Routes
from azr_jax.serving.tinker.service import Service
from azr_jax.serving.tinker.studio import Studio, TrainedModel
from azr_jax.verbs import data as data_lib
from azr_jax.verbs.residents import Residents, Snapshot
from azr_jax.verbs.trainable import Scored
from tests.serving.tinker_client import NAME

SIZE = 120
LIMITS = TinkerSettings(max_rank=4, max_models=3, max_snapshots=2)
SETTINGS = dataclasses.replace(rollout_model.SETTINGS, max_tokens=40)


class Bigrams:
  """Log-odds of each next id by the id before; stands for a `Trainable`."""

  def __init__(self, state):
    self.state, self.grads = state, np.zeros_like(state)

  def forward(self, data, loss="cross_entropy"):
    limits = data_lib.DataLimits(64, SIZE)
    data_lib.check(data, loss, limits)
    found, total = [], 0.0
    for one in data:
      logits = self.state[one.tokens]
      logits = logits - np.logaddexp.reduce(logits, -1, keepdims=True)
      lp = np.take_along_axis(logits, one.targets[:, None], 1)[:, 0]
      total -= float(np.sum(lp * one.inputs.get("weights", 0)))
      found.append(lp.astype(np.float32))
    return Scored(found, total)

  def forward_backward(self, data, loss="cross_entropy", config=None):
    del config
    scored = self.forward(data, loss)
    for one in data:
      for token, target, w in zip(
        one.tokens, one.targets, one.inputs["weights"], strict=True
      ):
        odds = np.exp(self.state[token])
        self.grads[token] += w * odds / odds.sum()
        self.grads[token, target] -= w
    return scored

  def optim_step(self, adam):
    norm = float(np.linalg.norm(self.grads))
    self.restore(self.state - adam.learning_rate * self.grads)
    return {"grad_norm": norm, "skipped": 0.0}

  def restore(self, state):
    self.state, self.grads = state, np.zeros_like(state)


class BigramStudio:
  """Stands for a `Studio`.

  Attributes:
    hold: each task waits for it.
    error: what `create` raises, if anything.
  """

  def __init__(self):
    self.hold, self.error = threading.Event(), None
    self.hold.set()

  def create(self, lora, seed):
    del seed
    assert self.hold.wait(60)
    if self.error is not None:
      raise self.error
    return _model(lora, np.zeros((SIZE, SIZE)))

  def snapshot(self, model):
    return Snapshot({"table": model.trainable.state}, model.lora)

  def save(self, model, folder, about):
    if self.error is not None:
      raise self.error
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "table.npy", model.trainable.state)
    (folder / store.ABOUT).write_text(json.dumps(about))

  def load(self, folder, lora, with_moments):
    del with_moments
    return _model(lora, np.load(folder / "table.npy"))

  def load_into(self, model, folder, with_moments):
    loaded = self.load(folder, model.lora, with_moments)
    model.trainable.restore(loaded.trainable.state)

  def load_snapshot(self, folder, lora):
    return self.snapshot(self.load(folder, lora, False))


def _model(lora, state):
  trainable: Any = Bigrams(state)
  return TrainedModel(lora, trainable)


class Places:
  """Stands for `Residents`: every snapshot has a place.

  Attributes:
    sampled: the snapshots that jobs sampled.
    forgotten: those that nobody needs any more.
  """

  def __init__(self):
    self.base = Snapshot({}, None)
    self.sampled, self.forgotten = [], []

  def acquire(self, snapshot):
    self.sampled.append(snapshot)
    return BASE

  def release(self, snapshot):
    del snapshot

  def forget(self, snapshot):
    self.forgotten.append(snapshot)


@dataclasses.dataclass
class Hosted:
  """A running server.

  Attributes:
    url: its address.
    service: what it does.
    worker: samples and trains.
    studio: its models.
    places: its snapshots.
  """

  url: str
  service: Service
  worker: DecodeWorker
  studio: BigramStudio
  places: Places


@contextlib.contextmanager
def hosted(folder, limits=LIMITS, timeout_s=600.0):
  """Serves training of bigrams in threads of this process."""
  engine = rollout_model.page_engine(SETTINGS)
  sampler = stand_in(
    Sampler,
    engine=engine,
    meter=Meter(),
    open=lambda weights: rollout_model.host_stream(engine, SETTINGS),
  )
  worker = DecodeWorker(sampler, Weights({}), np.zeros(2, np.uint32), 0, 64)
  places, studio = Places(), BigramStudio()
  stands: Any = places, studio
  residents: Residents
  used: Studio
  residents, used = stands
  worker.residents = residents
  tokenizer = rollout_model.ByteTokenizer()
  served = ServedModel(
    *(NAME, False, tokenizer, 130, 64, SETTINGS.prompt_buckets[-1]),
    *(SETTINGS.max_tokens, 1.0, 1.0, 0, 0, {}, 0),
  )
  service = Service(
    *(worker, used, Checkpoints(folder), served, NAME),
    max_rank=limits.max_rank,
    max_models=limits.max_models,
    max_snapshots=limits.max_snapshots,
    idle_s=limits.idle_s,
  )
  server = HttpServer(
    worker, served, "", 30, timeout_s, Routes(service, served)
  )
  port = server.start("127.0.0.1", 0)
  thread = threading.Thread(target=worker.run, args=(server.deliver,))
  thread.start()
  try:
    url = f"http://127.0.0.1:{port}"
    yield Hosted(url, service, worker, studio, places)
  finally:
    studio.hold.set()
    worker.end(0.0)
    thread.join()
    server.close()
