"""A base model, and the models that several clients train on it.

Only one thread may use it: the one that samples.
"""

import dataclasses
import functools
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import jax
from jax.sharding import Mesh

from azr_jax.learner.objective import Fixed
from azr_jax.learner.train_state import TrainState
from azr_jax.models import adapters, transformer
from azr_jax.models.adapters import Lora
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.randomness import keys
from azr_jax.randomness.purposes import Purpose
from azr_jax.rollout import engine as engine_lib
from azr_jax.rollout.engine import Engine
from azr_jax.serving.tinker import store
from azr_jax.types import Params, Rules
from azr_jax.verbs import programs, rows
from azr_jax.verbs.data import DataLimits
from azr_jax.verbs.programs import Verbs
from azr_jax.verbs.residents import Snapshot
from azr_jax.verbs.trainable import Trainable


@dataclasses.dataclass(frozen=True)
class Parts:
  """What a studio is built from.

  Attributes:
    decoder: adapters' shape -> the learner's decoder; None trains all.
    base: the frozen parameters, as the decoders with adapters read them.
    load_all: () -> all parameters, float32, stacked.
    engine: the sampler's compiled functions.
    mesh: the mesh of parameters and rows in training.
    rules: logical parameter axis to mesh axis.
    shapes: the shapes of batches.
    chunk_tokens: number of tokens whose logits exist at the same time.
    config: adapters' shape -> the configuration of a run that trains this.
  """

  decoder: Callable[[Lora | None], transformer.Transformer]
  base: Params
  load_all: Callable[[], Params]
  engine: Engine
  mesh: Mesh
  rules: Rules
  shapes: rows.RowShapes
  chunk_tokens: int
  config: Callable[[Lora | None], Mapping[str, Any]]


@dataclasses.dataclass(frozen=True, eq=False)
class TrainedModel:
  """A model in training.

  Attributes:
    lora: the adapter's shape; None trains all parameters.
    trainable: its state.
  """

  lora: Lora | None
  trainable: Trainable


class Studio:
  """Makes, saves and snapshots models."""

  def __init__(self, parts: Parts):
    """Compiles nothing."""
    self._parts = parts
    self._verbs = functools.cache(self._make_verbs)
    engine = parts.engine
    self._to_sampler = jax.jit(
      lambda params: adapters.base_of(
        engine_lib.whole_params(engine.model, params)
      ),
      out_shardings=adapters.base_of(engine.param_shardings),
    )

  @property
  def limits(self) -> DataLimits:
    """The limits on data."""
    longest = self._parts.shapes.longest
    return DataLimits(longest, self._parts.engine.model.config.vocab_size)

  def _make_verbs(self, lora: Lora | None) -> Verbs:
    parts = self._parts
    return programs.make(
      *(parts.decoder(lora), parts.mesh, parts.rules),
      chunk_tokens=parts.chunk_tokens,
    )

  def create(self, lora: Lora | None, seed: int) -> TrainedModel:
    """Returns a new model.

    Args:
      lora: the shape of its adapter; None trains all parameters.
      seed: the seed of a new adapter.
    """
    if lora is None:
      return self._model(None, self._verbs(None).start(self._parts.load_all()))
    decoder, mesh = self._parts.decoder(lora), self._parts.mesh
    draw = jax.jit(
      lambda key: transformer.init_adapters(decoder, key),
      out_shardings=mesh_lib.param_shardings(
        transformer.abstract_trained(decoder), mesh, self._parts.rules
      ),
    )
    drawn = draw(keys.of(seed, Purpose.ADAPTERS))
    return self._model(lora, self._verbs(lora).start(drawn))

  def _model(self, lora: Lora | None, state: TrainState) -> TrainedModel:
    """Returns a model with this state, which it takes over."""
    fixed = Fixed({} if lora is None else self._parts.base)
    trainable = Trainable(
      *(self._verbs(lora), self._parts.shapes, self.limits, fixed, state)
    )
    return TrainedModel(lora, trainable)

  def snapshot(self, model: TrainedModel) -> Snapshot:
    """Returns the model's present weights, on the host, for sampling."""
    params = model.trainable.state.params
    if model.lora is None:
      return Snapshot(jax.device_get(self._to_sampler(params)), None)
    return Snapshot(jax.device_get(params), model.lora)

  def save(
    self, model: TrainedModel, folder: pathlib.Path, about: Mapping[str, Any]
  ) -> None:
    """Saves a model with its moments; see `store.save`."""
    store.save(
      *(folder, model.trainable.state, self._parts.config(model.lora)),
      {} if model.lora is None else self._parts.base,
      about,
    )

  def load(
    self, folder: pathlib.Path, lora: Lora | None, with_moments: bool
  ) -> TrainedModel:
    """Returns the model of a saved state.

    Args:
      folder: the folder of the state.
      lora: the shape of its adapter; None if all parameters were trained.
      with_moments: whether to restore the moments, which otherwise are 0.

    Raises:
      ValueError: there is no such state.
    """
    return self._model(lora, self._read(folder, lora, with_moments))

  def load_into(
    self, model: TrainedModel, folder: pathlib.Path, with_moments: bool
  ) -> None:
    """Replaces the state of a model by a saved one; see `load`.

    If all parameters are trained, two states may not fit into the devices'
    memory, so the old one is freed once the new one is known to be whole.

    Raises:
      ValueError: there is no such state; the model keeps its own.
    """
    free = model.trainable.free if model.lora is None else lambda: None
    state = self._read(folder, model.lora, with_moments, free)
    model.trainable.restore(state)

  def _read(
    self,
    folder: pathlib.Path,
    lora: Lora | None,
    with_moments: bool,
    when_found: Callable[[], object] = lambda: None,
  ) -> TrainState:
    """Returns a saved state; see `load` and `store.load`."""
    verbs = self._verbs(lora)
    if with_moments:
      return store.load(folder, verbs.abstract, when_found)
    params = store.load_params(folder, verbs.abstract, when_found)
    return verbs.start(params)

  def load_snapshot(self, folder: pathlib.Path, lora: Lora | None) -> Snapshot:
    """Returns the weights of a saved state, for sampling.

    Raises:
      ValueError: there is no such state.
    """
    params = store.load_params(folder, self._verbs(lora).abstract)
    if lora is None:
      return Snapshot(jax.device_get(self._to_sampler(params)), None)
    return Snapshot(jax.device_get(params), lora)
