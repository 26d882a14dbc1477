"""The scheduler: the host side of continuous batching.

The life of a sequence:
1. Its prompt waits in a queue, long prompts first. Then it is prefilled in
   chunks, together with other prompts of its bucket, between calls of the
   decode loop (`prefill_scheduler.py`).
2. It enters a free slot on the device of its pages (`admission.py`). Samples of
   a prompt share its full pages, and each gets a copy of the last one.
3. The slot decodes; after each call the host collects the new tokens.
4. When a response ends, the sequence either ends or calls a tool. Both free the
   slot. The tool output is prefilled into the sequence's pages, and the
   sequence enters a slot again. A sequence that has used up its tokens of this
   step is paused: it leaves the scheduler as if it had ended.

When pages run out, sequences are preempted (`preemption.py`).
"""

import functools
from collections.abc import Iterable, Iterator

import jax
import numpy as np
from jaxtyping import Bool

from azr_jax.rollout import decode_state
from azr_jax.rollout.admission import Admission
from azr_jax.rollout.drafts import Drafting, DraftPolicy
from azr_jax.rollout.engine import Engine
from azr_jax.rollout.expert_reader import ExpertReader
from azr_jax.rollout.kv_cache import KVCache
from azr_jax.rollout.meter import RequestMeter
from azr_jax.rollout.preemption import PageAllocator
from azr_jax.rollout.prefill_scheduler import empty_batch, next_batch
from azr_jax.rollout.response_end import ResponseEnds
from azr_jax.rollout.sequence import Request, SequenceState
from azr_jax.rollout.sequence_stages import Stages
from azr_jax.rollout.slots import SlotTable
from azr_jax.rollout.tokens import DecodedCall
from azr_jax.rollout.tool_runner import ToolOutput, ToolRunner
from azr_jax.rollout.weights import Weights


