"""The open stream against requests that are sampled together."""

import itertools

import jax
import numpy as np
import pytest
from rollout_model import TEXTS, policy

from azr_jax.rollout.sequence import SequenceState
from azr_jax.rollout.stream import SampleKey
from azr_jax.rollout.weights import Weights

# Several copies of every text, so that there are more sequences than slots.
COUNT = 12
KEY = np.asarray(jax.random.key_data(jax.random.key(5)))


@pytest.fixture(name="sampling")
def make_sampling(params, one_device_mesh):
  """Returns a policy whose sequences may leave their slots."""
  return policy(params, one_device_mesh, max_staleness=1, max_tokens=20)


def submit(stream, sampling, index, **options):
  """Submits one prompt; returns its request and the futures of two samples."""
  prompt = sampling.prompt(TEXTS[index % len(TEXTS)])
  return stream.submit(prompt, 2, SampleKey(KEY, index), **options)


def finish(stream, between=lambda: None):
  while not stream.is_empty:
    if stream.send():
      stream.fetch()
    between()


def results(submitted):
  return [future.result() for _, futures in submitted for future in futures]


@pytest.fixture(name="wanted")
def make_wanted(sampling):
  """Returns the completions of all prompts, submitted together."""
  stream = sampling.sampler.open(Weights(sampling.params))
  submitted = [submit(stream, sampling, index) for index in range(COUNT)]
  finish(stream)
  return results(submitted)


def assert_equal(found, wanted):
  for one, other in zip(found, wanted, strict=True):
    np.testing.assert_array_equal(one.token_ids, other.token_ids)
    np.testing.assert_allclose(one.logprobs, other.logprobs, atol=1e-4)
    assert one.finish_reason == other.finish_reason


def test_when_a_prompt_is_submitted_changes_nothing(sampling, wanted):
  """At times there are few sequences, so slots are freed and made again."""
  stream = sampling.sampler.open(Weights(sampling.params))
  waiting = iter(range(1, COUNT))
  submitted = [submit(stream, sampling, 0)]

  def more():
    for index in itertools.islice(waiting, 3 if len(submitted) > 4 else 1):
      submitted.append(submit(stream, sampling, index))

  finish(stream, more)
  assert_equal(results(submitted), wanted)


def test_sequences_leave_their_slots_and_go_on(sampling, wanted):
  stream = sampling.sampler.open(Weights(sampling.params))
  submitted = [submit(stream, sampling, index) for index in range(COUNT)]
  suspended = 0
  while not stream.is_empty:
    if stream.send():
      stream.fetch()
    stream.suspend()
    suspended += len(stream.suspended)
    stream.weights.restore(sampling.params, version=0)
  assert suspended > COUNT
  assert_equal(results(submitted), wanted)


def test_tokens_know_the_parameters_that_they_were_sampled_with(sampling):
  stream = sampling.sampler.open(Weights(sampling.params))
  [future] = submit(stream, sampling, 1)[1][:1]
  for version in itertools.count(1):
    if stream.send():
      stream.fetch()
    stream.suspend()
    stream.weights.restore(sampling.params, version)
    if future.done():
      break
  versions = future.result().versions
  # Each decode call samples up to three tokens.
  wanted = np.repeat(np.arange(7), 3)[: len(versions)]
  np.testing.assert_array_equal(versions, wanted)


def test_a_killed_run_goes_on_from_its_tokens(sampling, wanted):
  stream = sampling.sampler.open(Weights(sampling.params))
  submitted = [submit(stream, sampling, index) for index in range(COUNT)]
  for _ in range(9):
    stream.send()
    stream.fetch()
  stream.suspend()
  known = [SequenceState(**vars(sequence)) for sequence in stream.suspended]
  ended = {
    (request.prompt_number, sample): future.result()
    for request, futures in submitted
    for sample, future in enumerate(futures)
    if future.done()
  }
  assert ended and any(sequence.num_tokens for sequence in known)
  again = sampling.sampler.open(Weights())
  again.restore(sequence for sequence in known if sequence.num_tokens)
  resubmitted = [
    (request, [None, None])
    if (request.prompt_number, 0) in ended
    and (request.prompt_number, 1) in ended
    else submit(again, sampling, request.prompt_number)
    for request, _ in submitted
  ]
  again.weights.restore(sampling.params, version=0)
  finish(again)
  found = [
    ended[request.prompt_number, sample] if future is None else future.result()
    for request, futures in resubmitted
    for sample, future in enumerate(futures)
  ]
  assert_equal(found, wanted)


