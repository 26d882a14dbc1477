"""Conversations in slots, against full forward passes."""

from collections.abc import Generator

import jax
import numpy as np
import pytest
from rollout_model import (
  TEXTS,
  ByteTokenizer,
  new_sampler,
  next_logprobs,
  policy,
)
from typed import instance_of

from azr_jax.parallel import mesh as mesh_lib
from azr_jax.rollout.preemption import PageAllocator
from azr_jax.rollout.tool_runner import split_responses

TOOL_OUTPUTS = ["!", "abc", "0123456789 0123456789", "xy" * 20]


class ScriptedToolRunner:
  """Ends each response after six tokens; the first three call a tool.

  Attributes:
    delays: `tool_outputs` calls until an output arrives, cycling by tool call.
    pending: the time each conversation's output is due, and its token ids.
    polls: the clock, in calls of `tool_outputs`.
    num_tool_calls: number of tool calls.
  """

  max_tool_calls = 3

  def __init__(self, delays=(0,)):
    self.delays = delays
    self.pending = {}
    self.polls = self.num_tool_calls = 0

  end_marks = None

  def forget(self, sequence_id):
    self.pending.pop(sequence_id, None)

  def end_of_response(
    self, sequence_id, prompt, token_ids, response_start, num_checked
  ):
    end = response_start + 6
    return end if num_checked < end <= len(token_ids) else None

  def step(self, sequence_id, prompt, responses):
    if len(responses) > self.max_tool_calls:
      return "turns"
    delay = self.delays[self.num_tool_calls % len(self.delays)]
    self.num_tool_calls += 1
    text = tool_output(*sequence_id, num_responses=len(responses))
    self.pending[sequence_id] = (
      self.polls + delay,
      ByteTokenizer().encode(text),
    )
    return None

  def tool_outputs(self, wait):
    self.polls += 1
    if wait:
      self.polls = max(self.polls, min(due for due, _ in self.pending.values()))
    ready = [i for i, (due, _) in self.pending.items() if due <= self.polls]
    return {
      sequence_id: self.pending.pop(sequence_id)[1] for sequence_id in ready
    }

  def record_occupancy(self, decoding, awaiting, slots):
    assert 0 < decoding <= slots and awaiting >= 0


def tool_output(prompt_index, sample_index, num_responses):
  """Returns the scripted tool output for one turn of a conversation."""
  index = prompt_index + sample_index + num_responses
  return TOOL_OUTPUTS[index % len(TOOL_OUTPUTS)]


def converse(policy, tool_runner, n=3, limit=None):
  """Returns n conversations per text, by prompt and sample index."""
  prompts = [policy.prompt(text) for text in TEXTS]
  limits = limit and [limit] * len(prompts)
  stream = policy.sample(
    prompts, n, tool_runner=tool_runner, max_new_tokens=limits
  )
  return {(i, s): completion for i, s, completion in stream}


def long_policy(params, mesh, **changes):
  return policy(
    params,
    mesh,
    **({"max_tokens": 140, "extend_chunk": 8, "page_size": 160} | changes),
  )


def test_conversations_have_the_logprobs_of_one_forward_pass(
  params, one_device_mesh
):
  conversations = converse(
    long_policy(params, one_device_mesh), ScriptedToolRunner()
  )
  assert len(conversations) == 12
  for (index, _), completion in conversations.items():
    prompt = ByteTokenizer().encode(TEXTS[index])
    ids = prompt + completion.token_ids.tolist()
    logps = next_logprobs(params, ids)
    positions = np.arange(len(prompt) - 1, len(ids) - 1)
    expected = logps[positions, completion.token_ids]
    mask = completion.loss_mask
    np.testing.assert_allclose(
      completion.logprobs[mask], expected[mask], atol=1e-4
    )
    assert not completion.logprobs[~mask].any()


def test_a_stop_string_also_ends_a_response(params, one_device_mesh):
  without = converse(long_policy(params, one_device_mesh), ScriptedToolRunner())
  sequence_id, completion = next(iter(without.items()))
  first = completion.token_ids[:6].tolist()
  stop = ByteTokenizer().decode(first[2:4])
  stopped = converse(
    long_policy(params, one_device_mesh, stop_strings=(stop,)),
    ScriptedToolRunner(),
  )
  completion = stopped[sequence_id]
  response = split_responses(completion.token_ids, completion.loss_mask)[0]
  text = ByteTokenizer().decode(first)
  assert response == first[: text.index(stop) + len(stop)]
  for completion in stopped.values():
    for ids in split_responses(completion.token_ids, completion.loss_mask):
      text = ByteTokenizer().decode(ids)
      assert stop not in text[:-1] and len(ids) <= 6


