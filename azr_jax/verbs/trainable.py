"""A model in training, moved by four verbs: forward, backward, step, sample.

`Trainable` holds what belongs to one model: trained parameters, moments, and
the gradients since the last step. Several may share a frozen base.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import jax
import numpy as np
from jaxtyping import Float32

from azr_jax.learner.objective import Fixed
from azr_jax.learner.train_state import TrainState
from azr_jax.parallel import memory
from azr_jax.types import Params
from azr_jax.verbs import data as data_lib
from azr_jax.verbs import losses, programs, rows
from azr_jax.verbs.data import DataLimits, Datum
from azr_jax.verbs.programs import Adam, Verbs


@dataclasses.dataclass(frozen=True)
class Scored:
  """The result of `forward` and `forward_backward`.

  Attributes:
    logprobs: the log-probability of each target of each datum, in nats.
    loss: the sum over all tokens.
  """

  logprobs: list[Float32[np.ndarray, "_S ..."]]
  loss: float


class Trainable:
  """One model's state, and the functions that change it."""

  def __init__(
    self,
    functions: Verbs,
    shapes: rows.RowShapes,
    limits: DataLimits,
    fixed: Fixed,
    state: TrainState,
  ):
    """Starts without gradients.

    Args:
      functions: the functions of the decoder.
      shapes: the shapes of batches.
      limits: the limits on data.
      fixed: the parameters that are not trained.
      state: the initial state, which is donated at the first step.
    """
    self._functions, self._shapes = functions, shapes
    self._limits, self._fixed = limits, fixed
    self._grads: Params | None = None
    self.state = state

  @property
  def params(self) -> Params:
    """All parameters of the decoder."""
    return self._fixed.whole(self.state.params)

  @memory.explained(memory.TRAINING_KEYS)
  def forward(
    self, data: Sequence[Datum], loss: str = "cross_entropy"
  ) -> Scored:
    """Returns log-probabilities and loss, without gradients.

    Args:
      data: the sequences. Those without `weights` have a loss of 0.
      loss: must be `cross_entropy`.

    Raises:
      ValueError: the data do not fit the model or the loss.
    """
    if loss != "cross_entropy":
      raise ValueError(
        f"loss_fn={loss!r}: expected 'cross_entropy' in a forward pass"
      )
    data = [data_lib.weighted(datum) for datum in data]
    data_lib.check(data, loss, self._limits)
    found = self._new(data)
    total = 0.0
    pending = [
      (
        places,
        batch,
        self._functions.forward(
          self.state.params, self._functions.place(batch), self._fixed
        ),
      )
      for batch, places in rows.pack(data, loss, self._shapes)
    ]
    for places, batch, logprobs in pending:
      values = np.asarray(jax.device_get(logprobs))
      total -= float(np.sum(values * batch.inputs["weights"], dtype=np.float64))
      _take(values, places, found)
    return Scored(found, total)

  @memory.explained(memory.TRAINING_KEYS)
  def forward_backward(
    self,
    data: Sequence[Datum],
    loss: str = "cross_entropy",
    config: Mapping[str, float] | None = None,
  ) -> Scored:
    """Adds the gradients of a loss to those since the last step.

    Args:
      data: the sequences.
      loss: a key of `losses.LOSSES`.
      config: the loss's numbers; those left out have their defaults.

    Raises:
      ValueError: the data do not fit the model or the loss.
    """
    numbers = programs.as_arrays(losses.configured(loss, config or {}))
    data_lib.check(data, loss, self._limits)
    if self._grads is None:
      self._grads = self._functions.zeros()
    backward, pending = self._functions.backward[loss], []
    for batches, places in rows.stack(rows.pack(data, loss, self._shapes)):
      self._grads, totals, logprobs = backward(
        self.state.params,
        self._grads,
        self._functions.place(batches, axis=1),
        np.int32(len(places)),
        self._fixed,
        numbers,
      )
      pending.append((places, totals, logprobs))
    found, total = self._new(data), 0.0
    for places, totals, logprobs in pending:
      total += float(np.sum(jax.device_get(totals), dtype=np.float64))
      values = np.asarray(jax.device_get(logprobs))
      for of_batch, own in zip(values, places, strict=False):
        _take(of_batch, own, found)
    return Scored(found, total)

  @memory.explained(memory.TRAINING_KEYS)
  def optim_step(self, adam: Adam) -> dict[str, float]:
    """Takes a step of AdamW with the summed gradients, and clears them.

    Returns:
      `grad_norm`, before clipping, and `skipped`, which is 1 if a gradient was
      infinite or NaN, so that nothing changed.
    """
    grads, self._grads = self._grads, None
    if grads is None:
      grads = self._functions.zeros()
    self.state, metrics = self._functions.step(
      self.state, grads, programs.as_arrays(adam)
    )
    found = jax.device_get(metrics)
    return {name: float(value) for name, value in found.items()}

  def free(self) -> None:
    """Frees the memory of state and gradients, until `restore`."""
    for array in jax.tree.leaves((self.state, self._grads)):
      array.delete()

  def restore(self, state: TrainState) -> None:
    """Replaces the state, and clears the gradients."""
    self.state, self._grads = state, None

  def _new(self, data: Sequence[Datum]) -> list[Float32[np.ndarray, "_S ..."]]:
    """Returns an array for the log-probabilities of each datum."""
    return [np.zeros(datum.targets.shape, np.float32) for datum in data]


def _take(
  logprobs: Float32[np.ndarray, "B S ..."],
  places: Sequence[rows.RowSpan],
  found: Sequence[Float32[np.ndarray, "_S ..."]],
) -> None:
  """Copies the log-probabilities of a batch to its data."""
  for place in places:
    found[place.index][:] = logprobs[place.row, place.start : place.stop]
