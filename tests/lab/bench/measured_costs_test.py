"""Tests the measured seconds of single device calls."""

import jax
import pytest
from rollout_model import MODEL, policy

from azr_jax.lab.bench import measured_costs
from azr_jax.models import transformer


@pytest.mark.slow
def test_costs_of_every_device_call_are_measured(one_device_mesh):
  params = transformer.init_params(MODEL, jax.random.key(0))
  sampler = policy(params, one_device_mesh).sampler
  engine = sampler.engine
  costs = measured_costs.sampler_costs(
    engine, sampler.compute_params(params), repeats=1
  )
  assert list(costs.prefill_s) == list(engine.shapes.prefill_chunks)
  assert list(costs.decode) == list(engine.shapes.slot_counts)
  assert list(costs.compact_s) == list(engine.shapes.slot_counts[1:])
  assert costs.request_s > 0 and all(
    seconds > 0 for seconds, _ in costs.prefill_s.values()
  )
