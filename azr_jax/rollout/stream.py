"""A stream of samples: prompts are submitted while others decode.

A call of the decode loop has two halves: `send` starts it, and `fetch` waits
for its tokens. In between, the host is free to do other work.
"""

import contextlib
import itertools
from collections.abc import Iterable
from concurrent.futures import Future
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import UInt, UInt32

from azr_jax import types
from azr_jax.models.tokenizers import Tokenizer
from azr_jax.rollout import decode_state
from azr_jax.rollout.adapter_ref import BASE, AdapterRef
from azr_jax.rollout.drafts import Drafting
from azr_jax.rollout.engine import Engine
from azr_jax.rollout.kv_cache import KVCache
from azr_jax.rollout.meter import Meter, RequestMeter
from azr_jax.rollout.response_end import ResponseEnds
from azr_jax.rollout.scheduler import Scheduler
from azr_jax.rollout.sequence import Request, SequenceState
from azr_jax.rollout.tool_runner import ToolRunner
from azr_jax.rollout.weights import Weights


class SampleKey(NamedTuple):
  """Everything that a prompt's samples depend on besides weights and prompt.

  Attributes:
    key_data: the data of a random key.
    prompt_number: an integer folded into the key before the sample index.
    temperature: divisor of the logits, 0 is greedy; None uses
      `rollout.temperature`.
  """

  key_data: UInt32[np.ndarray, " U"]
  prompt_number: int
  temperature: float | None = None


# Key data, prompt number and sample index: unique for each sample of a run.
SampleId = tuple[bytes, int, int]


def sample_id(sequence: SequenceState) -> SampleId:
  """Returns the values that determine a sequence's random numbers."""
  request = sequence.request
  return (
    request.key_data.tobytes(),
    request.prompt_number,
    sequence.sample_index,
  )


