"""The data of `forward_backward`: sequences with inputs for each token."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
from jaxtyping import Float32, Int32

from azr_jax.types import Completion
from azr_jax.verbs import losses

# Token ids.
Ids: TypeAlias = Sequence[int] | Int32[np.ndarray, " _S"]


@dataclasses.dataclass(frozen=True)
class Datum:
  """A sequence, and everything that a loss reads about its tokens.

  Attributes:
    tokens: the ids that the model reads.
    targets: the id to predict at each of them, which is usually the next. With
      an axis K, each position has K targets; only `cross_entropy` takes them.
    inputs: the other inputs of the loss by name, of the shape of `targets`.
  """

  tokens: Int32[np.ndarray, " _S"]
  targets: Int32[np.ndarray, "_S ..."]
  inputs: Mapping[str, Float32[np.ndarray, "_S ..."]]


def supervised(prompt: Ids, completion: Ids, weight: float = 1.0) -> Datum:
  """Returns a datum for `cross_entropy` on a completion.

  Args:
    prompt: at least one id.
    completion: the ids to learn.
    weight: the weight of each of them.
  """
  of_completion = np.full(len(completion), weight, np.float32)
  return _shifted(prompt, completion, {"weights": of_completion})


def sampled(prompt: Ids, done: Completion, advantage: float) -> Datum:
  """Returns a datum for the losses of reinforcement learning.

  Args:
    prompt: at least one id.
    done: a completion that was sampled for it.
    advantage: the advantage of every token that the model wrote.
  """
  own = done.loss_mask.astype(np.float32)
  return _shifted(
    prompt,
    done.token_ids,
    {
      "logprobs": done.logprobs * own,
      "advantages": advantage * own,
      "sequence_ratio_mask": own,
    },
  )


def _shifted(
  prompt: Ids,
  completion: Ids,
  inputs: Mapping[str, Float32[np.ndarray, " S"]],
) -> Datum:
  """Returns a datum that predicts each next id.

  Args:
    prompt: ids whose inputs are 0.
    completion: the ids after them.
    inputs: the inputs of the completion.
  """
  ids = np.asarray([*prompt, *completion], np.int32)
  zeros = np.zeros(len(prompt) - 1, np.float32)
  return Datum(
    ids[:-1],
    ids[1:],
    {k: np.concatenate([zeros, v]) for k, v in inputs.items()},
  )


def weighted(datum: Datum) -> Datum:
  """Returns a datum with the input `weights`, which are 0 if it has none."""
  if "weights" in datum.inputs:
    return datum
  zeros = np.zeros(datum.targets.shape, np.float32)
  return dataclasses.replace(datum, inputs={**datum.inputs, "weights": zeros})


@dataclasses.dataclass(frozen=True)
class DataLimits:
  """What data must keep to.

  Attributes:
    longest: maximum number of tokens.
    vocab_size: V; ids are below it.
  """

  longest: int
  vocab_size: int


def check(data: Sequence[Datum], loss: str, limits: DataLimits) -> None:
  """Raises ValueError if a loss cannot be computed on some data.

  Args:
    data: at least one sequence.
    loss: a key of `losses.LOSSES`.
    limits: the limits of the model.
  """
  names = losses.find(loss).inputs
  if not data:
    raise ValueError("data is empty: expected at least one datum")
  for index, datum in enumerate(data):
    try:
      _check(datum, names, loss, limits)
    except ValueError as error:
      raise ValueError(f"datum {index}: {error}") from None


def _check(
  datum: Datum, names: Sequence[str], loss: str, limits: DataLimits
) -> None:
  """Raises ValueError if a loss cannot be computed on a sequence."""
  length, shape = len(datum.tokens), datum.targets.shape
  if not 1 <= length <= limits.longest:
    raise ValueError(
      f"model_input has {length} tokens: expected 1 to {limits.longest}"
    )
  if shape[:1] != (length,) or len(shape) > 2:
    raise ValueError(
      f"target_tokens has shape {shape}: expected {length} tokens, as in "
      "model_input"
    )
  if len(shape) == 2 and loss != "cross_entropy":
    raise ValueError(
      f"target_tokens has shape {shape}: expected one target per token with "
      f"loss_fn={loss!r}"
    )
  for name, ids in (
    ("model_input", datum.tokens),
    ("target_tokens", datum.targets),
  ):
    if ids.size and not (ids.min() >= 0 and ids.max() < limits.vocab_size):
      raise ValueError(
        f"{name} has ids from {ids.min()} to {ids.max()}: expected 0 to "
        f"{limits.vocab_size - 1}"
      )
  for name in names:
    value = datum.inputs.get(name)
    if value is None:
      raise ValueError(f"{name} is missing: loss_fn={loss!r} reads it")
    if value.shape != shape:
      raise ValueError(f"{name} has shape {value.shape}: expected {shape}")
    if not np.all(np.isfinite(value)):
      raise ValueError(f"{name} is infinite or NaN: expected finite numbers")
