"""The scheduler: the host side of continuous batching.

The life of a sequence:
1. its prompt waits in a queue, long prompts first, then is prefilled together
   with others of its bucket, in parts, between calls of the decode loop;
2. the prefilled prompt is inserted into a free slot, once per sample;
3. the slot decodes; after each call the host collects the new tokens;
4. a response that ends either ends the sequence, which frees the slot, or
   calls a tool. Then the slot keeps its cache while others decode, is extended
   by the tool output, and decodes again.

Once no sequence waits for a slot, the slots are compacted.
"""

import collections
import dataclasses
import functools
from collections.abc import Mapping, Sequence
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


@dataclasses.dataclass
class _PrefillBatch:
  """Prompts of one bucket that are prefilled together.

  Attributes:
    tokens: int32 [P, bucket], right-padded.
    lengths: int32 [P].
    waiting: their sequences that have no slot yet.
    state: the prompts on the device.
    num_prefilled: tokens of each prompt that were prefilled.
  """

  tokens: np.ndarray
  lengths: np.ndarray
  waiting: collections.deque[SequenceState]
  state: decode_lib.PrefillState
  num_prefilled: int = 0

  @property
  def is_complete(self) -> bool:
    """Whether every prompt has been prefilled to its end."""
    return self.num_prefilled >= int(self.lengths.max())