class Scheduler:
  """Assigns sequences to the slots and pages of an engine.

  Call `admit`, `decode` and `collect` in turn while there are sequences. More
  may be added between any two of these calls.

  Attributes:
    meter: counts the calls of the decode loop.
    stages: the sequences, by stage.
  """

  def __init__(
    self,
    engine: Engine,
    weights: Weights,
    cache: KVCache,
    ends: ResponseEnds,
    meter: RequestMeter,
    drafting: Drafting | None = None,
  ):
    """Creates empty slots; nothing runs yet.

    Args:
      engine: the compiled functions.
      weights: the parameters to sample with.
      cache: keys and values of these parameters; no sequence may use its pages.
      ends: finds the ends of responses.
      meter: counts the calls of the decode loop.
      drafting: when decode calls draft. None never drafts.
    """
    self.meter = meter
    self._engine = engine
    self._weights = weights
    self._ends = ends
    self._stop_ids = np.asarray(sorted(ends.stop_ids), np.int32)
    self._cache = cache
    # The tokens per slot that a call drafts from; 0 without drafts.
    self._contexts = (0, drafting.context) if drafting else (0,)
    self._context = 0
    self._draft_policy = DraftPolicy(drafting)
    self.stages = Stages(engine.shapes.prompt_buckets)
    self._slots = SlotTable(engine, self.stages, meter)
    self._reader = ExpertReader(engine, cache)
    self._allocator = PageAllocator(
      *(cache.pages, self.stages, self._slots),
      engine.shapes.decode_chunk,
      self._reader.note,
    )
    self._admission = Admission(
      engine.shapes,
      cache.pages,
      self.stages,
      self._slots,
      self._allocator,
      meter,
    )

  def add(self, request: Request, sequences: Iterable[SequenceState]) -> None:
    """Adds sequences of a prompt; those that have tokens are resumed."""
    waiting = []
    for sequence in sequences:
      if sequence.awaiting_tool:
        self.stages.awaiting_tools.append(sequence)
      else:
        waiting.append(sequence)
    if waiting:
      self.stages.queue.add(request, waiting)

  def admit(self) -> None:
    """Receives tool outputs, prefills pending tokens, and fills free slots.

    It prefills until no waiting sequence can take a free slot, because a decode
    call costs nearly as much with few live slots as with all of them.
    """
    self.receive_tool_outputs(wait=False)
    self._admission.resize_slots()
    progress = True
    while progress:
      # Prefilled sequences get pages before new ones are prefilled.
      progress = self._admission.fill_slots()
      self._admission.prepare_groups()
      self._admission.resize_slots()
      progress = self._prefill() or progress
      progress = self._admission.fill_slots() or progress
      if not progress:
        progress = self._allocator.free_some()
      elif not self._admission.has_takers:
        break

  def _prefill(self) -> bool:
    """Prefills the next pending tokens; returns whether there were any."""
    waiting = [*self.stages.resuming, *self.stages.groups]
    cache = self._cache
    batch = next_batch(
      self._engine.shapes, cache.pages, waiting, self._allocator.allocate
    )
    if batch is None:
      return False
    with jax.profiler.TraceAnnotation("prefill"):
      self.meter.record_prefill(int(np.sum(batch.counts)))
      self._reader.flush()
      cache.pool = self._engine.prefill(self._weights.params, cache.pool, batch)
    return True

  def receive_tool_outputs(self, wait: bool) -> None:
    """Collects the tool outputs that have arrived.

    A tool output ends its sequence if it leaves no room for another token, or
    if it is a finish reason. It pauses the sequence if it uses up the step's
    tokens.

    Args:
      wait: whether to block until at least one output has arrived.
    """
    awaiting = self.stages.awaiting_tools
    for sequence, output in _tool_outputs(awaiting, wait):
      self._receive(sequence, output)

  def _receive(self, sequence: SequenceState, output: ToolOutput) -> None:
    """Appends a tool output to its sequence, which may end it."""
    self.stages.awaiting_tools.remove(sequence)
    sequence.awaiting_tool = False
    room = sequence.request.max_new_tokens - sequence.num_tokens
    if isinstance(output, str):
      sequence.finish_reason = output
    elif len(output) >= room:
      sequence.finish_reason = "length"
    else:
      sequence.receive_tool_output(output, self._weights.version)
      sequence.finish_reason = sequence.reason_at_limit
    if sequence.finish_reason is not None:
      self._leave([sequence])
      self.stages.ended.append(sequence)
    else:
      self._resume(sequence)

  def _resume(self, sequence: SequenceState) -> None:
    """Makes a sequence that left its slot wait for one."""
    if sequence.cached is None:
      self.add(sequence.request, [sequence])
    else:
      self.stages.resuming.append(sequence)

  @functools.partial(jax.profiler.annotate_function, name="decode")
  def decode(self) -> decode_state.DecodeOutput:
    """Starts the next call of the decode loop without waiting for it."""
    self._allocator.allocate_running()
    slots, decoding = len(self._slots), len(self.stages.running)
    min_live = 0
    if self.stages.has_waiting:
      # Refill slots an eighth at a time, because interrupting the decode loop
      # is expensive.
      min_live = decoding - max(1, slots // 8)
    for tool_runner in _tool_runners(self.stages.live):
      tool_runner.record_occupancy(
        decoding, len(self.stages.awaiting_tools), slots
      )
    self._context = self._draft_policy.begin_call(self._slots.num_live)
    return self._send(self._context, max(0, min_live))

  def _send(self, context: int, min_live: int = 0) -> decode_state.DecodeOutput:
    """Starts a call of the decode loop.

    Args:
      context: the tokens per slot to draft from; 0 without drafts.
      min_live: as for `decode.decode`.
    """
    self.meter.record_decode_dispatch()
    self._reader.flush()
    self._cache.pool, self._slots.state, output = self._engine.decode(
      self._weights.params,
      self._cache.pool,
      self._slots.state,
      self._slots.take_changes(context),
      self._stop_ids,
      np.int32(min_live),
    )
    return output

  @functools.partial(jax.profiler.annotate_function, name="collect_tokens")
  def collect(self, output: decode_state.DecodeOutput) -> list[SequenceState]:
    """Appends the generated tokens to the sequences.

    Args:
      output: the result of `decode`, on the host.

    Returns:
      The sequences that have ended. Their slots are free again.
    """
    generated = np.asarray(output.num_generated)
    iterations = np.asarray(output.iterations)
    if self._context:
      self._draft_policy.end_call(int(generated.sum()), int(iterations.sum()))
    self.meter.fetched(generated, iterations, self._slots.lengths)
    call = DecodedCall(
      np.asarray(output.tokens),
      np.asarray(output.logprobs),
      generated,
      self._weights.version,
    )
    self._slots.add_tokens(call)
    left = self._end_responses(call, np.asarray(output.done))
    self._leave(left)
    return [*self.stages.take_ended(), *left]

  def _end_responses(
    self, call: DecodedCall, done: Bool[np.ndarray, " B"]
  ) -> list[SequenceState]:
    """Ends the responses that a call completed.

    Args:
      call: the tokens of the call, already added to the slots.
      done: the slots whose responses the device stopped.

    Returns:
      The sequences that ended with their response.
    """
    slots, counts, ended = self._slots, call.num_generated, []
    to_search = slots.watched | self._ends.may_end(call.ids, counts)
    if (marked := slots.marked).any():
      to_search |= marked & self._ends.have(slots.marks, call.ids, counts)
    for slot in np.flatnonzero(slots.occupied & (done | to_search)):
      sequence, end = slots.sequences[slot], None
      assert sequence is not None
      if to_search[slot] and not sequence.request.ignores_ends:
        num_checked = sequence.num_tokens - int(counts[slot])
        end = self._ends.find(sequence, num_checked)
      if end is not None or done[slot]:
        slots.leave(sequence)
        last = int(call.ids[slot, counts[slot] - 1])
        self._end_response(sequence, end, last)
      if sequence.finish_reason is not None:
        ended.append(sequence)
    return ended

  def _leave(self, sequences: Iterable[SequenceState]) -> None:
    """Records that sequences ended; frees their pages and conversations."""
    written = 0
    for sequence in sequences:
      self._allocator.drop(sequence)
      written += sequence.num_written
      _forget(sequence)
    # The last sequences may not be followed by a call that writes pages.
    self._reader.flush()
    self.meter.ended(written)

  def _end_response(
    self, sequence: SequenceState, end: int | None, last: int
  ) -> None:
    """Ends a response, and its sequence too unless it called a tool.

    Args:
      sequence: the sequence whose last response has ended.
      end: number of tokens to keep. None if the device stopped it, at a stop id
        or at `max_new_tokens`.
      last: the last token.
    """
    if end is not None:
      sequence.truncate(end)
    elif last not in self._ends.stop_ids or sequence.request.ignores_ends:
      sequence.finish_reason = sequence.reason_at_limit
      if sequence.finish_reason is None:
        self._resume(sequence)
      return
    sequence.finish_reason = "stop"
    tool_runner = sequence.request.tool_runner
    if tool_runner is not None:
      sequence.finish_reason = tool_runner.step(
        sequence.id, sequence.request.prompt, sequence.responses
      )
      if sequence.finish_reason is None:
        sequence.awaiting_tool = True
        self.stages.awaiting_tools.append(sequence)

  def cancel(self, requests: set[Request]) -> None:
    """Drops the sequences of some requests."""
    for group in self.stages.groups:
      if group.request in requests:
        group.release(self._cache.pages)
    for sequence in self.stages.live:
      if sequence.request not in requests:
        continue
      if sequence in self.stages.running:
        self._slots.leave(sequence)
      self._allocator.drop(sequence)
      _forget(sequence)
    self.stages.forget(requests)

  def drain(self) -> list[SequenceState]:
    """Removes and returns all sequences; prefill them again elsewhere.

    The scheduler cannot be used afterwards.
    """
    for sequence in self.stages.live:
      # A slot's tokens are all cached but for the last.
      decodes = sequence in self.stages.running
      self._reader.note(sequence, sequence.length - 1 if decodes else None)
    self._reader.flush()
    drained = self.stages.drain()
    self._slots.close()
    return drained

  def warm_up(self) -> None:
    """Compiles each program by running it once on empty slots."""
    shapes = self._engine.shapes
    self._reader.warm_up()
    for chunk in shapes.prefill_chunks:
      nothing = empty_batch(shapes, chunk)
      self._cache.pool = self._engine.prefill(
        self._weights.params, self._cache.pool, nothing
      )
    for slots in shapes.slot_counts:
      if slots < len(self._slots):
        more = len(self._slots)
        self._slots.change_count(slots)
        self._slots.change_count(more)
        self._slots.change_count(slots)
      for context in self._contexts:
        jax.block_until_ready(self._send(context))


def _tool_runners(sequences: Iterable[SequenceState]) -> list[ToolRunner]:
  """Returns the distinct tool runners of some sequences."""
  every = (sequence.request.tool_runner for sequence in sequences)
  return list({id(one): one for one in every if one is not None}.values())


def _tool_outputs(
  awaiting: Iterable[SequenceState], wait: bool
) -> Iterator[tuple[SequenceState, ToolOutput]]:
  """Yields the tool outputs that have arrived, with their sequences.

  Args:
    awaiting: the sequences that wait for a tool.
    wait: whether to block until at least one output has arrived.
  """
  sequences = list(awaiting)
  every = _tool_runners(sequences)
  for tool_runner in every:
    by_id = {
      sequence.id: sequence
      for sequence in sequences
      if sequence.request.tool_runner is tool_runner
    }
    outputs = tool_runner.tool_outputs(wait and len(every) == 1)
    for name, output in outputs.items():
      if name in by_id:  # Outputs of cancelled sequences are dropped.
        yield by_id[name], output


def _forget(sequence: SequenceState) -> None:
  """Makes the tool runner drop a sequence's conversation."""
  if sequence.request.tool_runner is not None:
    sequence.request.tool_runner.forget(sequence.id)
