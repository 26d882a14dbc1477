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
      return self._model(None, self._parts.load_all())
    decoder, mesh = self._parts.decoder(lora), self._parts.mesh
    draw = jax.jit(
      lambda key: transformer.init_adapters(decoder, key),
      out_shardings=mesh_lib.param_shardings(
        transformer.abstract_trained(decoder), mesh, self._parts.rules
      ),
    )
    return self._model(lora, draw(keys.of(seed, Purpose.ADAPTERS)))

  def _model(self, lora: Lora | None, trained: Params) -> TrainedModel:
    """Returns a model with these trained parameters, which it takes over."""
    verbs = self._verbs(lora)
    fixed = Fixed({} if lora is None else self._parts.base)
    state = verbs.start(trained)
    trainable = Trainable(
      *(verbs, self._parts.shapes, self.limits, fixed, state)
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
    abstract = self._verbs(lora).abstract
    if not with_moments:
      return self._model(lora, store.load_params(folder, abstract))
    state = store.load(folder, abstract)
    model = self._model(lora, state.params)
    model.trainable.restore(state)
    return model

  def load_snapshot(self, folder: pathlib.Path, lora: Lora | None) -> Snapshot:
    """Returns the weights of a saved state, for sampling.

    Raises:
      ValueError: there is no such state.
    """
    params = store.load_params(folder, self._verbs(lora).abstract)
    if lora is None:
      return Snapshot(jax.device_get(self._to_sampler(params)), None)
    return Snapshot(jax.device_get(params), lora)
