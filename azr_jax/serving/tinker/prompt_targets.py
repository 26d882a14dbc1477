"""Ids whose log-probabilities a client wants at positions of its prompt."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Int32, Int64

from azr_jax.serving import errors
from azr_jax.serving.protocol import ServedModel
from azr_jax.serving.tinker import bodies, sparse
from azr_jax.serving.tinker.sparse import Layout

_NAME = "target_prompt_logprobs"


@dataclasses.dataclass(frozen=True)
class PromptTargets:
  """Ids by position of the prompt.

  Attributes:
    ids: the ids at each position after the first; -1 is none.
    layout: where a client that sent a sparse matrix expects results. None for a
      dense one.
  """

  ids: Int32[np.ndarray, "_P K"]
  layout: Layout | None


def read(
  body: Mapping[str, Any], prompt_length: int, model: ServedModel
) -> PromptTargets | None:
  """Returns the ids of a request; None if it has none.

  Args:
    body: the request.
    prompt_length: S, the number of tokens of the prompt.
    model: the limits of sampling.

  Raises:
    ApiError: they do not fit the prompt or the model.
  """
  tensor = bodies.mapping(body, _NAME)
  if not tensor:
    return None
  most, rows = model.max_logprobs, prompt_length - 1
  shape, values = tensor.get("shape"), _integers(tensor, "data")
  is_shape = isinstance(shape, list) and all(type(n) is int for n in shape)
  if not is_shape or len(shape) != 2 or shape[0] != rows or min(shape) < 1:
    errors.refuse_field(
      f"{_NAME}.shape", shape, f"[{rows}, K], with a row for each token but one"
    )
  if shape[1] > most:
    errors.refuse_field(
      f"{_NAME}.shape", shape, f"at most {most} columns (serve.max_logprobs)"
    )
  layout = None
  if tensor.get("sparse_crow_indices") is not None:
    ends = _integers(tensor, "sparse_crow_indices")
    columns = _integers(tensor, "sparse_col_indices")
    ids = sparse.dense(_NAME, values, (ends, columns), tuple(shape), -1)
    layout = ends, columns
  elif len(values) != rows * shape[1]:
    errors.refuse_field(f"{_NAME}.data", values, f"{rows * shape[1]} ids")
  else:
    ids = values.reshape(shape)
  size = model.vocab_size
  if not (-1 <= ids.min() and ids.max() < size):
    errors.refuse_field(
      f"{_NAME}.data", values.tolist(), f"ids from -1 to {size - 1}"
    )
  return PromptTargets(ids.astype(np.int32), layout)


def _integers(tensor: Mapping[str, Any], name: str) -> Int64[np.ndarray, " N"]:
  """Returns a list of integers.

  Raises:
    ApiError: it is none.
  """
  value = tensor.get(name)
  is_list = isinstance(value, list) and all(type(one) is int for one in value)
  if not is_list or any(abs(one) >= 1 << 62 for one in value):
    errors.refuse_field(f"{_NAME}.{name}", value, "integers")
  return np.asarray(value, np.int64)
