"""Sizes of sampling and learning that fit a task, for whoever sets none."""

import ml_collections

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


def fit(
  config: ml_collections.ConfigDict, longest_prompt: int, responses: int
) -> None:
  """Sets the sizes of sections `rollout` and `learner` in a config.

  Args:
    config: a training config with its final `rollout.max_tokens`; changed.
    longest_prompt: tokens.
    responses: of a step.
  """
  rollout, learner = config.rollout, config.learner
  rollout.prompt_buckets = prompt_buckets(longest_prompt)
  rollout.slots = min(responses, _MOST_SLOTS)
  rollout.decode_chunk = min(32, rollout.max_tokens)
  longest = rollout.prompt_buckets[-1] + rollout.max_tokens
  learner.row_length = -(-longest // 8) * 8
  learner.micro_rows = max(1, _MICRO_TOKENS // learner.row_length)
  learner.max_micro_batches = -(-responses // learner.micro_rows)
  learner.chunk_tokens = min(
    _CHUNK_TOKENS, learner.micro_rows * learner.row_length
  )
