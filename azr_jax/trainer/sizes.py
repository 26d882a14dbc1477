"""Sizes of sampling and learning that fit a task, for whoever sets none."""

from typing import Any

_SHORTEST_BUCKET = 16
_MOST_SLOTS = 256
# Tokens of a micro-batch, and those whose logits exist at once.
_MICRO_TOKENS, _CHUNK_TOKENS = 4096, 1024


def prompt_buckets(longest: int) -> tuple[int, ...]:
  """Returns two prompt lengths to compile: half of the longest, and it."""
  bucket = _SHORTEST_BUCKET
  while bucket < longest:
    bucket *= 2
  halves = (bucket // 2,) if bucket > _SHORTEST_BUCKET else ()
  return (*halves, bucket)


def fitted(
  max_tokens: int, longest_prompt: int, responses: int
) -> dict[str, Any]:
  """Returns the sizes of a training config, by dotted key.

  Args:
    max_tokens: of a response.
    longest_prompt: tokens.
    responses: of a step.
  """
  buckets = prompt_buckets(longest_prompt)
  row_length = -(-(buckets[-1] + max_tokens) // 8) * 8
  micro_rows = max(1, _MICRO_TOKENS // row_length)
  return {
    "rollout.prompt_buckets": buckets,
    "rollout.slots": min(responses, _MOST_SLOTS),
    "rollout.decode_chunk": min(32, max_tokens),
    "learner.row_length": row_length,
    "learner.micro_rows": micro_rows,
    "learner.max_micro_batches": -(-responses // micro_rows),
    "learner.chunk_tokens": min(_CHUNK_TOKENS, micro_rows * row_length),
  }
