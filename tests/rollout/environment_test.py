"""Conversations in the slots beside full forward passes, by scripted parts."""

import jax
import numpy as np
import pytest
from rollout_model import (
  TEXTS,
  ByteTokenizer,
  next_logits,
  policy,
)

from azr_jax.parallel import mesh as mesh_lib
from azr_jax.rollout.environment import split_replies
from azr_jax.rollout.token_sampling import SamplingParams

ANSWERS = ["!", "abc", "0123456789 0123456789", "xy" * 20]


class Scripted:
  """Answers each six tokens, a few times, so many calls later."""

  def __init__(self, delays=(0,), most=3):
    self.delays, self.most = delays, most
    self.pending = {}
    self.calls = self.asked = 0
    self.occupied = []

  def begin(self):
    self.pending.clear()

  def end_of_reply(self, ids, start, seen):
    return start + 6 if seen < start + 6 <= len(ids) else None

  def take(self, name, replies):
    if len(replies) > self.most:
      return "turns"
    delay = self.delays[self.asked % len(self.delays)]
    self.asked += 1
    text = ANSWERS[(name[0] + name[1] + len(replies)) % len(ANSWERS)]
    self.pending[name] = self.calls + delay, ByteTokenizer().encode(text)
    return None

  def answers(self, wait):
    self.calls += 1
    if wait:
      self.calls = max(self.calls, min(due for due, _ in self.pending.values()))
    ready = [n for n, (due, _) in self.pending.items() if due <= self.calls]
    return {name: self.pending.pop(name)[1] for name in ready}

  def observe(self, writing, waiting, slots):
    self.occupied.append((writing, waiting, slots))


def talked(one, turns, n=3):
  prompts = [one.prompt(text) for text in TEXTS]
  return {(i, s): c for i, s, c in one.sample(prompts, n, environment=turns)}


def long_policy(params, mesh, **changes):
  return policy(
    params, mesh, max_tokens=140, extend_chunk=8, cache_chunk=16, **changes
  )


def test_conversations_have_the_logprobs_of_one_forward_pass(
  params, one_device_mesh
):
  found = talked(long_policy(params, one_device_mesh), Scripted())
  assert len(found) == 12
  for (index, _), completion in found.items():
    prompt = ByteTokenizer().encode(TEXTS[index])
    ids = prompt + completion.token_ids.tolist()
    logps = jax.nn.log_softmax(next_logits(params, ids))
    places = np.arange(len(prompt) - 1, len(ids) - 1)
    want = np.asarray(logps)[places, completion.token_ids]
    own = completion.loss_mask
    np.testing.assert_allclose(completion.logprobs[own], want[own], atol=1e-4)
    assert not completion.logprobs[~own].any()


def test_a_stop_string_ends_a_reply_too(params, one_device_mesh):
  whole = talked(long_policy(params, one_device_mesh), Scripted())
  name, completion = next(iter(whole.items()))
  first = completion.token_ids[:6].tolist()
  stop = ByteTokenizer().decode(first[2:4])
  found = talked(
    long_policy(params, one_device_mesh, stop_strings=(stop,)), Scripted()
  )
  reply = split_replies(found[name].token_ids, found[name].loss_mask)[0]
  text = ByteTokenizer().decode(first)
  assert reply == first[: text.index(stop) + len(stop)]
  for one in found.values():
    for own in split_replies(one.token_ids, one.loss_mask):
      text = ByteTokenizer().decode(own)
      assert stop not in text[:-1] and len(own) <= 6


def test_the_mask_tells_the_models_tokens_from_the_answers(
  params, one_device_mesh
):
  answered = 0
  found = talked(long_policy(params, one_device_mesh), Scripted(delays=(2, 0)))
  for (index, sample), completion in found.items():
    place, replies = 0, 0
    ids, own = completion.token_ids.tolist(), completion.loss_mask
    while place < len(ids):
      reply = ids[place : place + 6]
      assert own[place : place + 6].all()
      place, replies = place + len(reply), replies + 1
      if place < len(ids):
        text = ANSWERS[(index + sample + replies) % len(ANSWERS)]
        answer = ByteTokenizer().encode(text)
        assert ids[place : place + len(answer)] == answer
        assert not own[place : place + len(answer)].any()
        place, answered = place + len(answer), answered + 1
    if completion.finish_reason == "turns":
      assert replies == 4
  assert answered > 20
  assert {c.finish_reason for c in found.values()} >= {"turns"}


