"""The scheduler: the host side of continuous batching.

The life of a sequence:
1. its prompt waits in line, long prompts first, then is prefilled together
   with others of its bucket, in parts, between calls of the decode loop;
2. the prefilled prompt is inserted into a free slot, once per sample;
3. the slot decodes; after each call the host collects the new tokens;
4. a response that ends either ends the sequence, which frees the slot, or
   calls a tool. Then the slot keeps its cache while others decode, is extended
   by the tool output, and decodes again.

A sequence that waits for its tool while others wait for a slot gives its slot
away, and reads its tokens again in another. On one device there are as many
slots as sequences need, in a few steps.
"""

import collections
import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from azr_jax import types
from azr_jax.rollout import decode as decode_lib
from azr_jax.rollout import extend as extend_lib
from azr_jax.rollout.engine import Engine
from azr_jax.rollout.environment import Environment
from azr_jax.rollout.meter import RequestMeter
from azr_jax.rollout.sequence import Request, ResponseEnd, SequenceState
from azr_jax.rollout.waiting import Group, WaitingLine


@dataclasses.dataclass
class _PrefillBatch:
  """Prompts of one bucket that are prefilled together.

  Attributes:
    tokens: int32 [P, bucket], right-padded.
    lengths: int32 [P].
    waiting: the row of each prompt's sequences that have no slot yet.
    state: the prompts on the device.
    num_prefilled: tokens of each prompt that were prefilled.
  """

  tokens: np.ndarray
  lengths: np.ndarray
  waiting: collections.deque[tuple[int, SequenceState]]
  state: decode_lib.PrefillState
  num_prefilled: int = 0

  @property
  def is_complete(self) -> bool:
    """Whether every prompt has been prefilled to its end."""
    return self.num_prefilled >= int(self.lengths.max())


