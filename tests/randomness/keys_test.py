"""Random keys of the device."""

from typing import Any

import jax
import numpy as np

from azr_jax.randomness import keys
from azr_jax.randomness.purposes import Purpose
from azr_jax.rollout.policy import Policy

OF_POLICIES = (Purpose.BRANCH, Purpose.PASS_RATES, Purpose.BENCHMARK)
CALLS = (0, 1, 2, 3, 1 << 24, (1 << 31) - 1)


def data(key):
  return np.asarray(jax.random.key_data(key)).tobytes()


def test_no_two_purposes_share_a_key():
  found = [
    data(keys.of(seed, purpose, number))
    for seed in (0, 1)
    for purpose in Purpose
    for number in (0, 1, int(Purpose.EVALUATION))
  ]
  without = [data(keys.of(seed, p)) for seed in (0, 1) for p in Purpose]
  bare = [data(jax.random.key(seed)) for seed in (0, 1)]
  every = [*found, *without, *bare]
  assert len({*every}) == len(every)


def test_purposes_of_a_policys_key_keep_off_its_calls():
  unused: Any = None
  policy = Policy(unused, unused, unused, keys.of(0, Purpose.SAMPLING, 1))
  every = [policy.call_key_data(call).tobytes() for call in CALLS]
  for purpose in OF_POLICIES:
    every.append(data(keys.fold(policy.key, purpose)))
    every += [data(keys.fold(policy.key, purpose, call)) for call in CALLS]
  assert len({*every}) == len(every)
  assert data(policy.branch(3, 1).key) in {
    data(keys.fold(policy.key, Purpose.BRANCH, 3, 1))
  }
  # Every number of a call is below the purposes of a policy's key.
  assert {p for p in Purpose if p > max(CALLS)} == {*OF_POLICIES}


def test_a_key_of_a_traced_step_is_that_of_its_number():
  made = jax.jit(lambda step: keys.of(7, Purpose.SELECTION, step))
  for step in (0, 5):
    assert data(made(step)) == data(keys.of(7, Purpose.SELECTION, step))
