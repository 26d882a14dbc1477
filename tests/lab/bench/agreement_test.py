"""Tests that the sampler-learner gap is measured as it arises in training."""

from azr_jax.configs import azr
from azr_jax.lab.bench import agreement
from azr_jax.trainer import settings


def test_sampler_and_learner_agree_in_float32():
  config = azr.get_config("tiny")
  config.rollout.slots = 4
  config.rollout.prompt_buckets = (64,)
  config.learner.row_length = 176
  config.learner.micro_rows = config.learner.max_micro_batches = 1
  found = agreement.measure(settings.read_train(config), 4, new_tokens=8)
  assert found["tokens"] == 4 * 8
  assert 0 <= found["p50"] <= found["p99"] <= found["max"] < 1e-3
  assert found["mean"] <= found["max"]