@pytest.mark.parametrize("marks", ["", "aeiou"])
def test_only_a_mark_makes_the_host_look_for_an_end(
  params, one_device_mesh, marks
):
  class Marked(ScriptedToolRunner):
    """Ends a response at its first mark."""

    end_marks = marks
    calls = 0

    def end_of_response(
      self, sequence_id, prompt, token_ids, response_start, num_checked
    ):
      self.calls += 1
      found = np.flatnonzero(np.isin(token_ids[num_checked:], ids))
      assert len(found)
      return num_checked + int(found[0]) + 1

  ids = ByteTokenizer().encode(marks)
  runner = Marked()
  policy = long_policy(params, one_device_mesh, max_tokens=60)
  conversations = converse(policy, runner)
  ended = 0
  for completion in conversations.values():
    split = split_responses(completion.token_ids, completion.loss_mask)
    ended += sum(response[-1] in ids for response in split)
    assert not any(set(response[:-1]) & set(ids) for response in split)
  assert (runner.calls >= ended > 0) if marks else not runner.calls


def test_the_loss_mask_tells_responses_from_tool_outputs(
  params, one_device_mesh
):
  num_outputs = 0
  conversations = converse(
    long_policy(params, one_device_mesh), ScriptedToolRunner(delays=(2, 0))
  )
  for sequence_id, completion in conversations.items():
    start, num_responses = 0, 0
    ids, mask = completion.token_ids.tolist(), completion.loss_mask
    while start < len(ids):
      response = ids[start : start + 6]
      assert mask[start : start + 6].all()
      start, num_responses = start + len(response), num_responses + 1
      if start < len(ids):
        text = tool_output(*sequence_id, num_responses)
        output = ByteTokenizer().encode(text)
        assert ids[start : start + len(output)] == output
        assert not mask[start : start + len(output)].any()
        start, num_outputs = start + len(output), num_outputs + 1
    if completion.finish_reason == "turns":
      assert num_responses == 4
  assert num_outputs > 20
  assert "turns" in {c.finish_reason for c in conversations.values()}


@pytest.mark.parametrize(
  "changes, delays",
  [
    pytest.param({"slots": 1}, (0, 2), marks=pytest.mark.slow),
    ({"slots": 20, "page_size": 32}, (40,)),
    pytest.param({"extend_chunk": 3}, (5, 0, 1), marks=pytest.mark.slow),
    pytest.param({"extend_chunk": 64}, (1,), marks=pytest.mark.slow),
    pytest.param(
      {"decode_chunk": 10, "prefill_tokens": 64},
      (0, 0, 9),
      marks=pytest.mark.slow,
    ),
  ],
)
def test_they_depend_on_neither_slots_nor_when_tool_outputs_come(
  params, one_device_mesh, changes, delays
):
  expected = converse(
    long_policy(params, one_device_mesh), ScriptedToolRunner()
  )
  other = long_policy(params, one_device_mesh, **changes)
  actual = converse(other, ScriptedToolRunner(delays))
  assert actual.keys() == expected.keys()
  for sequence_id, want in expected.items():
    got = actual[sequence_id]
    np.testing.assert_array_equal(got.token_ids, want.token_ids)
    np.testing.assert_array_equal(got.loss_mask, want.loss_mask)
    assert got.finish_reason == want.finish_reason


@pytest.mark.slow
def test_conversations_on_eight_devices_are_those_on_one(
  params, one_device_mesh
):
  on_one = converse(
    long_policy(params, one_device_mesh, temperature=0.0),
    ScriptedToolRunner((1, 3)),
  )
  mesh = mesh_lib.make_mesh({"data": 2, "fsdp": 2, "tensor": 2})
  on_eight = converse(
    long_policy(params, mesh, temperature=0.0, slots=8),
    ScriptedToolRunner((0, 2)),
  )
  for sequence_id, want in on_one.items():
    np.testing.assert_array_equal(
      on_eight[sequence_id].token_ids, want.token_ids
    )


class ForgetfulToolRunner(ScriptedToolRunner):
  """Records which conversations it is told to forget."""

  def __init__(self):
    super().__init__()
    self.forgotten = []

  def forget(self, sequence_id):
    super().forget(sequence_id)
    self.forgotten.append(sequence_id)


def test_a_tool_output_that_leaves_no_room_ends_the_conversation(
  params, one_device_mesh
):
  short = policy(
    params, one_device_mesh, max_tokens=30, extend_chunk=8, page_size=48
  )
  short.sampler.meter.take()
  tool_runner = ForgetfulToolRunner()
  conversations = converse(short, tool_runner)
  reasons = {c.finish_reason for c in conversations.values()}
  assert "length" in reasons
  assert sorted(tool_runner.forgotten) == sorted(conversations)
  written = sum(int(c.loss_mask.sum()) for c in conversations.values())
  assert short.sampler.meter.take().counts.tokens == written
  for completion in conversations.values():
    assert len(completion.token_ids) <= 30
    if completion.finish_reason == "length":
      assert completion.loss_mask[-1]


