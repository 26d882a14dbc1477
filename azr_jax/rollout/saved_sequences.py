"""Sequences outside of the stream, from whose tokens it can go on.

Tokens, their log-probabilities and versions, and what the random numbers depend
on are all that a sequence is. `Stream.restore` takes them, in a later step or
in another process.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from azr_jax import types
from azr_jax.rollout.sequence import Request, SequenceState


def of_completion(
  request: Request, sample: int, completion: types.Completion
) -> SequenceState:
  """Returns the sequence of a completion.

  Args:
    request: of the completion's prompt.
    sample: index of the completion among those of the prompt.
    completion: has versions; a paused one becomes a sequence without a finish
      reason.
  """
  assert completion.versions is not None
  is_paused = completion.finish_reason == types.PAUSED
  return SequenceState(
    request,
    sample,
    token_ids=completion.token_ids.tolist(),
    logprobs=completion.logprobs.tolist(),
    loss_mask=completion.loss_mask.tolist(),
    versions=completion.versions.tolist(),
    finish_reason=None if is_paused else completion.finish_reason,
  )


def to_json(sequence: SequenceState) -> dict[str, Any]:
  """Returns a sequence as JSON values; its prompt is not among them."""
  request = sequence.request
  return {
    "key": request.key_data.tolist(),
    "seed": int(request.seed),
    "sample": sequence.sample_index,
    "tokens": sequence.token_ids,
    "logprobs": sequence.logprobs,
    "loss_mask": [int(one) for one in sequence.loss_mask],
    "versions": sequence.versions,
    "finish": sequence.finish_reason,
  }


def from_json(row: Mapping[str, Any]) -> SequenceState:
  """Returns a sequence without its prompt; it is for `Stream.restore` alone."""
  key_data = np.asarray(row["key"], np.uint32)
  prompt = types.Prompt("", ())
  request = Request(0, prompt, 1, 1, key_data, row["seed"])
  return SequenceState(
    request,
    row["sample"],
    token_ids=row["tokens"],
    logprobs=row["logprobs"],
    loss_mask=[bool(one) for one in row["loss_mask"]],
    versions=row["versions"],
    finish_reason=row["finish"],
  )
