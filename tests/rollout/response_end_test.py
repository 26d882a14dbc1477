"""Response ends that the host finds."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from letters import Letters

from azr_jax import types
from azr_jax.configs import evaluate
from azr_jax.rollout.response_end import ResponseEnds
from azr_jax.rollout.sequence import Request, SequenceState
from azr_jax.rollout.tokens import sampled
from azr_jax.trainer import settings

KEY_DATA = np.zeros(2, np.uint32)

PIECES = [b"", b"a", b"b", b">", b"b>", b">a", b"</", "é".encode(), b" "]
PIECES += [b"\xc3", b"\xa9", b"a\xc3", b"\xa9>", b" >", b"> "]
PIECES += [b"\n", b"b\n"]


class PieceTokenizer(Letters):
  """Tokens of several bytes, some of them parts of a character."""

  def decode(self, ids, skip_special=False):
    return b"".join(PIECES[i] for i in ids).decode("utf-8", "replace")

  def token_id(self, piece):
    one = piece.encode()
    return PIECES.index(one) if one in PIECES else None


def first_end(token_ids, stops):
  """Returns the fewest tokens whose text contains a stop string, or None."""
  decode = PieceTokenizer().decode
  counts = range(1, len(token_ids) + 1)
  texts = ((count, decode(token_ids[:count])) for count in counts)
  return next((n for n, text in texts if any(s in text for s in stops)), None)


@given(
  calls=st.lists(
    st.lists(st.integers(1, len(PIECES) - 1), min_size=1, max_size=6),
    max_size=6,
  ),
  stops=st.lists(
    st.sampled_from([">", "b>", "é", "aé", "a ", "</a>", "é>", "\n", "a\n"]),
    min_size=1,
    max_size=3,
    unique=True,
  ),
)
def test_a_response_ends_at_the_first_stop_string(calls, stops):
  """However tokens are split over calls and characters over tokens."""
  tokenizer = PieceTokenizer()
  ends = ResponseEnds(tokenizer, stops)
  request = Request(0, types.Prompt("", (1,)), 1, 99, KEY_DATA, 0)
  sequence, found = SequenceState(request, 0), None
  for new in calls:
    checked = sequence.num_tokens
    # A stop id pads the call, next to a slot without tokens.
    block = np.array([[*new, *[0] * (6 - len(new))], [1] * 6])
    may_end = ends.may_end(block, np.array([len(new), 0]))
    sequence.add(sampled(new, [0.0] * len(new), 0))
    found = ends.find(sequence, checked)
    assert not may_end[1]
    if found is not None:
      assert may_end[0]
      break
  assert found == first_end([i for new in calls for i in new], stops)


def test_few_responses_are_searched_for_stop_strings():
  tokenizer = Letters()
  ends = ResponseEnds(tokenizer, ("</a>",))
  rows = ["if a > b: c", "</ <- b > c", "a b c </a> ", "a> b c d ef", "b b </a"]
  block = np.array([[*map(ord, row.ljust(12))] for row in rows])
  found = ends.may_end(block, np.full(len(rows), 12))
  # The string may have started in the call before the fourth row's.
  assert found.tolist() == [False, False, True, True, False]
  assert not ends.may_end(block, np.full(len(rows), 1)).any()


def test_a_thought_that_quotes_an_answer_tag_is_not_cut():
  quote = "<think> It goes into <answer> and </answer>"
  text = f"{quote}. </think> <answer> 4 </answer>"
  # ORZ's published code stops there, and so does its training here.
  for variant, end in (("full", None), ("average16", len(quote))):
    config = evaluate.get_config(variant)
    rollout = settings.read(settings.EvaluateSettings, config).rollout
    request = Request(0, types.Prompt("", (1,)), 1, 99, KEY_DATA, 0)
    sequence = SequenceState(request, 0)
    sequence.add(sampled([*map(ord, text)], [0.0] * len(text), 0))
    ends = ResponseEnds(Letters(), rollout.stop_strings, rollout.stop_after)
    assert ends.find(sequence, 0) == end
