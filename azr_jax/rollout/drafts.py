"""Drafts of the next tokens, and how many of them are accepted.

A draft copies the tokens that followed an earlier occurrence of the text's last
tokens, in the sequence itself, in its prompt, or in another sample of the
prompt. The decoder runs all drafts of a slot in one iteration. After each draft
it draws a token, with the same key as without drafts. A draw counts if all
drafts before it equal the draws before it. A sequence therefore gets the same
tokens as without drafts, up to rounding, and each draft is accepted with its
probability, as in speculative sampling (Leviathan et al., arXiv 2211.17192)
with drafts of probability 1.

Axis letters: B counts slots, T tokens of the context, S = J + 1.
"""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Int32, Key, Shaped

from azr_jax.rollout import token_sampling
from azr_jax.rollout.sequence import SequenceState

# Fills context without a token. It matches nothing and is never accepted.
NO_TOKEN = -1
# Matches of at least this length count as equally long.
_LONGEST_MATCH = 8


@jax.named_scope("drafts")
def propose(
  context: Int[Array, "B T"],
  end: Int[Array, ""] | Int[Array, " B"],
  drafts: int,
  min_match: int,
) -> Int[Array, "B J"]:
  """Proposes the next tokens of each slot.

  It copies the tokens after the longest earlier match of the last tokens, or
  after the latest of equally long matches. A copy that reaches the end of the
  text starts again after the match.

  Args:
    context: the tokens to search; NO_TOKEN where there is none.
    end: number of filled entries in each row; the last of them is the token
      to continue from.
    drafts: J.
    min_match: number of matching tokens that a draft requires.

  Returns:
    Token ids; NO_TOKEN where nothing matches or no token follows the match.
  """
  B, T = context.shape
  end = jnp.broadcast_to(end, B)[:, None]
  place = jnp.arange(T)[None, :]
  is_equal = jnp.ones((B, T), bool)
  match = jnp.zeros((B, T), jnp.int32)
  for back in range(_LONGEST_MATCH):
    token = jnp.take_along_axis(context, jnp.maximum(end - 1 - back, 0), 1)
    earlier = jnp.pad(
      context[:, : T - back], ((0, 0), (back, 0)), constant_values=NO_TOKEN
    )
    is_equal &= (earlier == token) & (token != NO_TOKEN)
    match += is_equal
  match = jnp.where(place < end - 1, match, 0)
  best = jnp.argmax(match * T + place * (match > 0), axis=1)[:, None]
  index = (
    best + 1 + jnp.arange(drafts)[None, :] % jnp.maximum(end - 1 - best, 1)
  )
  found = jnp.take_along_axis(context, jnp.minimum(index, T - 1), axis=1)
  matches = jnp.take_along_axis(match, best, axis=1) >= min_match
  return jnp.where(matches, found, NO_TOKEN)


def append(
  into: Shaped[Array, "B T"],
  end: Int[Array, " B"],
  new: Shaped[Array, "B S"],
  counts: Int[Array, " B"],
) -> Shaped[Array, "B T"]:
  """Returns the rows with the first `counts` of `new` written at `end`."""
  B, S = new.shape
  at = jnp.arange(S)[None, :]
  # Out-of-bounds indices are dropped.
  index = jnp.where(at < counts[:, None], end[:, None] + at, into.shape[1])
  return into.at[jnp.arange(B)[:, None], index].set(new, mode="drop")


def sample(
  logits: Float[Array, "B S V"],
  keys: Key[Array, " B"],
  num_tokens: Int[Array, " B"],
  temperature: Float[Array, " B"],
  truncation: token_sampling.Truncation,
) -> tuple[Int[Array, "B S"], Float[Array, "B S"]]:
  """Draws the token after each position of each slot, each with its own key.

  Args:
    logits: the logits after the last token and after each draft.
    keys: the slots' keys; each token folds in its index.
    num_tokens: the index of the first drawn token.
    temperature: the slots' temperatures.
    truncation: top-k and top-p of the token distribution.

  Returns:
    Token ids and their log-probabilities.
  """
  B, S, V = logits.shape
  index = num_tokens[:, None] + jnp.arange(S)[None, :]
  of_tokens = jax.vmap(jax.vmap(jax.random.fold_in, (None, 0)))(keys, index)
  tokens, logprobs = token_sampling.sample_tokens(
    logits.reshape(B * S, V),
    of_tokens.reshape(B * S),
    jnp.repeat(temperature, S),
    truncation,
  )
  return tokens.reshape(B, S), logprobs.reshape(B, S)


