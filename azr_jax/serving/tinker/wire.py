"""Bodies of the Tinker API: arrays and data in protobuf messages."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError
from jaxtyping import Float32, Int32, Shaped

from azr_jax.serving.errors import ApiError
from azr_jax.serving.scoring import Scores
from azr_jax.serving.tinker import messages, sparse
from azr_jax.serving.tinker.prompt_targets import PromptTargets
from azr_jax.verbs.data import Datum

# Number -> dtype of a tensor. numpy has no bfloat16; the SDK sends none.
_DTYPES = {1: np.dtype("<f4"), 2: np.dtype("<i8"), 3: np.dtype("<i4")}
_FLOAT32, _INT64 = 1, 2
_TARGETS = "target_tokens"
# The log-probability of an empty cell of the likeliest tokens.
_EMPTY = -99999.0
STOP, LENGTH = 0, 1


@dataclasses.dataclass(frozen=True)
class ForwardBackward:
  """A request to score data, and perhaps to add gradients.

  Attributes:
    data: the sequences.
    loss: the name of the loss.
    config: the loss's numbers.
    is_forward: whether only log-probabilities are wanted.
  """

  data: list[Datum]
  loss: str
  config: Mapping[str, float]
  is_forward: bool


def open_forward_backward(
  body: bytes,
) -> tuple[str, int, Callable[[], ForwardBackward]]:
  """Parses the body of `forward_backward`.

  Returns:
    The model's id, the request's `seq_id`, and a function that reads the rest.
    That function raises ApiError if a value is not supported.

  Raises:
    ApiError: the body is no such message.
  """
  message = messages.new("ForwardBackwardRequest")
  try:
    message.ParseFromString(body)
  except DecodeError as error:
    raise ApiError(
      400,
      "forward_backward: expected a ForwardBackwardRequest in protobuf, as "
      f"tinker>=0.25 sends it ({error})",
    ) from None
  read = functools.partial(_read_forward_backward, message)
  return message.model_id, message.seq_id, read


def _read_forward_backward(message: Any) -> ForwardBackward:
  config = dict(message.loss_fn_config)
  for name, value in message.loss_fn_config_v2.items():
    if value.HasField("text"):
      raise _refused(f"loss_fn_config {name!r}={value.text!r}", "a number")
    config[name] = value.number
  return ForwardBackward(
    [_read_datum(index, datum) for index, datum in enumerate(message.data)],
    message.loss_fn,
    config,
    message.forward_only,
  )


def _refused(what: str, expected: str) -> ApiError:
  return ApiError(400, f"{what}: expected {expected}")


def _read_datum(index: int, message: Any) -> Datum:
  """Returns a datum of a request."""
  parts = []
  for chunk in message.model_input:
    if not chunk.HasField("encoded_text"):
      raise _refused(f"datum {index}: a chunk is no text", "token ids alone")
    parts.append(_array(chunk.encoded_text.tokens, _DTYPES[3]))
  tokens = np.concatenate(parts) if parts else np.zeros(0, np.int32)
  inputs = {
    name: _read_tensor(f"datum {index}: {name}", tensor)
    for name, tensor in message.loss_fn_inputs.items()
  }
  targets = inputs.pop(_TARGETS, None)
  if targets is None:
    raise _refused(f"datum {index}: {_TARGETS} is missing", "one per token")
  return Datum(
    tokens.astype(np.int32),
    _as_ids(f"datum {index}: {_TARGETS}", targets),
    {name: value.astype(np.float32) for name, value in inputs.items()},
  )


def _as_ids(
  what: str, values: Shaped[np.ndarray, "..."]
) -> Int32[np.ndarray, "..."]:
  """Returns ids as int32; floats that are whole numbers count as ids."""
  ids = values.astype(np.int64)
  if np.any(ids != values) or np.any(np.abs(ids) > np.iinfo(np.int32).max):
    raise _refused(what, "token ids")
  return ids.astype(np.int32)


def _array(data: bytes, dtype: np.dtype) -> Shaped[np.ndarray, " _S"]:
  """Returns the numbers in some bytes."""
  if len(data) % dtype.itemsize:
    raise _refused(
      f"{len(data)} bytes of a tensor", f"a multiple of {dtype.itemsize}"
    )
  return np.frombuffer(data, dtype)


def _read_tensor(what: str, tensor: Any) -> Shaped[np.ndarray, "..."]:
  """Returns the array of a dense tensor, or of a sparse one with zeros."""
  dtype = _DTYPES.get(tensor.dtype)
  if dtype is None:
    raise _refused(
      f"{what} has dtype {tensor.dtype}", "float32, int64 or int32"
    )
  shape = tuple(tensor.shape)
  if tensor.HasField("sparse_csr"):
    csr = tensor.sparse_csr
    ends, columns = (_array(x, _DTYPES[2]) for x in (csr.crow, csr.col))
    return sparse.dense(what, _array(csr.values, dtype), (ends, columns), shape)
  values = _array(tensor.dense, dtype)
  if not shape:
    return values
  if min(shape) < 0 or np.prod(shape, dtype=np.int64) != values.size:
    raise _refused(
      f"{what} has {values.size} numbers", f"as many as shape {shape} says"
    )
  return values.reshape(shape)


def write_outputs(
  logprobs: Sequence[Float32[np.ndarray, "_S ..."]],
  metrics: Mapping[str, float],
) -> bytes:
  """Returns the result of `forward_backward`.

  Args:
    logprobs: the log-probabilities of each datum.
    metrics: numbers by name, each with the colon and reduction of the API.
  """
  output = messages.new("ForwardBackwardOutput")
  output.loss_fn_output_type = "ArrayRecord"
  for group in _by_width(logprobs):
    record = output.loss_fn_outputs.add()
    record.type_tag, record.num_datums = "ArrayRecord", len(group)
    tensor = record.arrays["logprobs"]
    sizes = [array.nbytes for array in group]
    tensor.data = b"".join(array.astype("<f4").tobytes() for array in group)
    tensor.offsets = np.cumsum([0, *sizes]).astype("<i8").tobytes()
    tensor.dtype = _FLOAT32
    tensor.trailing_shape.extend(group[0].shape[1:])
  for name, value in metrics.items():
    output.metrics[name] = value
  return output.SerializeToString()


def _by_width(
  arrays: Sequence[Float32[np.ndarray, "_S ..."]],
) -> Iterable[list[Float32[np.ndarray, "_S ..."]]]:
  """Yields neighbours with the same number of targets per position."""
  group: list[Float32[np.ndarray, "_S ..."]] = []
  for array in arrays:
    if group and array.shape[1:] != group[0].shape[1:]:
      yield group
      group = []
    group.append(array)
  if group:
    yield group


@dataclasses.dataclass(frozen=True)
class Sampled:
  """A sampled sequence.

  Attributes:
    tokens: its ids.
    logprobs: the log-probability of each.
    stop_reason: `STOP` or `LENGTH`.
    scores: scores of prompt and tokens, if some were asked for.
  """

  tokens: Sequence[int]
  logprobs: Sequence[float]
  stop_reason: int
  scores: Scores | None = None


def write_samples(
  sequences: Sequence[Sampled],
  prompt_length: int,
  targets: PromptTargets | None = None,
  *,
  with_prompt: bool,
  num_prompt_top: int,
  num_top: int,
) -> bytes:
  """Returns the result of `asample`.

  Args:
    sequences: the samples of one prompt.
    prompt_length: the prompt's tokens.
    targets: the ids whose log-probabilities the client wants, if any.
    with_prompt: whether to return the prompt's log-probabilities.
    num_prompt_top: number of likeliest tokens at each position of the prompt.
    num_top: number of likeliest tokens at each sampled position.
  """
  response = messages.new("SampleResponse")
  for one in sequences:
    sequence = response.sequences.add()
    sequence.stop_reason = one.stop_reason
    sequence.tokens = np.asarray(one.tokens, "<i4").tobytes()
    sequence.logprobs = np.asarray(one.logprobs, "<f4").tobytes()
    if num_top and one.scores is not None:
      start = prompt_length - 1
      stop = start + len(one.tokens)
      _write_top(sequence.topk_logprobs, one.scores, start, stop, num_top, 0)
  scores = sequences[0].scores
  if with_prompt and scores is not None:
    known = scores.logprobs[: prompt_length - 1]
    response.prompt_logprobs = np.asarray([np.nan, *known], "<f4").tobytes()
  if num_prompt_top and scores is not None:
    stop = prompt_length - 1
    top = response.topk_prompt_logprobs
    _write_top(top, scores, 0, stop, num_prompt_top, 1)
  if targets is not None and scores is not None:
    assert scores.chosen is not None
    tensor = response.target_prompt_logprobs
    tensor.dtype = _FLOAT32
    tensor.shape.extend(targets.ids.shape)
    if targets.layout is None:
      tensor.dense = scores.chosen.astype("<f4").tobytes()
    else:
      ends, columns = targets.layout
      values = sparse.listed(scores.chosen, targets.layout)
      tensor.sparse_csr.values = values.astype("<f4").tobytes()
      tensor.sparse_csr.crow = ends.astype("<i8").tobytes()
      tensor.sparse_csr.col = columns.astype("<i8").tobytes()
  return response.SerializeToString()


def _write_top(
  message: Any, scores: Scores, start: int, stop: int, k: int, empty: int
) -> None:
  """Writes the likeliest tokens at some positions.

  Args:
    message: receives them.
    scores: the scores of a sequence.
    start: the first position, as an index of `scores`.
    stop: one past the last position.
    k: number of tokens at each position.
    empty: number of positions before these that have none.
  """
  ids, logprobs = (
    scores.top_ids[start:stop, :k],
    scores.top_logprobs[start:stop],
  )
  logprobs = logprobs[:, :k]
  ids = np.pad(ids, ((empty, 0), (0, 0)))
  logprobs = np.pad(logprobs, ((empty, 0), (0, 0)), constant_values=_EMPTY)
  message.token_ids = ids.astype("<i4").tobytes()
  message.logprobs = logprobs.astype("<f4").tobytes()
  message.k, message.length = ids.shape[1], len(ids)
