"""Evaluation of a model on a benchmark.

  python -m azr_jax.evaluate --config=configs/evaluate.py \\
      --model=embedded:azr-tiny --benchmark=programs_heldout --workdir=DIR

| variant | sampling |
| --- | --- |
| `greedy` | one greedy answer each, for `programs_heldout` |
| `countdown_tiny` | 16 answers as in seed 003, section 4.1; compact prompts |
| `countdown` | the same with full prompts and 1,024 tokens |
"""

import ml_collections

from configs import common

VARIANTS = ("greedy", "countdown_tiny", "countdown")


def get_config(variant: str = "greedy") -> ml_collections.ConfigDict:
  """Returns the evaluation configuration of a variant of `VARIANTS`."""
  if variant not in VARIANTS:
    raise ValueError(f"variant {variant!r}: expected one of {VARIANTS}")
  c = common.get_config()
  del c.system, c.learner, c.optimizer, c.train
  del c.model.source  # given by --model
  c.rollout.slots = 96
  c.rollout.prompt_buckets = (128, 256)
  c.rollout.max_tokens = 128
  c.rollout.temperature = 0.0  # greedy
  c.evaluate = ml_collections.ConfigDict()
  c.evaluate.prompt_style = "compact"  # full | compact | few_shot
  c.evaluate.samples = 1  # answers to each task
  if variant.startswith("countdown"):
    c.evaluate.samples = 16  # paper: 16
    c.rollout.temperature = 0.6  # paper: 0.6
    c.rollout.top_p = 0.95  # paper: 0.95
    c.rollout.top_k = 20  # paper: 20
    c.rollout.stop_strings = ()  # none, though training stops at the tag
    c.rollout.slots = 256
    c.rollout.prompt_buckets = (40,)
    c.rollout.max_tokens = 200
  if variant == "countdown":
    c.model.dtype = "bfloat16"
    c.evaluate.prompt_style = "full"
    c.rollout.prompt_buckets = (256,)
    c.rollout.max_tokens = 1024  # paper: 1024
  return c
