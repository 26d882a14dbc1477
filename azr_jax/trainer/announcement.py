"""Prints notes and warnings about a model when it is loaded."""

import jax

from azr_jax.models.load import ModelSource
from azr_jax.run.console import print_status

# The settings that bound a prompt and its response.
_LENGTHS = "config.rollout.prompt_buckets or config.rollout.max_tokens"


def show(source: ModelSource, longest: int, keys: str = _LENGTHS) -> None:
  """Prints the model's notes, and a warning if sequences are too long for it.

  Only the primary host prints.

  Args:
    source: the model.
    longest: tokens of the longest prompt and response together. 0 if the
      command itself keeps to the model's maximum.
    keys: the settings that make sequences shorter.
  """
  if jax.process_index():
    return
  for note in source.notes:
    print_status(note)
  limit = source.config.max_positions
  if longest > limit:
    print_status(
      f"warning: sequences may reach {longest} tokens, but the model has "
      f"max_position_embeddings={limit} and is unreliable beyond: lower {keys}"
    )
