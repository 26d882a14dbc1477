"""Sampling of puzzles from a frozen proposer (Countdown, section 3.2).

python -m azr_jax.propose --config=configs/propose.py:tiny --model=SPEC --out=F
"""

import ml_collections

from azr_jax.config import overrides
from azr_jax.lab.data.countdown_pool import ProposeRunSettings

VARIANTS = ("paper", "tiny")


def get_config(variant: str = "paper") -> ml_collections.ConfigDict:
  """Returns the configuration of a variant of `VARIANTS`."""
  if variant not in VARIANTS:
    raise ValueError(f"variant {variant!r}: expected one of {VARIANTS}")
  c = overrides.to_config(ProposeRunSettings())
  c.rollout.top_p = 0.95  # paper: 0.95
  c.rollout.top_k = 40  # paper: 40
  c.rollout.slots = 256
  if variant == "tiny":
    c.propose.references = 2  # The prompts must stay short.
    c.propose.prompt_format = "compact"
    c.rollout.prompt_buckets = (40,)
    c.rollout.max_tokens = 96
    c.rollout.stop_strings = ("</answer>",)
  else:
    c.model.dtype = "bfloat16"
    c.rollout.prompt_buckets = (256,)
    c.rollout.max_tokens = 32
    c.rollout.stop_strings = ("\n",)  # A proposal is one line.
  return c
