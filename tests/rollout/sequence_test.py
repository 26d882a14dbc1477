"""The state of a sequence that is sampled."""

import numpy as np
import pytest

from azr_jax import types
from azr_jax.rollout.page_pool import CachedTokens
from azr_jax.rollout.sequence import Request, SequenceState


@pytest.mark.parametrize("output, num_uncached", [((), 0), ((7, 8), 2)])
def test_a_cut_response_is_followed_by_any_tool_output(output, num_uncached):
  """The last token stays the next call's input, so it has no cached entry."""
  prompt = types.Prompt("", (1, 2, 3))
  request = Request(0, prompt, 1, 16, np.zeros(2, np.uint32), 0)
  sequence = SequenceState(request, 0, cached=CachedTokens(0, [0], 3 + 5))
  sequence.add_tokens((4, 5, 6, 7, 8, 9), [0.0] * 6, 0)
  assert sequence.num_uncached == 0
  sequence.truncate(4)
  sequence.receive_tool_output(output, 0)
  assert sequence.num_uncached == num_uncached
  assert (
    sequence.next_tokens(num_uncached)
    == sequence.all_ids[
      sequence.cached.count : sequence.cached.count + num_uncached
    ]
  )
  assert sequence.cached.count + sequence.num_uncached == sequence.length - 1
