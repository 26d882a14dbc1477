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
from jaxtyping import Array, Bool, Float32, Int, Int32, UInt32

from azr_jax.models import pages
from azr_jax.types import Leaf


class Slots(flax.struct.PyTreeNode):
  """The slots between two calls of `decode`, without their pages.

  Attributes:
    token: the last token of each slot.
    length: number of cached entries: the tokens before that one.
    num_tokens: tokens after the prompt so far, tool output included.
    max_new_tokens: the `num_tokens` at which a slot is done.
    done: slots that get no more tokens.
    temperature: divisor of the logits; 0 is greedy.
    key_data: the data of each slot's random key; a token folds in its index.
    adapter: which of several stacked adapters samples each slot.
  """

  token: Int32[Leaf, " B"]
  length: Int32[Leaf, " B"]
  num_tokens: Int32[Leaf, " B"]
  max_new_tokens: Int32[Leaf, " B"]
  done: Bool[Leaf, " B"]
  temperature: Float32[Leaf, " B"]
  key_data: UInt32[Leaf, "B U"]
  adapter: Int32[Leaf, " B"]


class Changes(flax.struct.PyTreeNode):
  """The host's changes before a call of `decode`.

  Attributes:
    enters: slots that get a new sequence. The next eight fields
      describe it.
    token: as in `Slots`.
    length: as in `Slots`.
    num_tokens: as in `Slots`.
    max_new_tokens: as in `Slots`.
    temperature: as in `Slots`.
    key_data: the data of a random key.
    numbers: prompt number and sample index, folded into this key.
    adapter: as in `Slots`.
    stops: slots to mark as done, because the host found the end of their
      response or removed their sequence.
    table: the pages of each slot, including pages for new tokens.
    copy_sources: pages to copy: the first `num_copies` entries of each device's
      part.
    copy_targets: the pages to copy them to.
    num_copies: number of copies in each part.
    context: the tokens to draft from, right-aligned; None turns drafts off for
      this call.
  """

  enters: Bool[Leaf, " B"]
  token: Int32[Leaf, " B"]
  length: Int32[Leaf, " B"]
  num_tokens: Int32[Leaf, " B"]
  max_new_tokens: Int32[Leaf, " B"]
  temperature: Float32[Leaf, " B"]
  key_data: UInt32[Leaf, "B U"]
  numbers: Int32[Leaf, "B 2"]
  adapter: Int32[Leaf, " B"]
  stops: Bool[Leaf, " B"]
  table: Int32[Leaf, "B M"]
  copy_sources: Int32[Leaf, " B"]
  copy_targets: Int32[Leaf, " B"]
  num_copies: Int32[Leaf, " devices"]
  context: Int32[Leaf, "B T"] | None = None


class DecodeOutput(flax.struct.PyTreeNode):
  """The tokens that one call of `decode` generated.

  Attributes:
    tokens: the new tokens; entries past `num_generated` are padding.
    logprobs: the log-probability of each of these tokens.
    num_generated: number of new tokens of each slot.
    done: as in `Slots` after the call.
    iterations: iterations in which the slot got tokens.
  """

  tokens: Int32[Leaf, "B N"]
  logprobs: Float32[Leaf, "B N"]
  num_generated: Int32[Leaf, " B"]
  done: Bool[Leaf, " B"]
  iterations: Int32[Leaf, " B"]


class Carry(NamedTuple):
  """The values that one iteration of the decode loop passes to the next.

  Attributes:
    step: iterations so far.
    slots: the slots, with their cache lengths before the call.
    output: the tokens generated so far in this call. `done` is set at its end.
    recent: keys and values of the tokens run so far.
    context: the tokens to draft from, including those of this call; None
      without drafts.
  """

  step: Int32[Array, ""]
  slots: Slots
  output: DecodeOutput
  recent: pages.Entries
  context: Int32[Array, "B T+N"] | None = None


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
    adapter=zero,
  )


def compact(slots: Slots, kept: Int[Array, " kept"]) -> Slots:
  """Returns the slots at the indices `kept`, in this order.

  With several devices, it runs on each of them. `kept` counts from the first
  slot of the device, so no slot moves to another device.
  """
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
