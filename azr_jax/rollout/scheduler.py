"""The scheduler: the host side of continuous batching.

The life of a sequence:
1. its prompt waits in a queue, long prompts first, then is prefilled
   together with others of its bucket, in parts, between calls of the decode
   loop (`prefill_scheduler.py`);
2. it enters a free slot on the pages' device: samples of a prompt share its
   full pages, and each has a copy of the last one;
3. the slot decodes; after each call the host collects the new tokens;
4. a response that ends either ends the sequence or calls a tool. Either frees
   the slot. A sequence whose tool has answered has the output prefilled
   into its pages and enters a slot again.

Slots are limited by the pages. Where they run out, sequences that wait for
tools give theirs up, then those that began last; they are prefilled again
later. On one device the number of slots follows the demand, over a few sizes.
"""

import collections
import functools
from collections.abc import Iterable, Sequence

import jax
import numpy as np

from azr_jax import types
from azr_jax.rollout import decode as decode_lib
from azr_jax.rollout.changes import ChangesBuilder
from azr_jax.rollout.engine import Engine
from azr_jax.rollout.environment import Environment
from azr_jax.rollout.meter import RequestMeter
from azr_jax.rollout.page_pool import CachedTokens, PagePool
from azr_jax.rollout.prefill_scheduler import (
  PromptGroup,
  empty_batch,
  next_batch,
)
from azr_jax.rollout.sequence import Request, ResponseEnd, SequenceState
from azr_jax.rollout.waiting import WaitingQueue


