"""Tokens that are cut from the outputs of decode calls."""

import gc
import weakref

import numpy as np
import pytest
from typed import present

from azr_jax import types
from azr_jax.rollout.sequence import Request, SequenceState
from azr_jax.rollout.tokens import (
  DecodedCall,
  SlotTokens,
  no_call,
  sampled,
  tool_output,
)

COUNTS = np.array([[3, 2], [3, 0], [1, 3], [2, 2]], np.int32)


def new_sequence():
  request = Request(
    0, types.Prompt("", (1, 2)), 1, 99, np.zeros(2, np.uint32), 0
  )
  return SequenceState(request, 0)


def decoded(number):
  """Returns call `number` of two slots; slot s gets 100 s + 10 number + i."""
  ids = np.arange(3)[None] + 100 * np.arange(2)[:, None] + 10 * number
  ids = ids.astype(np.int32)
  logprobs = (-ids / 8).astype(np.float32)
  return DecodedCall(ids, logprobs, COUNTS[number], number)


@pytest.mark.parametrize("read_after", [(), (0,), (0, 1, 2), (2,)])
def test_a_sequence_has_the_tokens_of_its_calls(read_after):
  """It enters after call 0 and leaves after call 2."""
  sequence = new_sequence()
  sequence.add(tool_output((7,), 0))
  calls = [no_call()]
  for number in range(4):
    calls[-1].following = decoded(number)
    calls.append(calls[-1].following)
    if number == 0:
      sequence.read_from(SlotTokens(1, calls[-1]))
    if number == 2:
      present(sequence.unread).end(calls[-1], 0 + 3)
    if number in read_after:
      assert len(sequence.tokens.ids) == sequence.num_tokens
    assert sequence.num_tokens == (1 if number < 2 else 4)
    assert sequence.num_written == sequence.num_tokens - 1
  ids, logprobs, loss_mask, versions = sequence.tokens
  assert ids.tolist() == [7, 120, 121, 122]
  assert logprobs.tolist() == [0, -15, -15.125, -15.25]
  assert loss_mask.tolist() == [False, True, True, True]
  assert versions.tolist() == [0, 2, 2, 2]
  assert (ids.dtype, versions.dtype) == (np.int32, np.int32)
  assert (logprobs.dtype, loss_mask.dtype) == (np.float32, bool)


def test_another_slot_continues_the_tokens_of_the_first():
  sequence, first = new_sequence(), no_call()
  sequence.read_from(SlotTokens(0, first))
  first.following = decoded(0)
  present(sequence.unread).end(first.following, 3)
  sequence.read_from(SlotTokens(1, first.following))
  first.following.following = decoded(2)
  assert sequence.num_tokens == 6
  assert sequence.token_ids.tolist() == [0, 1, 2, 120, 121, 122]


def test_calls_are_freed_once_nobody_needs_them():
  early, late, first = new_sequence(), new_sequence(), no_call()
  early.read_from(SlotTokens(0, first))
  first.following = decoded(0)
  late.read_from(SlotTokens(1, first.following))
  first.following.following = last = decoded(2)
  freed = weakref.ref(first)
  del first
  gc.collect()
  assert freed() is not None
  present(early.unread).end(last, 4)
  assert early.token_ids.tolist() == [0, 1, 2, 20]
  assert freed() is None
  assert late.token_ids.tolist() == [120, 121, 122]


def test_a_cut_completion_keeps_its_first_tokens():
  sequence, first = new_sequence(), no_call()
  sequence.add(sampled((5, 6), (0.0, -1.0), 3))
  sequence.read_from(SlotTokens(0, first))
  first.following = decoded(0)
  present(sequence.unread).end(first.following, 3)
  sequence.truncate(3)
  assert sequence.token_ids.tolist() == [5, 6, 0]
  assert sequence.num_tokens == sequence.num_written == 3