class SlowToolRunner(ScriptedToolRunner):
  """Keeps one conversation waiting until all others have ended."""

  slow_id = (0, 0)

  def tool_outputs(self, wait):
    ready = [i for i in self.pending if i != self.slow_id]
    if wait and not ready:
      ready = [self.slow_id]
    return {
      sequence_id: self.pending.pop(sequence_id)[1] for sequence_id in ready
    }


def test_a_waiting_slot_delays_no_other(params, one_device_mesh):
  three_slots = long_policy(params, one_device_mesh, slots=3)
  prompts = [three_slots.prompt(text) for text in TEXTS]
  stream = three_slots.sample(prompts, 3, tool_runner=SlowToolRunner())
  ended = [(index, sample) for index, sample, _ in stream]
  assert len(ended) == 12 and ended[-1] == SlowToolRunner.slow_id


@pytest.mark.parametrize(
  "limit, num_pages",
  [
    pytest.param(140, 6, marks=pytest.mark.slow),
    pytest.param(140, 9, marks=pytest.mark.slow),
    pytest.param(140, 20, marks=pytest.mark.slow),
    pytest.param(45, 6, marks=pytest.mark.slow),
    pytest.param(45, 9, marks=pytest.mark.slow),
  ],
)
def test_conversations_without_pages_read_their_tokens_again(
  params, one_device_mesh, monkeypatch, limit, num_pages
):
  """Six pages hold one of the longest sequences and its prompt."""
  enough = long_policy(params, one_device_mesh, slots=20, page_size=32)
  wanted = converse(enough, ScriptedToolRunner(), limit=limit)
  dropped, drop = [], PageAllocator.drop

  def counted(allocator, sequence):
    if sequence.finish_reason is None:
      dropped.append(sequence.id)
    drop(allocator, sequence)

  monkeypatch.setattr(PageAllocator, "drop", counted)
  page_bytes = 2 * 2 * 1 * 32 * 16 * 4  # Keys and values, L, K, C, E, float32.
  few = long_policy(
    params,
    one_device_mesh,
    page_size=32,
    cache_gib=(num_pages + 0.5) * page_bytes / 2**30,
  )
  assert few.sampler.engine.num_pages == num_pages
  found = converse(few, ScriptedToolRunner((7, 40)), limit=limit)
  assert len(dropped) >= 3
  assert found.keys() == wanted.keys()
  for name, want in wanted.items():
    got = found[name]
    np.testing.assert_array_equal(got.token_ids, want.token_ids)
    np.testing.assert_array_equal(got.loss_mask, want.loss_mask)
    np.testing.assert_allclose(got.logprobs, want.logprobs, atol=1e-4)
    assert got.finish_reason == want.finish_reason


def test_a_cache_without_room_for_the_longest_sequence_is_refused(
  params, one_device_mesh
):
  with pytest.raises(ValueError, match="rollout.cache_gib=1e-09: expected"):
    long_policy(params, one_device_mesh, cache_gib=1e-9)


@pytest.mark.slow  # `sampler_test.py` has the same test without tools.
def test_nothing_compiles_in_a_conversation_after_the_warm_up(
  params, one_device_mesh
):
  ready = long_policy(
    params,
    one_device_mesh,
    make_sampler=new_sampler,
    slots=20,
    page_size=64,
  )
  ready.sampler.warm_up(ready.params)
  compiled = []
  jax.monitoring.register_event_duration_secs_listener(
    lambda name, *_, **__: compiled.append(name)
  )
  converse(ready, ScriptedToolRunner((1, 0)), n=10)
  assert not [name for name in compiled if "backend_compile" in name]


def test_a_cancelled_request_leaves_nothing_behind(params, one_device_mesh):
  first = long_policy(params, one_device_mesh)
  tool_runner = ScriptedToolRunner((3,))
  expected = converse(first, ScriptedToolRunner((3,)))
  prompts = [first.prompt(text) for text in TEXTS]
  with first.with_key(first.key) as cancelled:
    samples = cancelled.sample(prompts, 3, tool_runner=tool_runner)
    stream = instance_of(Generator, iter(samples))
    next(stream)
    stream.close()
  with first.with_key(first.key) as again:
    actual = converse(again, tool_runner)
  for sequence_id, want in expected.items():
    np.testing.assert_array_equal(actual[sequence_id].token_ids, want.token_ids)