class Scheduler:
  """Assigns sequences to the slots of an engine.

  Call `admit`, `decode` and `collect` in turn while there are sequences. More
  may be added between any two of these calls.
  """

  def __init__(
    self,
    engine: Engine,
    params: types.Params,
    stop_ids: np.ndarray,
    response_end: ResponseEnd,
    meter: RequestMeter,
    version: int = 0,
  ):
    """Makes slots without sequences; nothing runs yet.

    Args:
      engine: the compiled functions.
      params: parameters to sample with, from `engine.compute_params`.
      stop_ids: int32 [I], token ids that end a response.
      response_end: finds the other ends of a response.
      meter: counts the calls of the decode loop.
      version: of the parameters.
    """
    self.meter = meter
    self.version = version
    self._engine = engine
    self._params = params
    self._stop_ids = stop_ids
    self._response_end = response_end
    slots = engine.slot_counts[0]
    self._state = engine.init_decode_state()
    self._slots: list[SequenceState | None] = [None] * slots
    # Sequences whose tools run, and which have given their slots away.
    self._away: list[SequenceState] = []
    self._ended: list[SequenceState] = []  # They had given their slots away.
    self._force_stop = np.zeros(slots, bool)
    self._prefill_batch: _PrefillBatch | None = None
    self._line = WaitingLine(engine.settings.prompt_buckets)
    self._key_shape = jax.random.key_data(jax.random.key(0)).shape

  def add(self, request: Request, sequences: Iterable[SequenceState]) -> None:
    """Adds sequences of a prompt; those with tokens go on where they were."""
    self._line.add(request, sequences)

  @property
  def sequences(self) -> list[SequenceState]:
    """The sequences that hold a slot."""
    return [sequence for sequence in self._slots if sequence is not None]

  @property
  def num_live(self) -> int:
    """How many slots hold a sequence that has not ended."""
    return len(self.sequences)

  @property
  def num_decoding(self) -> int:
    """How many slots hold a sequence that decodes."""
    return sum(sequence.decoding for sequence in self.sequences)

  @property
  def num_waiting(self) -> int:
    """How many sequences wait for a slot."""
    batch = self._prefill_batch
    return self._line.num_sequences + (len(batch.waiting) if batch else 0)

  @property
  def num_awaiting_tools(self) -> int:
    """How many sequences wait for a tool output."""
    waiting = sum(sequence.awaiting_tool for sequence in self.sequences)
    return waiting + len(self._away)

  @property
  def is_empty(self) -> bool:
    """Whether there is no sequence."""
    return not (self.num_live or self.num_waiting or self._away or self._ended)

  @property
  def _has_waiting(self) -> bool:
    """Whether sequences wait for a slot."""
    return self._prefill_batch is not None or bool(self._line)

  @property
  def _mostly_decoding(self) -> bool:
    """Whether more than half of the slots decode.

    Below that, prefill and extension go before decoding, because decoding a
    few slots costs nearly as much as decoding all of them.
    """
    return self.num_decoding > len(self._slots) // 2

  def admit(self) -> None:
    """Receives tool outputs, then prefills and inserts waiting sequences."""
    self.receive_tool_outputs(wait=False)
    self._resize()
    while self._has_waiting:
      if self._prefill_batch is None:
        self._prefill_batch = self._start_prefill(
          *self._line.pop(self._engine.prefill_batch_size)
        )
      self._prefill_next(self._prefill_batch)
      if self._prefill_batch.is_complete:
        self._give_away_slots()
        if None not in self._slots:
          break
        self._insert(self._prefill_batch)
      if self._mostly_decoding:
        break
    self._resize()
    while any(sequence.pending_tokens for sequence in self.sequences):
      self._extend()
      # Extension is interleaved with decoding, as prefill is.
      if self._mostly_decoding:
        break

  def _resize(self) -> None:
    """Makes as many slots as there are sequences, in steps of the counts.

    Only neighbours among the counts were compiled.
    """
    counts = self._engine.slot_counts
    needed = self.num_live + self.num_waiting
    for slots in reversed(counts):
      if len(self._slots) < slots and len(self._slots) < needed:
        self._change_slots(slots)
    for slots in counts:
      if self.num_live <= slots < len(self._slots) and not self._has_waiting:
        self._change_slots(slots)

  def _give_away_slots(self) -> None:
    """Frees the slots of sequences that wait for tools, as far as needed.

    A tool is quick, so the slots of those that have waited for a whole call
    are the ones to free.
    """
    batch = self._prefill_batch
    missing = len(batch.waiting) if batch else 0
    missing -= self._slots.count(None)
    for slot, sequence in enumerate(self._slots):
      if missing <= 0 or not self._engine.settings.extension:
        return
      if sequence is not None and sequence.awaiting_tool and sequence.waited:
        self._slots[slot] = None
        self._away.append(sequence)
        missing -= 1

  def receive_tool_outputs(self, wait: bool) -> None:
    """Takes the tool outputs that have come.

    A tool output that leaves no room for another token ends its sequence.

    Args:
      wait: whether to wait until at least one has come.
    """
    waiting = [s for s in (*self.sequences, *self._away) if s.awaiting_tool]
    by_environment: dict[int, tuple[Environment, dict]] = {}
    for sequence in waiting:
      environment = sequence.request.environment
      assert environment is not None
      by_environment.setdefault(id(environment), (environment, {}))[1][
        sequence.id
      ] = sequence
    for environment, sequences in by_environment.values():
      outputs = environment.tool_outputs(wait and len(by_environment) == 1)
      for name, token_ids in outputs.items():
        if name in sequences:  # Others were cancelled.
          self._receive(sequences[name], token_ids)

  def _receive(self, sequence: SequenceState, token_ids: Sequence[int]) -> None:
    """Adds a tool output to its sequence, which may end it."""
    length = len(sequence.token_ids) + len(token_ids)
    sequence.awaiting_tool = False
    if length >= sequence.request.max_new_tokens:
      sequence.finish_reason = "length"
      if sequence in self._away:
        self._away.remove(sequence)
        self._ended.append(sequence)
      return
    sequence.receive_tool_output(token_ids, self.version)
    if sequence in self._away:
      self._away.remove(sequence)
      sequence.leave_slot()
      self.add(sequence.request, [sequence])

  @functools.partial(jax.profiler.annotate_function, name="decode")
  def decode(self) -> decode_lib.DecodeOutput:
    """Starts the next call of the decode loop; does not wait for it."""
    slots, decoding = len(self._slots), self.num_decoding
    awaiting = self.num_live - decoding
    min_active = 0
    if self._has_waiting:
      # Slots are refilled an eighth at a time, because each interruption of
      # the decode loop costs.
      min_active = slots - max(1, slots // 8) - awaiting
    for environment in self._environments():
      environment.observe(decoding, awaiting, slots)
    for sequence in self.sequences:
      sequence.waited = sequence.awaiting_tool
    self.meter.send_decode()
    self._state, output = self._engine.decode(
      self._params,
      self._state,
      self._stop_ids,
      self._force_stop,
      np.int32(max(0, min(min_active, decoding - 1))),
    )
    self._force_stop = np.zeros(slots, bool)
    return output

  def _environments(self) -> list[Environment]:
    """Returns the environments of the sequences, each once."""
    every = (s.request.environment for s in (*self.sequences, *self._away))
    return list({id(one): one for one in every if one is not None}.values())

  @functools.partial(jax.profiler.annotate_function, name="take_tokens")
  def collect(self, output: decode_lib.DecodeOutput) -> list[SequenceState]:
    """Adds the generated tokens to the sequences.

    Args:
      output: what `decode` returned, on the host.

    Returns:
      The sequences that have ended; their slots are free.
    """
    lengths = [held.length if held else 0 for held in self._slots]
    self.meter.fetched(np.asarray(output.num_generated), lengths)
    ended = self.take_ended()
    for slot, sequence in enumerate(self._slots):
      if sequence is None:
        continue
      if sequence.finish_reason is None and sequence.decoding:
        self._collect_slot(slot, sequence, output)
      if sequence.finish_reason is not None:
        self._slots[slot] = None
        self.meter.ended(sum(sequence.loss_mask))
        ended.append(sequence)
    for sequence in ended:
      _forget(sequence)
    return ended

  def _collect_slot(
    self, slot: int, sequence: SequenceState, output: decode_lib.DecodeOutput
  ) -> None:
    """Adds one slot's new tokens, and looks for the end of the response."""
    count = int(output.num_generated[slot])
    num_checked = len(sequence.token_ids)
    sequence.add_tokens(
      output.tokens[slot, :count].tolist(),
      output.logprobs[slot, :count].tolist(),
      self.version,
    )
    end = self._response_end(sequence, num_checked)
    if end is not None or output.done[slot]:
      self._force_stop[slot] = True
      self._end_response(sequence, end)

  def _end_response(self, sequence: SequenceState, end: int | None) -> None:
    """Ends a response, and with it the sequence unless a tool was called.

    Args:
      sequence: its last response has ended.
      end: tokens to keep; None if the device stopped at a stop id or at
        `max_new_tokens`.
    """
    if end is not None:
      sequence.truncate(end)
    elif sequence.token_ids[-1] not in self._stop_ids:
      sequence.finish_reason = "length"
      return
    sequence.finish_reason = "stop"
    environment = sequence.request.environment
    if environment is not None:
      sequence.finish_reason = environment.step(sequence.id, sequence.responses)
      sequence.awaiting_tool = sequence.finish_reason is None

  def take_ended(self) -> list[SequenceState]:
    """Returns sequences that ended without a slot, each once."""
    ended, self._ended = self._ended, []
    return ended

  def cancel(self, requests: set[Request]) -> None:
    """Gives up the sequences of some requests."""
    self._line.remove(requests)
    if self._prefill_batch is not None:
      self._prefill_batch.waiting = collections.deque(
        (row, sequence)
        for row, sequence in self._prefill_batch.waiting
        if sequence.request not in requests
      )
      if not self._prefill_batch.waiting:
        self._prefill_batch = None
    for sequence in (*self.sequences, *self._away):
      if sequence.request in requests:
        _forget(sequence)
    for slot, sequence in enumerate(self._slots):
      if sequence is not None and sequence.request in requests:
        self._slots[slot] = None
        self._force_stop[slot] = True
    self._away = [s for s in self._away if s.request not in requests]

  def drain(self) -> list[SequenceState]:
    """Takes all sequences; those with tokens will read them again.

    Nothing else may be called after it.
    """
    waiting = [s for group in self._line.drain() for s in group.sequences]
    if self._prefill_batch is not None:
      waiting += [sequence for _, sequence in self._prefill_batch.waiting]
    drained = [*self.sequences, *self._away, *waiting]
    for sequence in drained:
      sequence.leave_slot()
    self._slots = []
    del self._state  # Its memory is freed.
    return drained

  def warm_up(self) -> None:
    """Compiles each program by running it once on empty slots."""
    for bucket in self._engine.settings.prompt_buckets:
      self._prefill_batch = self._start_prefill(bucket, [])
      self._prefill_next(self._prefill_batch)
      self._insert(self._prefill_batch)
    self._prefill_batch = None
    for slots in self._engine.slot_counts:
      if slots < len(self._slots):
        more = len(self._slots)
        self._change_slots(slots)
        self._change_slots(more)
        self._change_slots(slots)
      jax.block_until_ready(self.decode())
      if self._engine.settings.extension:
        self._extend()

  def _start_prefill(
    self, bucket: int, groups: Sequence[Group]
  ) -> _PrefillBatch:
    """Returns a batch of the prompts of some groups; nothing runs yet."""
    size = self._engine.prefill_batch_size(bucket)
    tokens = np.zeros((size, bucket), np.int32)
    lengths = np.ones(size, np.int32)
    for row, group in enumerate(groups):
      token_ids = group.request.prompt.token_ids
      tokens[row, : len(token_ids)] = token_ids
      lengths[row] = len(token_ids)
    waiting = collections.deque(
      (row, sequence)
      for row, group in enumerate(groups)
      for sequence in group.sequences
    )
    state = self._engine.init_prefill_state(size, bucket)
    return _PrefillBatch(tokens, lengths, waiting, state)

  @functools.partial(jax.profiler.annotate_function, name="prefill")
  def _prefill_next(self, batch: _PrefillBatch) -> None:
    """Prefills the next part of the prompts, unless all are complete."""
    if batch.is_complete:
      return
    bucket = batch.tokens.shape[1]
    size = self._engine.prefill_chunk_size(bucket)
    # The last part may overlap the one before; prefilling tokens again gives
    # the same cache entries.
    start = min(batch.num_prefilled, bucket - size)
    self.meter.send()
    batch.state = self._engine.prefill(
      self._params,
      batch.state,
      batch.tokens[:, start : start + size],
      np.int32(start),
      batch.lengths,
    )
    batch.num_prefilled = start + size

  @functools.partial(jax.profiler.annotate_function, name="insert")
  def _insert(self, batch: _PrefillBatch) -> None:
    """Inserts waiting sequences into the free slots.

    A sequence that has tokens reads them again before it decodes.
    """
    free = [slot for slot, held in enumerate(self._slots) if held is None]
    counts = np.zeros(len(batch.lengths), np.int32)
    slots = np.zeros(len(self._slots), np.int32)
    max_new_tokens = np.zeros(len(self._slots), np.int32)
    seeds = np.zeros((len(self._slots), 2), np.int32)
    key_data = np.zeros((len(self._slots), *self._key_shape), np.uint32)
    for entry, slot in enumerate(free[: len(batch.waiting)]):
      row, sequence = batch.waiting.popleft()
      request = sequence.request
      self._slots[slot] = sequence
      self._force_stop[slot] = bool(sequence.pending_tokens)
      counts[row] += 1
      slots[entry] = slot
      max_new_tokens[entry] = request.max_new_tokens
      seeds[entry] = request.seed, sequence.sample_index
      key_data[entry] = request.key_data
    self.meter.send()
    self._state = self._engine.insert(
      self._state, batch.state, counts, slots, max_new_tokens, seeds, key_data
    )
    if not batch.waiting:
      self._prefill_batch = None

  def _change_slots(self, slots: int) -> None:
    """Makes this many slots: all live ones first, then free ones."""
    kept = sorted(
      range(len(self._slots)), key=lambda slot: self._slots[slot] is None
    )[:slots]
    added = slots - len(kept)
    self._slots = [self._slots[slot] for slot in kept] + [None] * added
    self._force_stop = np.append(self._force_stop[kept], np.ones(added, bool))
    self.meter.send()
    # The copies of a slot that stand for new ones are stopped.
    kept = np.asarray(kept + [0] * added, np.int32)
    self._state = self._engine.compact(self._state, kept)

  @functools.partial(jax.profiler.annotate_function, name="extend")
  def _extend(self) -> None:
    """Extends slots by the next parts of tool outputs: what fits one call."""
    chunk = self._engine.settings.extension
    devices = self._engine.devices
    entries = min(self._engine.prefill_batch_size(chunk), len(self._slots))
    entries_per_device = entries // devices
    slots_per_device = len(self._slots) // devices
    names = ("counts", "rows", "slots", "starts", "num_tokens")
    arrays: dict[str, Any] = {
      name: np.zeros(entries, np.int32) for name in names
    }
    arrays["tokens"] = np.zeros((entries, chunk), np.int32)
    arrays["resumes"] = np.zeros(entries, bool)
    used = [0] * devices
    for slot, sequence in enumerate(self._slots):
      device = slot // slots_per_device
      if (
        sequence is None
        or not sequence.pending_tokens
        or used[device] == entries_per_device
      ):
        continue
      entry = device * entries_per_device + used[device]
      used[device] += 1
      arrays["rows"][entry] = slot % slots_per_device
      arrays["slots"][entry] = slot
      self._take_pending(sequence, arrays, entry)
      if arrays["resumes"][entry]:
        self._force_stop[slot] = False
    self.meter.send()
    self._state = self._engine.extend(
      self._params, self._state, extend_lib.Extension(**arrays)
    )

  def _take_pending(
    self, sequence: SequenceState, arrays: Mapping[str, Any], entry: int
  ) -> None:
    """Moves the next pending tokens of a sequence into an extension's entry.

    Args:
      sequence: has pending tokens.
      arrays: NumPy arrays by field of `Extension`; filled in.
      entry: index into them.
    """
    chunk = arrays["tokens"].shape[1]
    token_ids = sequence.pending_tokens[:chunk]
    sequence.pending_tokens = sequence.pending_tokens[chunk:]
    num_tokens = len(sequence.token_ids) - len(sequence.pending_tokens)
    prompt = sequence.request.prompt
    arrays["tokens"][entry, : len(token_ids)] = token_ids
    arrays["counts"][entry] = len(token_ids)
    arrays["num_tokens"][entry] = num_tokens
    arrays["starts"][entry] = (
      len(prompt.token_ids) + num_tokens - len(token_ids)
    )
    arrays["resumes"][entry] = not sequence.pending_tokens


def _forget(sequence: SequenceState) -> None:
  """Has the environment drop a conversation."""
  if sequence.request.environment is not None:
    sequence.request.environment.forget(sequence.id)
