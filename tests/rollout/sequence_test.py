"""The state of a sequence during sampling."""

import numpy as np
import pytest
from typed import present

from azr_jax import types
from azr_jax.rollout.page_pool import CachedTokens
from azr_jax.rollout.sequence import Request, SequenceState
from azr_jax.rollout.slots import ChangesBuilder
from azr_jax.rollout.tokens import sampled

KEY_DATA = np.zeros(2, np.uint32)


@pytest.mark.parametrize("output, num_uncached", [((), 0), ((7, 8), 2)])
def test_a_cut_response_is_followed_by_any_tool_output(output, num_uncached):
  """The last token remains the next call's input, so it is not cached."""
  prompt = types.Prompt("", (1, 2, 3))
  request = Request(0, prompt, 1, 16, KEY_DATA, 0)
  sequence = SequenceState(request, 0, cached=CachedTokens(0, [0], 3 + 5))
  sequence.add(sampled((4, 5, 6, 7, 8, 9), [0.0] * 6, 0))
  assert sequence.num_uncached == 0
  sequence.truncate(4)
  sequence.receive_tool_output(output, 0)
  assert sequence.num_uncached == num_uncached
  count = present(sequence.cached).count
  assert (
    sequence.next_tokens(num_uncached)
    == sequence.all_ids[count : count + num_uncached]
  )
  assert count + sequence.num_uncached == sequence.length - 1


@pytest.mark.parametrize(
  "count, ids", [(1, (5,)), (2, (4, 5)), (3, (3, 4, 5)), (9, (1, 2, 3, 4, 5))]
)
def test_the_last_tokens_of_prompt_and_response(count, ids):
  request = Request(0, types.Prompt("", (1, 2, 3)), 1, 16, KEY_DATA, 0)
  sequence = SequenceState(request, 0)
  assert sequence.last_ids(2) == (2, 3)
  sequence.add(sampled((4, 5), [0.0] * 2, 0))
  assert sequence.last_ids(count) == ids


def test_a_page_is_copied_until_the_copy_is_made_or_not_wanted():
  changes = ChangesBuilder(2, 4)
  sequences = []
  for device in range(2):
    request = Request(0, types.Prompt("", (1, 2, 3)), 2, 16, KEY_DATA, 0)
    one = SequenceState(request, 0, cached=CachedTokens(device, [5, 7], 2))
    changes.enter(device, one)
    changes.copy(one, page=6, to=7)
    sequences.append(one)
  changes.leave(1, sequences[1])
  assert changes.is_copied(0, [5, 6])
  assert not changes.is_copied(0, [5, 7]) and not changes.is_copied(1, [5, 6])
  changes.take(np.zeros((2, 4), np.int32))
  assert not changes.is_copied(0, [5, 6])