class Stream:
  """Samples prompts that may be submitted at any time.

  A prompt's samples depend on its `SampleKey` and, except for rounding, not on
  when it was submitted, on slots, or on other prompts.

  Attributes:
    weights: the parameters to sample with, shared with the policies.
  """

  def __init__(
    self,
    engine: Engine,
    tokenizer: Tokenizer,
    ends: ResponseEnds,
    meter: Meter,
    weights: Weights,
    max_tokens: int,
    temperature: float = 1.0,
    shares_prefixes: bool = True,
    drafting: Drafting | None = None,
  ):
    """Opens a stream; `send` allocates slots when there is work.

    Args:
      engine: the compiled functions.
      tokenizer: decodes completions.
      ends: finds the ends of responses.
      meter: records tokens, calls and device times.
      weights: the parameters to sample with. While they are released, prompts
        wait.
      max_tokens: maximum number of tokens of a completion.
      temperature: divisor of the logits of prompts without their own.
      shares_prefixes: whether prompts with the same first tokens share pages.
      drafting: when decode calls draft. None never drafts.
    """
    self._engine = engine
    self._tokenizer = tokenizer
    self._ends = ends
    self._meter = meter
    self.weights = weights
    self._max_tokens, self._temperature = max_tokens, temperature
    self._shares_prefixes, self._drafting = shares_prefixes, drafting
    self._numbers = itertools.count()
    self._scheduler: Scheduler | None = None
    # Outlives the scheduler so that later prompts can reuse its prefixes, but
    # not the parameters.
    self._cache: KVCache | None = None
    self._output: decode_state.DecodeOutput | None = None
    self._ended: list[SequenceState] = []
    self._span = contextlib.ExitStack()
    # Sequences without a scheduler, waiting for parameters or memory.
    self._unscheduled: list[SequenceState] = []
    # Sequences of an earlier step or of a killed run, by id.
    self._restored: dict[SampleId, SequenceState] = {}

  def submit(
    self,
    prompt: types.Prompt,
    n: int,
    key: SampleKey,
    max_new_tokens: int | None = None,
    priority: tuple[int, ...] = (),
    tool_runner: ToolRunner | None = None,
    step_tokens: int = 0,
    stop_strings: tuple[str, ...] = (),
    adapter: AdapterRef = BASE,
    stop_ids: tuple[int, ...] = (),
    ignores_ends: bool = False,
  ) -> tuple[Request, "list[Future[types.Completion]]"]:
    """Submits a prompt to be sampled n times.

    Args:
      prompt: a prompt of any length up to the largest bucket.
      n: number of completions.
      key: determines the samples.
      max_new_tokens: maximum number of new tokens per completion, tool outputs
        included, from 1 to `max_tokens`, the default.
      priority: prompts with a smaller priority get slots first.
      tool_runner: runs the tool calls of conversations; None ends a completion
        with its first response.
      step_tokens: number of tokens after which a completion is paused, not
        counting restored ones; 0 never pauses.
      stop_strings: as in `Request`, like `adapter` and `stop_ids`.
      adapter: see there.
      stop_ids: see there.
      ignores_ends: see there.

    Returns:
      The request, for `cancel`, and the futures that `send` completes.

    Raises:
      ValueError: the prompt is longer than the largest bucket, or
        `max_new_tokens` is out of range.
    """
    buckets = self._engine.shapes.prompt_buckets
    if len(prompt.token_ids) > buckets[-1]:
      raise ValueError(
        f"a prompt has {len(prompt.token_ids)} tokens; expected at most the "
        f"largest of rollout.prompt_buckets={buckets}"
      )
    if max_new_tokens is None:
      max_new_tokens = self._max_tokens
    if not 1 <= max_new_tokens <= self._max_tokens:
      raise ValueError(
        f"max_new_tokens={max_new_tokens}: expected 1 to "
        f"rollout.max_tokens={self._max_tokens}"
      )
    request = Request(
      next(self._numbers),
      prompt,
      n,
      max_new_tokens,
      key.key_data,
      key.prompt_number,
      self._temperature if key.temperature is None else key.temperature,
      priority,
      tool_runner,
      *(stop_strings, adapter, stop_ids, ignores_ends),
    )
    sequences = [
      SequenceState(request, sample, step_tokens=step_tokens)
      for sample in range(n)
    ]
    for sequence in sequences:
      sequence.siblings = sequences
    self._resume(sequences)
    self._ended += [s for s in sequences if s.finish_reason is not None]
    waiting = [s for s in sequences if s.finish_reason is None]
    if self._scheduler is None:
      self._unscheduled += waiting
    elif waiting:
      self._scheduler.add(request, waiting)
    return request, [sequence.completion_future for sequence in sequences]

  def _resume(self, sequences: Iterable[SequenceState]) -> None:
    """Continues sequences that an earlier step or a killed run began."""
    for sequence in sequences if self._restored else ():
      known = self._restored.pop(sample_id(sequence), None)
      if known is not None:
        sequence.continue_from(known)
        is_paused = sequence.step_tokens > 0
        sequence.num_known = sequence.num_tokens if is_paused else 0

  def _make_slots(self) -> None:
    """Allocates slots and schedules the sequences that wait for them.

    Sequences that already have tokens are prefilled again.
    """
    self._span.enter_context(self._meter.spanning())
    if self._cache is None:
      self._cache = KVCache(self._engine, self._shares_prefixes)
    self._scheduler = Scheduler(
      self._engine,
      self.weights,
      self._cache,
      self._ends,
      RequestMeter(self._meter),
      self._drafting,
    )
    by_request: dict[Request, list[SequenceState]] = {}
    for sequence in self._unscheduled:
      by_request.setdefault(sequence.request, []).append(sequence)
    self._unscheduled = []
    for request, sequences in by_request.items():
      ordered = sorted(sequences, key=lambda s: s.sample_index)
      self._scheduler.add(request, ordered)

  @property
  def is_empty(self) -> bool:
    """Whether there is nothing to sample and every completion is delivered."""
    return not (self._scheduler or self._ended or self._unscheduled)

  @property
  def decoding(self) -> tuple[SequenceState, ...]:
    """The sequences in slots, with all tokens that were fetched."""
    if self._scheduler is None:
      return ()
    return tuple(self._scheduler.stages.running)

  @property
  def num_free_pages(self) -> int:
    """Number of free pages on all devices together."""
    devices = self._engine.shapes.devices
    if self._cache is None:
      return self._engine.num_pages * devices
    return sum(map(self._cache.pages.num_free, range(devices)))

  @property
  def num_free(self) -> int:
    """Number of slots left after all live and waiting sequences have one."""
    slots = self._engine.shapes.slot_counts[0]
    if self._scheduler is None:
      return slots - len(self._unscheduled)
    return slots - self._scheduler.stages.num_sequences

  def send(self) -> bool:
    """Fills free slots, starts a decode call and delivers completions.

    Returns:
      Whether a call was started; false if no sequence decodes.
    """
    ended, self._ended = self._ended, []
    if self._unscheduled and self.weights.params is not None:
      self._make_slots()
    scheduler = self._scheduler
    if scheduler is not None:
      scheduler.admit()
      if scheduler.stages.running:
        self._output = scheduler.decode()
      else:
        self._ended = scheduler.stages.take_ended()
        self._close_if_empty()
    for sequence in ended:
      self._deliver(sequence)
      if self._output is not None and scheduler is not None:
        scheduler.meter.check_ready(self._output.done)
    return self._output is not None

  def fetch(self) -> None:
    """Waits for the call that `send` started and collects its tokens."""
    if self._output is None or self._scheduler is None:
      return
    self._scheduler.meter.check_ready(self._output.done)
    output, self._output = self._output, None
    self._ended += self._scheduler.collect(jax.device_get(output))
    self._close_if_empty()

  def wait_for_tools(self) -> None:
    """Waits until a tool output arrives, if any is pending."""
    if self._scheduler is not None and self.awaits_tools:
      self._scheduler.receive_tool_outputs(wait=True)

  def cancel(self, requests: Iterable[Request]) -> None:
    """Drops the unfinished sequences of some requests."""
    cancelled = set(requests)
    self._unscheduled = [
      s for s in self._unscheduled if s.request not in cancelled
    ]
    if self._scheduler is not None:
      self._scheduler.cancel(cancelled)
      if self._output is None:
        self._close_if_empty()

  def deliver(self) -> bool:
    """Delivers completions without decoding; returns whether any were ready."""
    if self._scheduler is not None:
      self._ended += self._scheduler.stages.take_ended()
    ended, self._ended = self._ended, []
    for sequence in ended:
      self._deliver(sequence)
    return bool(ended)

  def _deliver(self, sequence: SequenceState) -> None:
    """Completes the future of a sequence that has ended."""
    # `siblings` includes the sequence itself. Break the reference cycle so that
    # everything the future's callbacks hold is freed now.
    sequence.siblings = ()
    sequence.completion_future.set_result(self._completion(sequence))

  @property
  def awaits_tools(self) -> bool:
    """Whether a sequence waits for a tool output."""
    return bool(self._scheduler and self._scheduler.stages.awaiting_tools)

  def suspend(self) -> None:
    """Takes all sequences out of the slots and frees slots and cache.

    The owner of the weights calls this between `fetch` and `send`, before
    releasing them. The sequences are prefilled again once new weights are
    restored.
    """
    if self._scheduler is not None:
      self._unscheduled += self._scheduler.drain()
    self.close()

  def close(self) -> None:
    """Frees slots and cache, even while callers still hold this stream."""
    self._scheduler = self._cache = self._output = None
    self._span.close()

  @property
  def suspended(self) -> list[SequenceState]:
    """The sequences of a suspended stream."""
    return list(self._unscheduled)

  def restore(self, known: Iterable[SequenceState]) -> None:
    """Registers sequences of an earlier step or of a killed run.

    `submit` resumes a registered sequence when its `SampleKey` and sample index
    match.
    """
    self._restored |= {sample_id(sequence): sequence for sequence in known}

  def _close_if_empty(self) -> None:
    """Frees the slots once no sequence is left."""
    if self._scheduler is not None and self._scheduler.stages.is_empty:
      self._scheduler = None
      if not self._shares_prefixes:
        self._cache = None
      self._span.close()

  def _completion(self, sequence: SequenceState) -> types.Completion:
    assert sequence.finish_reason is not None
    tokens = sequence.tokens
    text_ids = tokens.ids.tolist()
    if text_ids and text_ids[-1] in self._tokenizer.eos_ids:
      text_ids.pop()
    return types.Completion(
      token_ids=tokens.ids,
      logprobs=tokens.logprobs,
      loss_mask=tokens.loss_mask,
      finish_reason=sequence.finish_reason,
      text=self._tokenizer.decode(text_ids),
      versions=tokens.versions,
      experts=_trimmed(sequence.experts.take(), sequence.length - 1),
    )


def _trimmed(
  experts: UInt[np.ndarray, "_S L choices"] | None, count: int
) -> UInt[np.ndarray, "_inputs L choices"] | None:
  """Returns the experts of a completion's inputs, without those cut off."""
  return None if experts is None else experts[:count]
