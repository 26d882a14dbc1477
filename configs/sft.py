"""Supervised training; `azr_tiny` makes the embedded base model.

  python -m azr_jax.sft --config=configs/sft.py:azr_tiny --workdir=/tmp/sft

The README has this recipe's cost and scores. `smoke` runs in seconds.
"""

import ml_collections

from configs import common

VARIANTS = ("azr_tiny", "smoke")


def get_config(variant: str = "azr_tiny") -> ml_collections.ConfigDict:
  """Returns the supervised configuration of a variant of `VARIANTS`."""
  if variant not in VARIANTS:
    raise ValueError(f"variant {variant!r}: expected one of {VARIANTS}")
  c = common.get_config()
  del c.system, c.rollout
  c.model.source = "preset:azr-tiny"  # random weights, own tokenizer
  c.learner = ml_collections.ConfigDict()
  c.learner.row_length = 192  # tokens per packed row
  c.learner.micro_rows = 12  # rows per optimizer step
  c.learner.max_micro_batches = 1
  c.learner.chunk_tokens = 2304
  c.learner.aggregation = "token_mean"
  c.optimizer.learning_rate = 3e-3
  c.optimizer.muon_learning_rate = 0.02
  c.optimizer.b2 = 0.98
  c.optimizer.warmup_steps = 100
  c.optimizer.decay_steps = 10_000
  c.optimizer.final_learning_rate = 1e-4
  c.optimizer.weight_decay = 0.01
  c.hosts.timeout_s = 3600.0  # the first builds the corpus for all
  c.train.steps = 10_000
  c.train.save_every = 1000

  c.corpus = ml_collections.ConfigDict()
  c.corpus.seed = 0
  c.corpus.count = 240_000  # conversations
  c.corpus.worked_share = 0.42  # solutions that reason step by step
  c.corpus.table_share = 0.7  # longer direct induction answers that are tables
  c.corpus.flaw_share = 0.25  # proposals with a mistake
  c.corpus.vague_share = 0.3  # induction messages that leave a step out
  c.corpus.num_inputs = 4  # cases of an induction task
  c.corpus.references = 2  # most references in a proposer's prompt
  c.corpus.tokenizer_samples = 6000  # conversations the tokenizer sees
  if variant == "smoke":
    c.corpus.count = 600
    c.corpus.tokenizer_samples = 600
    c.optimizer.warmup_steps = 1
    c.optimizer.decay_steps = 4
    c.train.steps = 4
    c.train.save_every = 2
  return c
