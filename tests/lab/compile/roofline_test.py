"""Tests the counts of the roofline against sums done by hand."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from typed import present

from azr_jax.configs import azr
from azr_jax.lab.bench import sampling, workload
from azr_jax.lab.compile import collectives, roofline
from azr_jax.models import quantization, transformer
from azr_jax.models.config import ModelConfig
from azr_jax.models.operations import (
  SamplingDtypes,
  cache_entry_bytes,
  forward_flops,
  training_flops,
  weight_bytes,
)
from azr_jax.models.presets import parameter_count
from azr_jax.parallel.chips import Chip
from azr_jax.trainer import settings

CONFIG = ModelConfig(
  vocab_size=64,
  hidden_size=32,
  num_layers=2,
  num_heads=4,
  num_kv_heads=2,
  head_size=8,
  mlp_size=48,
  rope_theta=1e4,
  norm_eps=1e-6,
  tie_embeddings=True,
  max_positions=64,
)
MATRICES = 2 * (32 * 32 * 2 + 32 * 16 * 2 + 3 * 32 * 48) + 64 * 32


def shared(config):
  return settings.read_train(config).shared


def test_forward_operations_are_those_of_the_matrices():
  flops = forward_flops(CONFIG, 1.0, 0.0)
  # The count includes the norms' parameters, a small part of the total.
  assert flops == pytest.approx(2 * MATRICES, rel=0.02)
  per_pair = forward_flops(CONFIG, 1, 1) - flops
  # Two products of 2 operations per element, in 2 layers of 4 heads of size 8.
  assert per_pair == 2 * 2 * 2 * 4 * 8


@pytest.mark.slow
def test_one_layer_costs_what_xla_counts():
  """One layer suffices, because XLA counts the body of a loop once."""
  one = dataclasses.replace(CONFIG, num_layers=1)
  model = transformer.Transformer(one)
  params = transformer.init_params(model, jax.random.key(0))
  tokens = jnp.zeros((2, 16), jnp.int32)

  def logits(params):
    hidden, _ = model.apply({"params": params}, tokens, tokens)
    return hidden @ transformer.unembedding(params, one)

  found = jax.jit(logits).lower(params).compile().cost_analysis()
  counted = present(found)["flops"]
  flops = forward_flops(one, 32.0, 16.0)
  # XLA also counts softmax and norms.
  assert counted == pytest.approx(flops, rel=0.25)


def test_an_estimate_by_hand():
  config = azr.get_config("tiny")
  config.rollout.slots = 4
  chip = Chip(hbm_bytes=1e9, bandwidth=1e9, flops=1e12, link_bandwidth=1e9)
  load = roofline.Load(8, 8, 4, prompt_tokens=10.0, new_tokens=6.0)
  got = roofline.estimate(
    shared(config), CONFIG, chip, 2, 2, "full", 2, load, {}
  )
  weights = 4 * parameter_count(CONFIG)  # float32
  cache = 4 * (4 * 2 * 2 * 2 * 8) * 13  # Slots x entry x mean live length.
  assert got.decode_s == pytest.approx(12 * (weights + cache) / 2e9)
  forward = forward_flops(CONFIG, 128.0, 8.0)
  assert got.update_s == pytest.approx(4 * forward / 2e12)
  assert got.update_mfu == pytest.approx(0.75)
  assert got.update_bound == "compute"
  moved = {"all-gather": collectives.Total(3, 0, 2e9, 1e9)}
  config.learner.row_length = 16
  config.rollout.prompt_buckets = (8,)
  config.rollout.max_tokens = 8
  slow = roofline.estimate(
    shared(config), CONFIG, chip, 2, 2, "full", 2, load, moved
  )
  assert slow.update_s == pytest.approx(4.0)  # 128 tokens in rows of 2 x 16.
  assert slow.update_bound == "links"
  assert got.critic_s == 0
  config.learner.estimator, config.learner.epochs = "gae", 2
  twice = roofline.estimate(
    shared(config), CONFIG, chip, 2, 2, "full", 2, load, {}
  )
  assert twice.update_s == 2 * got.update_s
  # Values are estimated once, and trained as often as the policy.
  assert twice.critic_s == pytest.approx(twice.update_s + forward / 2e12)


def test_ragged_lengths_have_the_declared_spread_and_mean():
  work = workload.SamplerWorkload(33, 2, 8, 256, 4, ragged=True, top_p=1.0)
  max_new_tokens = work.max_new_tokens()
  assert (
    max(max_new_tokens)
    == 256
    == workload.RAGGED_SPREAD * np.median(max_new_tokens)
  )
  assert work.tokens() == 2 * sum(max_new_tokens)
  lengths = workload.UpdateWorkload(8, 256, ragged=True).lengths()
  assert max(lengths) == 256
  assert np.mean(lengths) == pytest.approx(0.4 * 256, rel=0.01)


def test_quantized_weights_and_cache_have_fewer_bytes():
  """The head keeps its dtype; a cache entry has a scale per key head."""
  c = CONFIG
  half = SamplingDtypes("bfloat16", "bfloat16", "bfloat16")
  head = c.vocab_size * c.hidden_size
  kernels = parameter_count(c) - head
  assert weight_bytes(c, half) == 2 * (kernels + head)
  for dtype in quantization.DTYPES.values():
    eight = SamplingDtypes("bfloat16", dtype, dtype)
    assert weight_bytes(c, eight) == kernels + 2 * head
    entry = cache_entry_bytes(c, dtype)
    scales = 2 * 4 * c.num_layers * c.num_kv_heads
    assert entry - scales == cache_entry_bytes(c, "bfloat16") / 2


def test_minimum_bytes_and_flops_by_hand():
  work = workload.SamplerWorkload(2, 1, 3, 4, 2, ragged=False, top_p=1.0)
  entries = 2 * ((3 * 3) + (1 + 2 + 3))
  expected = 4 * (3 * parameter_count(CONFIG) + 2 * 2 * 2 * 8 * entries)
  dtypes = SamplingDtypes("float32", "float32", "float32")
  assert sampling.min_bytes_read(CONFIG, work, dtypes) == expected
  # Ten tokens attend to 1, 2, ... 10 tokens.
  flops = training_flops(CONFIG, [10])
  assert flops == pytest.approx(3 * forward_flops(CONFIG, 10, 5.5))