class Scheduler:
  """Assigns the sequences of one request to the slots of an engine.

  Call `admit`, `decode` and `collect` in turn until `admit` returns false.
  """

  def __init__(
    self,
    engine: Engine,
    params: types.Params,
    request: Request,
    stop_ids: np.ndarray,
    response_end: ResponseEnd,
    environment: Environment | None,
    meter: RequestMeter,
  ):
    """Queues the request's prompts; nothing runs yet.

    Args:
      engine: the compiled functions.
      params: parameters to sample with, from `engine.compute_params`.
      request: what to sample.
      stop_ids: int32 [I], token ids that end a response.
      response_end: finds the other ends of a response.
      environment: steps on each response; None if a completion is one response.
      meter: counts the calls of the decode loop.
    """
    self.meter = meter
    self._engine = engine
    self._params = params
    self._request = request
    self._stop_ids = stop_ids
    self._response_end = response_end
    self._environment = environment
    if environment is not None:
      environment.reset()
    slots = engine.slot_counts[0]
    self._state = engine.init_decode_state()
    self._slots: list[SequenceState | None] = [None] * slots
    self._force_stop = np.zeros(slots, bool)
    self._prefill_batch: _PrefillBatch | None = None
    self._queue: collections.deque[tuple[int, Sequence[int]]] = (
      collections.deque()
    )
    for bucket, indices in request.by_bucket.items():
      size = engine.prefill_batch_size(bucket)
      for first in range(0, len(indices), size):
        self._queue.append((bucket, indices[first : first + size]))

  @property
  def num_live(self) -> int:
    """How many slots hold a sequence that has not ended."""
    return sum(sequence is not None for sequence in self._slots)

  @property
  def num_decoding(self) -> int:
    """How many slots hold a sequence that decodes."""
    return sum(
      sequence is not None and sequence.decoding for sequence in self._slots
    )

  @property
  def _has_waiting(self) -> bool:
    """Whether sequences wait for a slot."""
    return self._prefill_batch is not None or bool(self._queue)

  @property
  def _mostly_decoding(self) -> bool:
    """Whether more than half of the slots decode.

    Below that, prefill and extension go before decoding, because decoding a
    few slots costs nearly as much as decoding all of them.
    """
    return self.num_decoding > len(self._slots) // 2

  def admit(self) -> bool:
    """Prefills and inserts waiting sequences, then receives tool outputs.

    Returns:
      Whether any sequence of the request has not ended.
    """
    while self._has_waiting:
      if self._prefill_batch is None:
        self._prefill_batch = self._start_prefill(*self._queue.popleft())
      self._prefill_next(self._prefill_batch)
      if self._prefill_batch.is_complete:
        if None not in self._slots:
          break
        self._insert(self._prefill_batch)
      if self._mostly_decoding:
        break
    if self.num_live and not self._has_waiting:
      # Compaction steps through all counts, because only these were compiled.
      for slots in self._engine.slot_counts:
        if self.num_live <= slots < len(self._slots):
          self._compact(slots)
    self.receive_tool_outputs(wait=False)
    return self.num_live > 0

  def receive_tool_outputs(self, wait: bool) -> None:
    """Extends slots by the tool outputs that have come.

    A tool output that leaves no room for another token ends its sequence.

    Args:
      wait: whether to wait until at least one has come.
    """
    sequences = {sequence.id: sequence for sequence in self._slots if sequence}
    if self._environment is not None and any(
      sequence.awaiting_tool for sequence in sequences.values()
    ):
      for name, token_ids in self._environment.tool_outputs(wait).items():
        sequence = sequences[name]
        sequence.awaiting_tool = False
        length = len(sequence.token_ids) + len(token_ids)
        if length >= self._request.max_new_tokens[sequence.prompt_index]:
          sequence.finish_reason = "length"
        else:
          sequence.receive_tool_output(token_ids)
    while any(sequence.pending_tokens for sequence in sequences.values()):
      self._extend()
      # Extension is interleaved with decoding, as prefill is.
      if self._mostly_decoding:
        break

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
    if self._environment is not None:
      self._environment.observe(decoding, awaiting, slots)
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

  @functools.partial(jax.profiler.annotate_function, name="take_tokens")
  def collect(self, output: decode_lib.DecodeOutput) -> list[SequenceState]:
    """Adds the generated tokens to the sequences.

    Args:
      output: what `decode` returned, on the host.

    Returns:
      The sequences that have ended; their slots are free.
    """
    lengths = [self._length(held) for held in self._slots]
    self.meter.fetched(np.asarray(output.num_generated), lengths)
    ended = []
    for slot, sequence in enumerate(self._slots):
      if sequence is None:
        continue
      if sequence.finish_reason is None and sequence.decoding:
        self._collect_slot(slot, sequence, output)
      if sequence.finish_reason is not None:
        self._slots[slot] = None
        self.meter.ended(sum(sequence.loss_mask))
        ended.append(sequence)
    return ended

  def _length(self, sequence: SequenceState | None) -> int:
    """Returns the tokens of a slot's sequence, its prompt included."""
    if sequence is None:
      return 0
    prompt = self._request.prompts[sequence.prompt_index]
    return len(prompt.token_ids) + len(sequence.token_ids)

  def _collect_slot(
    self, slot: int, sequence: SequenceState, output: decode_lib.DecodeOutput
  ) -> None:
    """Adds one slot's new tokens, and looks for the end of the response."""
    count = int(output.num_generated[slot])
    num_checked = len(sequence.token_ids)
    sequence.add_tokens(
      output.tokens[slot, :count].tolist(),
      output.logprobs[slot, :count].tolist(),
    )
    end = self._response_end(
      sequence.id, sequence.token_ids, sequence.response_start, num_checked
    )
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
    if self._environment is not None:
      sequence.finish_reason = self._environment.step(
        sequence.id, sequence.responses
      )
      sequence.awaiting_tool = sequence.finish_reason is None

  def warm_up(self) -> None:
    """Compiles each program by running it once on empty slots."""
    for bucket in self._engine.settings.prompt_buckets:
      self._prefill_batch = self._start_prefill(bucket, [])
      self._prefill_next(self._prefill_batch)
      self._insert(self._prefill_batch)
    self._prefill_batch = None
    for slots in self._engine.slot_counts:
      if slots < len(self._slots):
        self._compact(slots)
      jax.block_until_ready(self.decode())
      if self._engine.settings.extend_chunk:
        self._extend()

  def _start_prefill(
    self, bucket: int, indices: Sequence[int]
  ) -> _PrefillBatch:
    """Returns a batch of the prompts with these indices; nothing runs yet."""
    size = self._engine.prefill_batch_size(bucket)
    tokens = np.zeros((size, bucket), np.int32)
    lengths = np.ones(size, np.int32)
    for row, index in enumerate(indices):
      token_ids = self._request.prompts[index].token_ids
      tokens[row, : len(token_ids)] = token_ids
      lengths[row] = len(token_ids)
    waiting = collections.deque(
      SequenceState(index, sample, row)
      for row, index in enumerate(indices)
      for sample in range(self._request.n)
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
    """Inserts waiting sequences into the free slots."""
    request = self._request
    free = [slot for slot, held in enumerate(self._slots) if held is None]
    counts = np.zeros(len(batch.lengths), np.int32)
    slots = np.zeros(len(self._slots), np.int32)
    max_new_tokens = np.zeros(len(self._slots), np.int32)
    seeds = np.zeros((len(self._slots), 2), np.int32)
    for entry, slot in enumerate(free[: len(batch.waiting)]):
      sequence = batch.waiting.popleft()
      self._slots[slot] = sequence
      self._force_stop[slot] = False
      counts[sequence.prefill_index] += 1
      slots[entry] = slot
      max_new_tokens[entry] = request.max_new_tokens[sequence.prompt_index]
      seeds[entry] = (
        request.prompt_seeds[sequence.prompt_index],
        sequence.sample_index,
      )
    self.meter.send()
    self._state = self._engine.insert(
      self._state,
      batch.state,
      counts,
      slots,
      max_new_tokens,
      seeds,
      request.key,
    )
    if not batch.waiting:
      self._prefill_batch = None

  def _compact(self, slots: int) -> None:
    """Keeps this many slots: all live ones first, then free ones."""
    kept = sorted(
      range(len(self._slots)), key=lambda slot: self._slots[slot] is None
    )
    kept = np.asarray(kept[:slots], np.int32)
    self._slots = [self._slots[slot] for slot in kept]
    self._force_stop = self._force_stop[kept]
    self.meter.send()
    self._state = self._engine.compact(self._state, kept)

  @functools.partial(jax.profiler.annotate_function, name="extend")
  def _extend(self) -> None:
    """Extends slots by the next parts of tool outputs: what fits one call."""
    chunk = self._engine.settings.extend_chunk
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
    prompt = self._request.prompts[sequence.prompt_index]
    arrays["tokens"][entry, : len(token_ids)] = token_ids
    arrays["counts"][entry] = len(token_ids)
    arrays["num_tokens"][entry] = num_tokens
    arrays["starts"][entry] = (
      len(prompt.token_ids) + num_tokens - len(token_ids)
    )
    arrays["resumes"][entry] = not sequence.pending_tokens