@pytest.mark.parametrize(
  "changes, delays",
  [
    ({"slots": 1}, (0, 2)),
    ({"slots": 20}, (40,)),
    ({"extend_chunk": 3}, (5, 0, 1)),
    ({"extend_chunk": 64}, (1,)),
    ({"decode_chunk": 10, "prefill_tokens": 64}, (0, 0, 9)),
  ],
)
def test_they_depend_on_neither_slots_nor_when_answers_come(
  params, one_device_mesh, changes, delays
):
  want = talked(long_policy(params, one_device_mesh), Scripted())
  settings = {"extend_chunk": 8} | changes
  other = policy(
    params, one_device_mesh, max_tokens=140, cache_chunk=16, **settings
  )
  got = talked(other, Scripted(delays))
  assert got.keys() == want.keys()
  for name, completion in want.items():
    np.testing.assert_array_equal(completion.token_ids, got[name].token_ids)
    np.testing.assert_array_equal(completion.loss_mask, got[name].loss_mask)
    assert completion.finish_reason == got[name].finish_reason


def test_conversations_on_eight_devices_are_those_on_one(
  params, one_device_mesh
):
  one = talked(
    long_policy(params, one_device_mesh, temperature=0.0), Scripted((1, 3))
  )
  mesh = mesh_lib.make_mesh({"data": 2, "fsdp": 2, "tensor": 2})
  other = talked(
    long_policy(params, mesh, temperature=0.0, slots=8), Scripted((0, 2))
  )
  for name, completion in one.items():
    np.testing.assert_array_equal(completion.token_ids, other[name].token_ids)


def test_an_answer_without_room_to_go_on_ends_the_conversation(
  params, one_device_mesh
):
  short = policy(params, one_device_mesh, max_tokens=30, extend_chunk=8)
  found = talked(short, Scripted())
  reasons = {c.finish_reason for c in found.values()}
  assert "length" in reasons
  for completion in found.values():
    assert len(completion.token_ids) <= 30
    if completion.finish_reason == "length":
      assert completion.loss_mask[-1]


class Held(Scripted):
  """Keeps one conversation waiting until nothing else is left to do."""

  held = (0, 0)

  def answers(self, wait):
    free = [name for name in self.pending if name != self.held]
    if wait and not free:
      free = [self.held]
    return {name: self.pending.pop(name)[1] for name in free}


def test_a_waiting_slot_holds_up_no_other(params, one_device_mesh):
  one = long_policy(params, one_device_mesh, slots=3)
  prompts = [one.prompt(text) for text in TEXTS]
  ended = [(i, s) for i, s, _ in one.sample(prompts, 3, environment=Held())]
  assert len(ended) == 12 and ended[-1] == Held.held


def test_nothing_compiles_in_a_conversation_after_the_warm_up(
  params, one_device_mesh
):
  ready = long_policy(params, one_device_mesh, slots=20)
  ready.sampler.warm_up(ready.params)
  compiled = []
  jax.monitoring.register_event_duration_secs_listener(
    lambda name, *_, **__: compiled.append(name)
  )
  talked(ready, Scripted((1, 0)), n=10)
  assert not [name for name in compiled if "backend_compile" in name]


def test_a_request_that_is_given_up_leaves_nothing_behind(
  params, one_device_mesh
):
  one = long_policy(params, one_device_mesh)
  turns = Scripted((3,))
  want = talked(one, Scripted((3,)))
  one.calls = 0
  prompts = [one.prompt(text) for text in TEXTS]
  stream = one.sample(prompts, 3, environment=turns)
  next(stream)
  stream.close()
  one.calls = 0
  got = talked(one, turns)
  for name, completion in want.items():
    np.testing.assert_array_equal(completion.token_ids, got[name].token_ids)