class Scheduler:
  """Assigns sequences to the slots and pages of an engine.

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
      response_end: finds ends that only the host sees, such as stop strings.
      meter: counts the calls of the decode loop.
      version: the number of the parameters' version, which each token records.
    """
    self.meter = meter
    self.version = version
    self._engine = engine
    self._params = params
    self._stop_ids = stop_ids
    self._response_end = response_end
    slots = engine.slot_counts[0]
    self._pool = engine.init_pool()
    self._state = engine.init_slots(slots)
    self._pages = PagePool(
      engine.devices, engine.num_pages, engine.settings.page_size
    )
    # The running sequences: by slot, and in the order in which they started.
    self._slots: list[SequenceState | None] = [None] * slots
    self._running: list[SequenceState] = []
    self._changes = ChangesBuilder(engine.devices, engine.max_pages_per_row)
    self._queue = WaitingQueue(engine.settings.prompt_buckets)
    self._groups: list[PromptGroup] = []
    # Sequences with a cache that are prefilled, or wait for a slot.
    self._resuming: list[SequenceState] = []
    self._awaiting_tools: list[SequenceState] = []
    self._ended: list[SequenceState] = []  # They ended without a slot.

  def add(self, request: Request, sequences: Iterable[SequenceState]) -> None:
    """Adds sequences of a prompt; those with tokens resume after them."""
    waiting = []
    for sequence in sequences:
      (self._awaiting_tools if sequence.awaiting_tool else waiting).append(
        sequence
      )
    if waiting:
      self._queue.add(request, waiting)

  @property
  def num_live(self) -> int:
    """How many sequences have begun and not ended."""
    return self.num_decoding + len(self._resuming) + len(self._awaiting_tools)

  @property
  def num_decoding(self) -> int:
    """How many slots hold a sequence."""
    return len(self._running)

  @property
  def decoding(self) -> tuple[SequenceState, ...]:
    """The sequences that slots hold, in the order in which they started."""
    return tuple(self._running)

  @property
  def num_free_pages(self) -> int:
    """How many pages of all devices no prompt or sequence has."""
    return sum(map(self._pages.num_free, range(self._engine.devices)))

  @property
  def num_waiting(self) -> int:
    """How many sequences wait for a slot and have no cache of their own."""
    return self._queue.num_sequences + sum(len(g.waiting) for g in self._groups)

  @property
  def num_awaiting_tools(self) -> int:
    """How many sequences wait for a tool output."""
    return len(self._awaiting_tools)

  @property
  def is_empty(self) -> bool:
    """Whether there is no sequence."""
    return not (self.num_live or self.num_waiting or self._ended)

  @property
  def _has_waiting(self) -> bool:
    """Whether sequences wait for a slot."""
    return bool(self._queue or self._groups or self._resuming)

  @property
  def _mostly_decoding(self) -> bool:
    """Whether more than half of the slots decode.

    Below that, prefill goes before decoding, because decoding a few slots costs
    nearly as much as decoding all of them.
    """
    return self.num_decoding > len(self._slots) // 2

  def admit(self) -> None:
    """Receives tool outputs, prefills pending tokens, and fills free slots."""
    self.receive_tool_outputs(wait=False)
    self._resize()
    progress = True
    while progress:
      # Prefilled sequences get pages before others are prefilled.
      progress = self._fill_slots()
      self._prepare_groups()
      progress = self._prefill() or progress
      progress = self._fill_slots() or progress
      if not progress:
        progress = self._free_pages()
      elif self._mostly_decoding:
        break
    self._resize()

  def _resize(self) -> None:
    """Changes the number of slots to the smallest count that is enough.

    It goes through the compiled slot counts one by one, because only changes
    between neighbours were compiled.
    """
    counts = self._engine.slot_counts
    needed = self.num_live + self.num_waiting
    for slots in reversed(counts):
      if len(self._slots) < slots and len(self._slots) < needed:
        self._change_slots(slots)
    for slots in counts:
      if needed <= slots < len(self._slots):
        self._change_slots(slots)

  def _prepare_groups(self) -> None:
    """Takes prompts from the queue for devices on which none waits for slots.

    When the queue is empty, such a device takes half of the samples of a prompt
    that waits for slots of another.
    """
    devices = range(self._engine.devices)
    served = {group.cached.device for group in self._groups}
    idle = [device for device in devices if device not in served]
    if not idle:
      return
    if self._queue:
      fraction = len(idle) / len(devices)
      _, groups = self._queue.pop(
        lambda bucket: round(fraction * self._engine.prefill_batch_size(bucket))
      )
      for group in groups:
        device = min(idle, key=self._load)
        self._groups.append(
          PromptGroup(group.request, group.sequences, CachedTokens(device))
        )
      return
    free = self._free_slots()
    for device in idle:
      largest = max(self._groups, key=lambda g: len(g.waiting), default=None)
      if largest is not None and len(largest.waiting) > 1 and free[device]:
        count = len(largest.waiting) // 2
        moved = collections.deque(largest.waiting.pop() for _ in range(count))
        self._groups.append(
          PromptGroup(largest.request, moved, CachedTokens(device))
        )

  def _load(self, device: int) -> int:
    """Returns how many sequences have their pages on a device."""
    live = (*self._running, *self._resuming, *self._awaiting_tools)
    return len(_on_device(live, device)) + sum(
      len(g.waiting) for g in self._groups if g.cached.device == device
    )

  def _prefill(self) -> bool:
    """Prefills the next pending tokens; returns whether there were any."""
    waiting = [*self._resuming, *self._groups]
    batch = next_batch(self._engine, waiting, self._allocate)
    if batch is None:
      return False
    with jax.profiler.TraceAnnotation("prefill"):
      self.meter.record_dispatch()
      self._pool = self._engine.prefill(self._params, self._pool, batch)
    return True

  def _allocate(
    self, cached: CachedTokens, tokens: int, is_urgent: bool = False
  ) -> bool:
    """Allocates pages for the first `tokens` tokens of a cache.

    If too few are free, it takes the pages of sequences that await a tool.

    Args:
      cached: gets the pages.
      tokens: how many tokens the cache must have room for.
      is_urgent: whether the last free pages may be taken. If not, a page stays
        free for each decoding sequence that will need another.

    Returns:
      Whether there were enough pages.
    """
    device = cached.device
    reserve = 0
    if not is_urgent:
      reserve = sum(
        self._pages.missing(s.cached, s.max_cached) > 0
        for s in self._running
        if s.cached is not None and s.cached.device == device
      )
    while not self._pages.allocate(cached, tokens, reserve):
      idle = _on_device(self._awaiting_tools, device)
      if not idle:
        return False
      self._drop_cache(idle[-1])
    return True

  def _drop_cache(self, sequence: SequenceState) -> None:
    """Frees the pages of a sequence, which will be prefilled again."""
    if sequence.cached is not None:
      self._pages.release(sequence.cached)
      sequence.cached = None

  def _free_pages(self) -> bool:
    """Frees pages on devices where nothing decodes because too few are free.

    Returns:
      Whether any page was freed. On each device, the prompt or sequence that
      started first keeps its pages.
    """
    idle = [
      device
      for device in range(self._engine.devices)
      if not _on_device(self._running, device)
    ]
    return any(self._reclaim(device, keep=1) for device in idle)

  def _reclaim(self, device: int, keep: int) -> bool:
    """Frees the pages of the waiting prompt or sequence that started last.

    Prompts go first. Whatever loses its pages is prefilled again later.

    Args:
      device: the device that needs free pages.
      keep: how many waiting prompts and sequences must keep their pages.

    Returns:
      Whether more than `keep` of them had pages, so that one lost its own.
    """
    resuming = _on_device(self._resuming, device)
    groups = [
      group
      for group in self._groups
      if group.cached.device == device and group.cached.pages
    ]
    if len(resuming) + len(groups) <= keep:
      return False
    if groups:
      self._groups.remove(groups[-1])
      self._pages.release(groups[-1].cached)
      self._queue.add(groups[-1].request, groups[-1].waiting)
    else:
      self._resuming.remove(resuming[-1])
      self._preempt(resuming[-1])
    return True

  def _preempt(self, sequence: SequenceState) -> None:
    """Puts a sequence into the queue again, to be prefilled later."""
    self._drop_cache(sequence)
    self._queue.add(sequence.request, [sequence])

  def _free_slots(self) -> list[list[int]]:
    """Returns the free slots of each device, the last one first."""
    per_device = len(self._slots) // self._engine.devices
    free: list[list[int]] = [[] for _ in range(self._engine.devices)]
    for slot in reversed(range(len(self._slots))):
      if self._slots[slot] is None:
        free[slot // per_device].append(slot)
    return free

  def _fill_slots(self) -> bool:
    """Fills free slots; returns whether a sequence progressed."""
    free, has_run = self._free_slots(), False
    for sequence in list(self._resuming):
      assert sequence.cached is not None
      slots = free[sequence.cached.device]
      if not slots:
        continue
      slot = slots.pop()  # It stays reserved if the sequence cannot enter yet.
      if sequence.num_uncached:
        continue
      if self._try_allocate(sequence, sequence.cached):
        self._resuming.remove(sequence)
        self._enter_slot(slot, sequence)
        has_run = True
      else:
        slots.clear()  # Pages that become free are for this one.
    for group in self._groups:
      has_run = self._start_group(group, free) or has_run
    self._groups = [group for group in self._groups if group.waiting]
    return has_run

  def _try_allocate(
    self, sequence: SequenceState, cached: CachedTokens
  ) -> bool:
    """Allocates pages for the tokens of one decode call; returns success."""
    tokens = cached.count + self._engine.settings.decode_chunk
    return self._allocate(cached, min(tokens, sequence.max_cached))

  def _start_group(self, group: PromptGroup, free: list[list[int]]) -> bool:
    """Starts sequences of a prompt, as far as slots and pages are free."""
    slots, began = free[group.cached.device], False
    while group.num_uncached == 0 and group.waiting and slots:
      sequence = group.waiting[0]
      if not self._share_prompt(group, sequence):
        break
      began = True
      group.waiting.popleft()
      slot = slots.pop()
      if sequence.num_uncached:
        self._resuming.append(sequence)
      else:
        self._enter_slot(slot, sequence)
    if not group.waiting:
      self._pages.release(group.cached)
    return began

  def _share_prompt(self, group: PromptGroup, sequence: SequenceState) -> bool:
    """Gives a sequence its prompt's cache; returns whether there are pages."""
    prompt = group.cached
    if len(group.waiting) == 1:
      # The last one needs no copy; what it does not take is released.
      cached = CachedTokens(prompt.device, list(prompt.pages), prompt.count)
      if not self._try_allocate(sequence, cached):
        return False
      prompt.pages = []
      sequence.cached = cached
      return True
    cached = self._pages.share(prompt)
    if not self._try_allocate(sequence, cached):
      self._pages.release(cached)
      return False
    sequence.cached = cached
    if cached.count < prompt.count and not sequence.token_ids:
      number = len(prompt.pages) - 1
      self._changes.copy(sequence, prompt.pages[number], cached.pages[number])
      cached.count = prompt.count
    return True

  def _enter_slot(self, slot: int, sequence: SequenceState) -> None:
    self._slots[slot] = sequence
    self._running.append(sequence)
    self._changes.enter(slot, sequence)

  def _leave_slot(self, sequence: SequenceState) -> None:
    slot = self._slots.index(sequence)
    self._slots[slot] = None
    self._running.remove(sequence)
    self._changes.leave(slot, sequence)

  def receive_tool_outputs(self, wait: bool) -> None:
    """Takes the tool outputs that have come.

    A tool output that leaves no room for another token ends its sequence.

    Args:
      wait: whether to wait until at least one has come.
    """
    by_environment: dict[int, tuple[Environment, dict]] = {}
    for sequence in self._awaiting_tools:
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
    self._awaiting_tools.remove(sequence)
    sequence.awaiting_tool = False
    length = len(sequence.token_ids) + len(token_ids)
    if length >= sequence.request.max_new_tokens:
      sequence.finish_reason = "length"
      self._drop_cache(sequence)
      self._ended.append(sequence)
      return
    sequence.receive_tool_output(token_ids, self.version)
    if sequence.cached is None:
      self.add(sequence.request, [sequence])
    else:
      self._resuming.append(sequence)

  @functools.partial(jax.profiler.annotate_function, name="decode")
  def decode(self) -> decode_lib.DecodeOutput:
    """Starts the next call of the decode loop; does not wait for it."""
    self._allocate_decode_chunk()
    slots, decoding = len(self._slots), self.num_decoding
    min_active = 0
    if self._has_waiting:
      # Slots are refilled an eighth at a time, because each interruption of
      # the decode loop costs.
      min_active = decoding - max(1, slots // 8)
    for environment in self._environments():
      environment.record_occupancy(decoding, len(self._awaiting_tools), slots)
    self.meter.record_decode_dispatch()
    self._pool, self._state, output = self._engine.decode(
      self._params,
      self._pool,
      self._state,
      self._changes.take(self._slots),
      self._stop_ids,
      np.int32(max(0, min_active)),
    )
    return output

  def _allocate_decode_chunk(self) -> None:
    """Allocates pages for the next decode call of every running sequence.

    If too few are free, the sequences that started last are preempted.
    """
    steps = self._engine.settings.decode_chunk
    waiting = list(self._running)
    while waiting:
      sequence = waiting.pop(0)
      cached = sequence.cached
      assert cached is not None
      tokens = min(cached.count + steps, sequence.max_cached)
      while not self._allocate(cached, tokens, is_urgent=True):
        if self._reclaim(cached.device, keep=0):
          continue
        last = _on_device(self._running, cached.device)[-1]
        self._leave_slot(last)
        self._preempt(last)
        if last is sequence:
          break
        waiting.remove(last)

  def _environments(self) -> list[Environment]:
    """Returns the environments of the sequences, each once."""
    live = (*self._running, *self._resuming, *self._awaiting_tools)
    every = (s.request.environment for s in live)
    return list({id(one): one for one in every if one is not None}.values())

  @functools.partial(jax.profiler.annotate_function, name="collect_tokens")
  def collect(self, output: decode_lib.DecodeOutput) -> list[SequenceState]:
    """Adds the generated tokens to the sequences.

    Args:
      output: what `decode` returned, on the host.

    Returns:
      The sequences that have ended; their slots are free.
    """
    lengths = [s.cached.count if s and s.cached else 0 for s in self._slots]
    self.meter.fetched(np.asarray(output.num_generated), lengths)
    ended = self.take_ended()
    for slot, sequence in enumerate(self._slots):
      if sequence is None:
        continue
      self._collect_slot(slot, sequence, output)
      if sequence.finish_reason is not None:
        self._drop_cache(sequence)
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
    assert sequence.cached is not None
    sequence.cached.count += count
    end = self._response_end(sequence, num_checked)
    if end is not None or output.done[slot]:
      self._leave_slot(sequence)
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
      if sequence.finish_reason is None:
        sequence.awaiting_tool = True
        self._awaiting_tools.append(sequence)

  def take_ended(self) -> list[SequenceState]:
    """Returns sequences that ended without a slot, each once."""
    ended, self._ended = self._ended, []
    return ended

  def cancel(self, requests: set[Request]) -> None:
    """Gives up the sequences of some requests."""
    self._queue.remove(requests)
    for group in self._groups:
      if group.request in requests:
        self._pages.release(group.cached)
    self._groups = [g for g in self._groups if g.request not in requests]
    live = (*self._running, *self._resuming, *self._awaiting_tools)
    for sequence in [s for s in live if s.request in requests]:
      if sequence in self._slots:
        self._leave_slot(sequence)
      self._drop_cache(sequence)
      _forget(sequence)
    for name in ("_resuming", "_awaiting_tools"):
      kept = [s for s in getattr(self, name) if s.request not in requests]
      setattr(self, name, kept)

  def drain(self) -> list[SequenceState]:
    """Takes all sequences; those with tokens will be prefilled again.

    Nothing else may be called after it.
    """
    waiting = [s for group in self._queue.drain() for s in group.sequences]
    waiting += [s for group in self._groups for s in group.waiting]
    drained = [*self._running, *self._resuming, *self._awaiting_tools, *waiting]
    for sequence in drained:
      sequence.cached = None
    self._slots = self._running = []
    del self._state, self._pool  # Their memory is freed.
    return drained

  def warm_up(self) -> None:
    """Compiles each program by running it once on empty slots."""
    for chunk in self._engine.prefill_chunks:
      nothing = empty_batch(self._engine, chunk)
      self._pool = self._engine.prefill(self._params, self._pool, nothing)
    for slots in self._engine.slot_counts:
      if slots < len(self._slots):
        more = len(self._slots)
        self._change_slots(slots)
        self._change_slots(more)
        self._change_slots(slots)
      jax.block_until_ready(self.decode())

  def _change_slots(self, slots: int) -> None:
    """Makes this many slots: all live ones first, then free ones."""
    kept = sorted(
      range(len(self._slots)), key=lambda slot: self._slots[slot] is None
    )[:slots]
    added = slots - len(kept)
    self._slots = [self._slots[slot] for slot in kept] + [None] * added
    self._changes.move(kept, slots)
    self.meter.record_dispatch()
    # New slots are copies of slot 0. `move` has marked them as done, so that
    # they decode nothing.
    kept = np.asarray(kept + [0] * added, np.int32)
    self._state = self._engine.compact(self._state, kept)


def _on_device(
  sequences: Iterable[SequenceState], device: int
) -> list[SequenceState]:
  """Returns the sequences that have pages on a device."""
  return [
    sequence
    for sequence in sequences
    if sequence.cached is not None
    and sequence.cached.pages
    and sequence.cached.device == device
  ]


def _forget(sequence: SequenceState) -> None:
  """Has the environment drop a conversation."""
  if sequence.request.environment is not None:
    sequence.request.environment.forget(sequence.id)
