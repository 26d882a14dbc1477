"""The sampler takes prompts and yields completions as they finish.

The life of a request:
1. prompts are grouped by the smallest prompt bucket that holds them;
2. a few prompts at a time are prefilled, `prefill_tokens` per call, between
   calls of the decode loop, so that a long prompt does not hold up decoding
   once half of the slots decode;
3. a prompt that is sampled n times is prefilled once and inserted into n slots
   as slots become free; a finished slot is refilled while others decode;
4. the decode loop runs `decode_chunk` tokens per call; between calls the host
   collects the tokens and looks for stop strings. Completions are yielded
   while the device runs the next call;
5. in a conversation (`environment.py`), a slot whose response called a tool
   keeps its cache and waits for the output while others decode.
"""

import copy
import dataclasses
import functools
import re
from collections.abc import Iterator, Sequence

import jax
import numpy as np
from jax.sharding import Mesh

from azr_jax import types
from azr_jax.models import transformer
from azr_jax.models.tokenizers import Tokenizer
from azr_jax.rollout.engine import Engine, make_engine
from azr_jax.rollout.environment import Environment, SequenceId
from azr_jax.rollout.meter import Meter, RequestMeter
from azr_jax.rollout.scheduler import Scheduler
from azr_jax.rollout.sequence import Request, SequenceState
from azr_jax.rollout.settings import SamplerSettings


