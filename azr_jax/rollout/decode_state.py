"""The device state between and within calls of the decode loop.

A slot holds one sequence. Its last token, from the prompt or sampled, is not
cached yet: an iteration runs the decoder on it to get the distribution of the
next token. A sequence therefore starts from its last token and from pages with
all earlier ones, and only tokens pass between calls. A slot that is done is
still computed, with cache length 0, until a sequence enters it.

Axis letters are as in `types.py`; B counts slots, N the new tokens of one
call.
"""

from typing import NamedTuple

import flax.struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from azr_jax.models import pages
from azr_jax.types import Leaf


class Slots(flax.struct.PyTreeNode):
  """The slots between two calls of `decode`, without their pages.

  Attributes:
    token: int32 [B], the last token of each slot.
    length: int32 [B], number of cached entries: the tokens before that one.
    num_tokens: int32 [B], tokens after the prompt so far, tool output included.
    max_new_tokens: int32 [B], the `num_tokens` at which a slot is done.
    done: bool [B], slots that get no more tokens.
    temperature: float32 [B], divisor of the logits; 0 is greedy.
    key_data: uint32 [B, U], the data of each slot's random key; a token folds
      in its index.
  """

  token: Leaf
  length: Leaf
  num_tokens: Leaf
  max_new_tokens: Leaf
  done: Leaf
  temperature: Leaf
  key_data: Leaf


class Changes(flax.struct.PyTreeNode):
  """The host's changes before a call of `decode`.

  Attributes:
    enters: bool [B], slots that get a new sequence. The next seven fields
      describe it.
    token: int32 [B], as in `Slots`.
    length: int32 [B], as in `Slots`.
    num_tokens: int32 [B], as in `Slots`.
    max_new_tokens: int32 [B], as in `Slots`.
    temperature: float32 [B], as in `Slots`.
    key_data: uint32 [B, U], the data of a random key.
    seeds: int32 [B, 2], prompt seed and sample index, folded into this key.
    stops: bool [B], slots to mark as done, because the host found the end of
      their response or removed their sequence.
    table: int32 [B, M], the pages of each slot, including pages for new tokens.
    copy_sources: int32 [B], pages to copy: the first `num_copies` entries of
      each device's part.
    copy_targets: int32 [B], the pages to copy them to.
    num_copies: int32 [devices], number of copies in each part.
    context: int32 [B, T], the tokens to draft from, right-aligned; None turns
      drafts off for this call.
  """

  enters: Leaf
  token: Leaf
  length: Leaf
  num_tokens: Leaf
  max_new_tokens: Leaf
  temperature: Leaf
  key_data: Leaf
  seeds: Leaf
  stops: Leaf
  table: Leaf
  copy_sources: Leaf
  copy_targets: Leaf
  num_copies: Leaf
  context: Leaf | None = None


class DecodeOutput(flax.struct.PyTreeNode):
  """The tokens that one call of `decode` generated.

  Attributes:
    tokens: int32 [B, N]; entries past `num_generated` are padding.
    logprobs: float32 [B, N], the log-probability of each of these tokens.
    num_generated: int32 [B].
    done: bool [B], as in `Slots` after the call.
    iterations: int32 [B], iterations in which the slot got tokens.
  """

  tokens: Leaf
  logprobs: Leaf
  num_generated: Leaf
  done: Leaf
  iterations: Leaf


class Carry(NamedTuple):
  """The values that one iteration of the decode loop passes to the next.

  Attributes:
    step: int32 [], iterations so far.
    slots: the slots, with their cache lengths before the call.
    output: the tokens generated so far in this call.
    recent: keys and values of the tokens run so far.
    context: int32 [B, T + N], the tokens to draft from, including those of this
      call; None without drafts.
  """

  step: jax.Array
  slots: Slots
  output: DecodeOutput
  recent: pages.Entries
  context: jax.Array | None = None


def init_slots(slots: int) -> Slots:
  """Returns slots without sequences; all are done."""
  zero = jnp.zeros(slots, jnp.int32)
  return Slots(
    token=zero,
    length=zero,
    num_tokens=zero,
    max_new_tokens=zero,
    done=jnp.ones(slots, bool),
    temperature=jnp.ones(slots, jnp.float32),
    key_data=jax.random.key_data(jax.random.split(jax.random.key(0), slots)),
  )


def compact(slots: Slots, kept: Int[Array, " kept"]) -> Slots:
  """Returns the slots at the indices `kept`, in this order."""
  return jax.tree.map(lambda x: x[kept], slots)


def no_output(slots: Slots, steps: int) -> DecodeOutput:
  """Returns the empty output of a call."""
  B = slots.done.shape[0]
  return DecodeOutput(
    tokens=jnp.zeros((B, steps), jnp.int32),
    logprobs=jnp.zeros((B, steps), jnp.float32),
    num_generated=jnp.zeros(B, jnp.int32),
    done=slots.done,
    iterations=jnp.zeros(B, jnp.int32),
  )
