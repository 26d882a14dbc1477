"""Evaluation: greedy answers to a benchmark's tasks.

  python -m azr_jax.evaluate --config=configs/evaluate.py \\
      --model=embedded:azr-tiny --benchmark=programs_heldout --workdir=DIR
"""

import ml_collections

from configs import common


def get_config() -> ml_collections.ConfigDict:
  """Returns the evaluation configuration."""
  c = common.get_config()
  del c.system, c.learner, c.optimizer, c.train
  del c.model.source  # given by --model
  c.rollout.slots = 96
  c.rollout.prompt_buckets = (128, 256)
  c.rollout.max_tokens = 128
  c.rollout.temperature = 0.0  # greedy
  c.evaluate = ml_collections.ConfigDict()
  c.evaluate.prompt_style = "compact"  # full | compact | few_shot
  return c