def test_a_call_that_goes_on_does_not_ask_the_device_for_its_key(
  sampling, monkeypatch
):
  """The device would answer only once its decode call has ended."""
  prompt = sampling.prompt(TEXTS[0])
  first = [
    list(sampling.sample([prompt], 1, [number], call=3)) for number in (5, 6)
  ]
  other = sampling.branch(1)
  monkeypatch.setattr(jax.random, "fold_in", None)
  again = [
    list(sampling.sample([prompt], 1, [number], call=3)) for number in (5, 6)
  ]
  for before, after in zip(first, again, strict=True):
    np.testing.assert_array_equal(before[0][2].token_ids, after[0][2].token_ids)
  with pytest.raises(TypeError):
    other.sample([prompt], call=3)


def test_smaller_orders_get_their_slots_first(sampling):
  stream = sampling.sampler.open(Weights(sampling.params))
  ended = []
  for index in range(COUNT):
    _, futures = submit(
      stream, sampling, index, priority=(COUNT - index,), max_new_tokens=4
    )
    futures[0].add_done_callback(lambda _, i=index: ended.append(i))
  finish(stream)
  # Two samples each of two prompts have slots at a time.
  assert [{*ended[i : i + 2]} for i in range(0, COUNT, 2)] == [
    {i, i - 1} for i in range(COUNT - 1, 0, -2)
  ]


def test_what_was_cancelled_is_not_sampled(sampling, wanted):
  stream = sampling.sampler.open(Weights(sampling.params))
  submitted = [submit(stream, sampling, index) for index in range(COUNT)]
  stream.send()
  stream.fetch()
  stream.cancel(request for request, _ in submitted[::2])
  finish(stream)
  kept = submitted[1::2]
  assert_equal(
    results(kept),
    [wanted[2 * index + s] for index in range(1, COUNT, 2) for s in (0, 1)],
  )
  assert not any(f.done() for _, futures in submitted[4::2] for f in futures)


@pytest.mark.parametrize("calls", range(0, 12, 3))
def test_cancelled_requests_leave_no_pages_behind(sampling, wanted, calls):
  """They wait, are in prefill, decode or have just ended; two others remain."""
  stream = sampling.sampler.open(Weights(sampling.params))
  all_pages = stream.num_free_pages
  submitted = [submit(stream, sampling, index) for index in range(COUNT)]
  for _ in range(calls):
    stream.send()
    stream.fetch()
  kept = submitted[:2]
  stream.cancel(request for request, _ in submitted[2:])
  stream.send()
  held = sum(
    -(-sequence.max_cached // sampling.sampler.engine.shapes.page_size)
    for sequence in stream.decoding
  )
  assert {s.request for s in stream.decoding} <= {one for one, _ in kept}
  assert stream.num_free_pages >= all_pages - held - 2
  stream.fetch()
  finish(stream)
  assert stream.num_free_pages == all_pages
  assert_equal(results(kept), wanted[:4])


def test_stop_strings_of_a_request_end_its_responses_alone(sampling, wanted):
  stream = sampling.sampler.open(Weights(sampling.params))
  text = wanted[2].text
  stop = text[len(text) // 2 :][:2]
  submitted = [
    submit(stream, sampling, 1, stop_strings=("~", stop)),
    submit(stream, sampling, 2),
  ]
  finish(stream)
  found = results(submitted)
  count = text.index(stop) + len(stop)
  assert found[0].text == text[:count] and found[0].finish_reason == "stop"
  np.testing.assert_array_equal(found[0].token_ids, wanted[2].token_ids[:count])
  assert_equal(found[2:], wanted[4:6])
