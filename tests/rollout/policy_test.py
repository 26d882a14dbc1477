"""Device memory that a policy leaves behind after its block."""

import contextlib
import gc
import weakref

import jax
import numpy as np
import pytest
import rollout_model
from rollout_model import TEXTS

from azr_jax.rollout import policy as policy_lib

SAMPLES = 3


@contextlib.contextmanager
def without_collector():
  """Disables garbage collection, so that only reference counts free objects."""
  gc.collect()
  gc.disable()
  try:
    yield
  finally:
    gc.enable()


def on_devices():
  """Returns the bytes of all arrays but random keys, which tests hold."""
  return sum(array.nbytes for array in jax.live_arrays() if array.nbytes > 8)


@pytest.fixture(name="opened")
def make_opened(params, one_device_mesh):
  """Opens a policy whose sampler has compiled all its programs.

  The prefix cache stays when no sequence is left.
  """
  ready = rollout_model.policy(params, one_device_mesh, prefix_cache=True)
  for _ in ready.sample([ready.prompt(TEXTS[0])], SAMPLES):
    pass

  def opened():
    return policy_lib.open_policy(
      ready.sampler, ready.tokenizer, params, ready.key
    )

  return opened


def ask(policy):
  """Runs a benchmark; returns weak references to what it held."""
  prompts = [policy.prompt(text) for text in TEXTS]
  answers = policy_lib.single_turn(
    policy, prompts, SAMPLES, range(len(prompts))
  )
  held = []
  for number, _ in enumerate(policy.loop.iterate(answers)):
    if not number:
      stream = policy.loop.stream(policy.sampler, policy.weights)
      held += [weakref.ref(stream._cache), weakref.ref(stream._scheduler)]
  assert number == len(TEXTS) * SAMPLES - 1
  return held


def test_an_evaluation_leaves_nothing_on_the_devices(opened):
  with without_collector():
    before = on_devices()
    with opened() as policy:
      weights = on_devices()
      for _ in range(2):
        with policy.with_key(policy.key, 0.0) as asked:
          held = ask(asked)
          assert on_devices() > weights
        assert [reference() for reference in held] == [None, None]
        assert on_devices() == weights
    assert weights > before == on_devices()


@pytest.mark.parametrize("is_whole", [True, False])
def test_sampling_leaves_nothing_on_the_devices(opened, is_whole):
  """Samples directly, as a notebook does, to the end or not."""
  with without_collector():
    before = on_devices()
    with opened() as policy:
      samples = iter(policy.sample([policy.prompt(TEXTS[1])], SAMPLES))
      taken = [*samples] if is_whole else [next(samples)]
      assert on_devices() > before
    assert len(taken) == (SAMPLES if is_whole else 1)
    assert on_devices() == before


def test_a_sequence_that_has_ended_is_in_no_circle(opened):
  """Dropping a stream frees everything, even without closing it."""
  with without_collector(), opened() as policy:
    stream = policy.sampler.open(policy.weights)
    key_data = np.asarray(jax.random.key_data(policy.key))
    key = policy_lib.SampleKey(key_data, 0)
    _, futures = stream.submit(policy.prompt(TEXTS[1]), SAMPLES, key)
    futures[0].add_done_callback(lambda _, s=stream: s.is_empty)
    while not stream.is_empty:
      if stream.send():
        stream.fetch()
    held = weakref.ref(stream)
    del stream, futures
    assert held() is None


@pytest.mark.parametrize("first, second", [(1, None), (None, 1)])
def test_numbered_and_counted_calls_would_share_keys(opened, first, second):
  with opened() as policy:
    prompts = [policy.prompt(TEXTS[0])]
    list(policy.sample(prompts, call=first))
    with pytest.raises(ValueError, match="in all `sample` calls of a policy"):
      policy.sample(prompts, call=second)
    assert len(list(policy.sample(prompts, call=first))) == 1
    # A branch has keys of its own.
    assert len(list(policy.branch(1).sample(prompts, call=second))) == 1
