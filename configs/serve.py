"""Serving of a model over the OpenAI API.

  python -m azr_jax.serve --model=SPEC [--config=configs/serve.py:VARIANT]

| variant | for |
| --- | --- |
| `small` | models of up to 1B parameters on a CPU; float32, 1,536 tokens |
| `full` | an accelerator; bfloat16, prompts of 4,096 tokens, 4,096 new ones |
"""

import ml_collections

from azr_jax.config import overrides
from azr_jax.serving.settings import ServeSettings

VARIANTS = ("small", "full")


def get_config(variant: str = "small") -> ml_collections.ConfigDict:
  """Returns the server's configuration of a variant of `VARIANTS`."""
  if variant not in VARIANTS:
    raise ValueError(f"variant {variant!r}: expected one of {VARIANTS}")
  c = overrides.to_config(ServeSettings())
  c.rollout.stop_strings = ()  # A request names its own.
  # Few tokens per call, so that streams stay smooth and requests start soon.
  if variant == "small":
    c.rollout.slots = 16
    c.rollout.prompt_buckets = (128, 512, 1024)
    c.rollout.max_tokens = 512
    c.rollout.decode_chunk = 8
  else:
    c.model.dtype = "bfloat16"
    c.rollout.slots = 64
    c.rollout.prompt_buckets = (256, 1024, 4096)
    c.rollout.max_tokens = 4096
    c.rollout.decode_chunk = 16
    c.rollout.page_size = 256
  return c