class Sampler:
  """Samples completions from a decoder on a mesh."""

  def __init__(
    self,
    model: transformer.Transformer,
    tokenizer: Tokenizer,
    mesh: Mesh,
    rules: types.Rules,
    settings: SamplerSettings,
  ):
    """Builds the engine; nothing is compiled yet.

    Args:
      model: the decoder.
      tokenizer: decodes completions, and knows the stop ids.
      mesh: the layout to sample in.
      rules: logical parameter axis to mesh axis.
      settings: its config section.
    """
    self.settings = settings
    self._tokenizer = tokenizer
    self._engine = make_engine(model, mesh, rules, settings)
    stop_ids = set(tokenizer.eos_ids)
    strings = []
    for stop in settings.stop_strings:
      token = tokenizer.token_id(stop)
      # The device cannot look for what must come before.
      if token is None or settings.stop_after:
        strings.append(stop)
      else:
        stop_ids.add(token)
    self._stop_ids = np.asarray(sorted(stop_ids), np.int32)
    self._stop_strings = tuple(strings)
    self._stop_after = re.compile(settings.stop_after)
    self._at_temperature: dict[float, Sampler] = {}
    # Samplers of other temperatures count what they do here, too.
    self.meter = Meter()

  @property
  def engine(self) -> Engine:
    """The compiled functions, for measurements."""
    return self._engine

  def at_temperature(self, temperature: float) -> "Sampler":
    """Returns a sampler of another temperature with the same programs but one.

    The decode loop is compiled anew when it is first used; later calls return
    the same sampler.
    """
    if temperature == self.settings.temperature:
      return self
    if temperature not in self._at_temperature:
      sampler = copy.copy(self)
      sampler.settings = dataclasses.replace(
        self.settings, temperature=temperature
      )
      sampler._engine = self._engine.with_settings(sampler.settings)
      self._at_temperature[temperature] = sampler
    return self._at_temperature[temperature]

  @property
  def groups(self) -> int:
    """How many groups of devices have a copy of the weights of their own."""
    return self._engine.devices

  def bucket(self, length: int) -> int | None:
    """Returns the smallest prompt bucket for a length; None if none fits."""
    fitting = (b for b in self.settings.prompt_buckets if b >= length)
    return next(fitting, None)

  def compute_params(self, params: types.Params) -> types.Params:
    """Returns training parameters, cast and laid out for sampling."""
    return self._engine.compute_params(params)

  def warm_up(self, params: types.Params) -> None:
    """Compiles everything that `generate` runs; params as for `generate`."""
    request = self._request([], 1, jax.random.key(0), None, None)
    self._scheduler(params, request, None).warm_up()

  def generate(
    self,
    params: types.Params,
    prompts: Sequence[types.Prompt],
    n: int,
    key: jax.Array,
    max_new_tokens: Sequence[int] | None = None,
    prompt_seeds: Sequence[int] | None = None,
    environment: Environment | None = None,
  ) -> Iterator[tuple[int, int, types.Completion]]:
    """Samples n completions per prompt; uses up `key`.

    Args:
      params: what `compute_params` returned.
      prompts: any number, of any length up to the largest bucket.
      n: completions per prompt.
      key: random key; sample s of a prompt folds in (the prompt's seed, s), so
        that results depend on neither slots nor order, except for rounding.
      max_new_tokens: maximum number of tokens of a completion, for each prompt,
        1 to `max_tokens`; None gives all of them `max_tokens`.
      prompt_seeds: the integer that each prompt folds into the key; None takes
        the prompt's index.
      environment: runs the tool calls of conversations, and `max_new_tokens`
        counts whole conversations; None ends a completion with its first
        response.

    Yields:
      (prompt index, sample index, completion), as they finish.

    Raises:
      ValueError: a prompt is longer than the largest bucket, or one of
        `max_new_tokens` is out of range.
    """
    request = self._request(prompts, n, key, max_new_tokens, prompt_seeds)
    with self.meter.spanning():
      scheduler = self._scheduler(params, request, environment)
      yield from self._run(scheduler)

  def _run(
    self, scheduler: Scheduler
  ) -> Iterator[tuple[int, int, types.Completion]]:
    """Yields what `generate` yields."""
    ended: list[SequenceState] = []
    while scheduler.admit():
      if not scheduler.num_decoding:  # All live sequences await tool output.
        yield from self._completions(ended)
        ended = []
        scheduler.receive_tool_outputs(wait=True)
        continue
      output = scheduler.decode()
      for completion in self._completions(ended):
        yield completion
        scheduler.meter.look(output.done)
      scheduler.meter.look(output.done)
      ended = scheduler.collect(jax.device_get(output))
    yield from self._completions(ended)

  def _request(
    self,
    prompts: Sequence[types.Prompt],
    n: int,
    key: jax.Array,
    max_new_tokens: Sequence[int] | None,
    prompt_seeds: Sequence[int] | None,
  ) -> Request:
    """Checks what `generate` was given, and groups the prompts by bucket."""
    # Long prompts come first, because the last ones delay the request's end.
    by_bucket: dict[int, list[int]] = {
      bucket: [] for bucket in reversed(self.settings.prompt_buckets)
    }
    for index, prompt in enumerate(prompts):
      bucket = self.bucket(len(prompt.token_ids))
      if bucket is None:
        raise ValueError(
          f"prompt {index} has {len(prompt.token_ids)} tokens; expected at "
          "most the largest of rollout.prompt_buckets="
          f"{self.settings.prompt_buckets}"
        )
      by_bucket[bucket].append(index)
    if max_new_tokens is None:
      max_new_tokens = [self.settings.max_tokens] * len(prompts)
    for index, count in enumerate(max_new_tokens):
      if not 1 <= count <= self.settings.max_tokens:
        raise ValueError(
          f"max_new_tokens[{index}]={count}: expected 1 to rollout.max_tokens="
          f"{self.settings.max_tokens}"
        )
    seeds = range(len(prompts)) if prompt_seeds is None else prompt_seeds
    return Request(prompts, by_bucket, n, max_new_tokens, seeds, key)

  def _scheduler(
    self,
    params: types.Params,
    request: Request,
    environment: Environment | None,
  ) -> Scheduler:
    return Scheduler(
      self._engine,
      params,
      request,
      self._stop_ids,
      functools.partial(self._response_end, environment),
      environment,
      RequestMeter(self.meter),
    )

  def _response_end(
    self,
    environment: Environment | None,
    sequence_id: SequenceId,
    token_ids: Sequence[int],
    response_start: int,
    num_checked: int,
  ) -> int | None:
    """Finds the end of a response by stop string or environment.

    Args:
      environment: may also end responses; None if there are no tools.
      sequence_id: the sequence.
      token_ids: the completion so far.
      response_start: index of the response's first token.
      num_checked: how many of the tokens are known to hold no end.

    Returns:
      How many tokens there are up to the first end, or None.
    """
    ends = [self._stop_string_end(token_ids, response_start, num_checked)]
    if environment is not None:
      ends.append(
        environment.end_of_response(
          sequence_id, token_ids, response_start, num_checked
        )
      )
    return min((end for end in ends if end is not None), default=None)

  def _stop_string_end(
    self, token_ids: Sequence[int], response_start: int, num_checked: int
  ) -> int | None:
    """Returns how many tokens there are up to the end of a stop string.

    A stop string may begin in the checked tokens, but no further back than it
    has characters. Only a response with a stop string is searched for what
    must come before.
    """
    if not self._stop_strings or num_checked == len(token_ids):
      return None
    longest = max(map(len, self._stop_strings))
    first = max(response_start, num_checked - longest)

    def text(first: int, count: int) -> str:
      return self._tokenizer.decode(list(token_ids[first:count]))

    def stops(count: int) -> bool:
      searched, start = text(first, count), 0
      if self._stop_after.pattern:
        searched = text(response_start, count)
        before = self._stop_after.search(searched)
        if before is None:
          return False
        start = before.end()
      return any(searched.find(s, start) >= 0 for s in self._stop_strings)

    window = text(first, len(token_ids))
    if not any(stop in window for stop in self._stop_strings):
      return None
    if not stops(len(token_ids)):
      return None
    low, high = num_checked + 1, len(token_ids)
    while low < high:
      middle = (low + high) // 2
      low, high = (low, middle) if stops(middle) else (middle + 1, high)
    return low

  def _completions(
    self, ended: Sequence[SequenceState]
  ) -> Iterator[tuple[int, int, types.Completion]]:
    """Yields the completions of sequences that have ended."""
    for sequence in ended:
      yield (*sequence.id, self._completion(sequence))

  def _completion(self, sequence: SequenceState) -> types.Completion:
    assert sequence.finish_reason is not None
    text_ids = sequence.token_ids
    if text_ids and text_ids[-1] in self._tokenizer.eos_ids:
      text_ids = text_ids[:-1]
    return types.Completion(
      token_ids=np.asarray(sequence.token_ids, np.int32),
      logprobs=np.asarray(sequence.logprobs, np.float32),
      loss_mask=np.asarray(sequence.loss_mask, bool),
      finish_reason=sequence.finish_reason,
      text=self._tokenizer.decode(text_ids),
    )