def num_accepted(
  tokens: Int[Array, "B S"],
  drafts: Int[Array, "B J"],
  is_stop: Bool[Array, "B S"],
  room: Int[Array, " B"],
) -> Int[Array, " B"]:
  """Returns the number of drawn tokens that count.

  Args:
    tokens: the tokens drawn after the last token and after each draft.
    drafts: the proposed tokens.
    is_stop: whether a token ends a response.
    room: maximum number of tokens that may count.
  """
  is_right = jnp.cumprod(tokens[:, :-1] == drafts, axis=1)
  goes_on = jnp.cumprod(~is_stop[:, :-1], axis=1)
  return jnp.minimum(1 + jnp.sum(is_right * goes_on, axis=1), room)


@dataclasses.dataclass(frozen=True)
class Drafting:
  """When decode calls draft, and from how much text.

  Attributes:
    context: T, the tokens of each slot that are searched for a match.
    max_slots: draft only while at most this many sequences share a copy of the
      weights.
    min_gain: tokens per slot and iteration; a call that yields fewer pauses
      drafting.
    pause_calls: number of decode calls in a pause.
    devices_per_copy: number of consecutive devices whose slots share a copy of
      the weights.
  """

  context: int
  max_slots: int
  min_gain: float
  pause_calls: int
  devices_per_copy: int = 1


class DraftPolicy:
  """Decides before each decode call whether drafting pays.

  It looks only at token counts and never at times, so that two runs with the
  same seed make the same calls.
  """

  def __init__(self, drafting: Drafting | None):
    """Starts with a trial call.

    Args:
      drafting: when to draft. None never drafts.
    """
    self._drafting = drafting
    self._pause = 0

  def begin_call(self, decoding: Int[np.ndarray, " devices"]) -> int:
    """Returns T, the tokens per slot that the next decode call drafts from.

    It is 0 if the call does not draft.

    Args:
      decoding: number of sequences in each device's slots.
    """
    drafting = self._drafting
    if drafting is None:
      return 0
    of_copies = decoding.reshape(-1, drafting.devices_per_copy).sum(1)
    if of_copies.max() > drafting.max_slots:
      return 0
    if self._pause:
      self._pause -= 1
      return 0
    return drafting.context

  def end_call(self, tokens: int, iterations: int) -> None:
    """Records the yield of a call with drafts.

    Args:
      tokens: number of tokens that the call yielded, summed over slots.
      iterations: number of iterations in which a slot got tokens, summed over
        slots.
    """
    assert self._drafting is not None
    if tokens < self._drafting.min_gain * iterations:
      self._pause = self._drafting.pause_calls


def contexts(
  sequences: Sequence[SequenceState | None], size: int
) -> Int32[np.ndarray, "B T"]:
  """Returns the tokens to draft from, for each slot.

  Args:
    sequences: the sequence in each slot.
    size: T, the tokens per slot.

  Returns:
    A row per slot, which ends with the sequence's last tokens. Before them come
    its siblings' last tokens, the longest sibling last. NO_TOKEN separates them
    and fills the rest.
  """
  found = np.full((len(sequences), size), NO_TOKEN, np.int32)
  for row, sequence in zip(found, sequences, strict=True):
    if sequence is not None:
      _fill(row, sequence)
  return found


def _fill(row: Int32[np.ndarray, " T"], sequence: SequenceState) -> None:
  """Writes a sequence's tokens and its siblings' into a row, from the end."""
  end = len(row)
  siblings = [
    s for s in sequence.siblings if s is not sequence and s.num_tokens
  ]
  siblings.sort(key=lambda s: (-s.num_tokens, s.sample_index))
  # The siblings share this sequence's prompt, so theirs is left out.
  own = sequence.last_ids(end)
  for ids in (own, *(s.token_ids for s in siblings)):
    part = ids[-end:]
    row[end - len(part) : end] = part
    end -= len(part) + 1
    if end <= 0:
      return
