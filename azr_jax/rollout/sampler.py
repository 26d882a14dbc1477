"""The sampler: prompts in, completions out as they finish.

The life of a request:
1. prompts are grouped by the smallest prompt bucket that holds them;
2. a few prompts at a time are read, `prefill_tokens` a call, between the calls
   that decode, so a long prompt does not hold up decoding once half of the
   slots are at work;
3. a prompt that is sampled n times is read once and copied into n slots, as
   slots become free; a slot that is done is filled anew while others go on;
4. the decode loop runs `decode_chunk` tokens a call; between calls the host
   takes what was written and looks for stop strings. Completions are handed
   out while the device is at work on the next call;
5. in a conversation (`environment.py`), a slot whose reply has ended waits for
   the tool output with its cache, while others go on.
"""

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from azr_jax import types
from azr_jax.models import transformer
from azr_jax.models.tokenizers import Tokenizer
from azr_jax.rollout.engine import make_programs
from azr_jax.rollout.settings import SamplerSettings
from azr_jax.rollout.environment import Environment
from azr_jax.rollout.scheduler import Request, Row


class Sampler:
  """Samples completions from a decoder on a mesh."""

  def __init__(
    self,
    model: transformer.Transformer,
    tokenizer: Tokenizer,
    mesh: Mesh,
    rules: Mapping[str, str | None],
    settings: SamplerSettings,
  ):
    """Compiles nothing yet; arguments as for `programs.make_programs`."""
    self.settings = settings
    self._tokenizer = tokenizer
    self._programs = make_programs(model, mesh, rules, settings)
    stop_ids = set(tokenizer.eos_ids)
    strings = []
    for stop in settings.stop_strings:
      token = tokenizer.token_id(stop)
      if token is None:
        strings.append(stop)
      else:
        stop_ids.add(token)
    self._stop_ids = np.asarray(sorted(stop_ids), np.int32)
    self._stop_strings = tuple(strings)

  def bucket(self, length: int) -> int | None:
    """The smallest prompt bucket for a length; None if it fits in none."""
    fitting = (b for b in self.settings.prompt_buckets if b >= length)
    return next(fitting, None)

  def compute_params(self, params: Any) -> Any:
    """Training parameters, cast and laid out for sampling."""
    return self._programs.compute_params(params)

  def warm_up(self, params: Any) -> None:
    """Compiles all that `generate` runs; params as for `generate`."""
    request = self._request(params, [], 1, None, jax.random.key(0), None, None)
    request.warm_up()

  def generate(
    self,
    params: Any,
    prompts: Sequence[types.Prompt],
    n: int,
    key: jax.Array,
    limits: Sequence[int] | None = None,
    numbers: Sequence[int] | None = None,
    environment: Environment | None = None,
  ) -> Iterator[tuple[int, int, types.Completion]]:
    """Samples n completions per prompt; uses up `key`.

    Args:
      params: what `compute_params` returned.
      prompts: any number, of any length up to the largest bucket.
      n: completions per prompt.
      key: random key; sample s of prompt p folds in (number of p, s), so
        results do not depend on slots or order, but for rounding.
      limits: most tokens per completion of each prompt, each of 1 to
        `max_tokens`; None gives all of them `max_tokens`.
      numbers: of each prompt, for its random key; None: its index.
      environment: runs the tool calls of multi-turn conversations; limits are
        then of whole conversations. None: one reply is the completion.

    Yields:
      (prompt index, sample index, completion), as they finish.

    Raises:
      ValueError: a prompt is longer than the largest bucket, or a limit is
        out of range.
    """
    request = self._request(
      params, prompts, n, limits, key, numbers, environment
    )
    ended: list[Row] = []
    while request.fill_up():
      if not request.writing:  # All wait for answers.
        for row in ended:
          yield row.prompt, row.sample, self._completion(row)
        ended = []
        request.hear(wait=True)
        continue
      written = request.decode()
      for row in ended:
        yield row.prompt, row.sample, self._completion(row)
      ended = request.take(jax.device_get(written))
    for row in ended:
      yield row.prompt, row.sample, self._completion(row)

  def _request(
    self,
    params: Any,
    prompts: Sequence[types.Prompt],
    n: int,
    limits: Sequence[int] | None,
    key: jax.Array,
    numbers: Sequence[int] | None,
    environment: Environment | None,
  ) -> Request:
    # Long prompts first: what comes last holds up the end of the request.
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
    if limits is None:
      limits = [self.settings.max_tokens] * len(prompts)
    for index, limit in enumerate(limits):
      if not 1 <= limit <= self.settings.max_tokens:
        raise ValueError(
          f"limits[{index}]={limit}: expected 1 to rollout.max_tokens="
          f"{self.settings.max_tokens}"
        )
    return Request(
      self._programs,
      params,
      prompts,
      by_bucket,
      n,
      limits,
      range(len(prompts)) if numbers is None else numbers,
      key,
      self._stop_ids,
      functools.partial(self._end_of_reply, environment),
      environment,
    )

  def _end_of_reply(
    self,
    environment: Environment | None,
    ids: Sequence[int],
    start: int,
    seen: int,
  ) -> int | None:
    """The first end of a reply, by a stop string or by whoever answers it."""
    ends = [self._stop_string_end(ids, start, seen)]
    if environment is not None:
      ends.append(environment.end_of_reply(ids, start, seen))
    return min((end for end in ends if end is not None), default=None)

  def _stop_string_end(
    self, ids: Sequence[int], start: int, seen: int
  ) -> int | None:
    """Ids up to and with the one that completes a stop string, if any.

    `seen` of the ids are known to complete none. A stop string may have begun
    in them, but no further back than it has characters.
    """
    if not self._stop_strings or seen == len(ids):
      return None
    first = max(start, seen - max(map(len, self._stop_strings)))

    def stops(count: int) -> bool:
      text = self._tokenizer.decode(list(ids[first:count]))
      return any(stop in text for stop in self._stop_strings)

    if not stops(len(ids)):
      return None
    low, high = seen + 1, len(ids)
    while low < high:
      middle = (low + high) // 2
      low, high = (low, middle) if stops(middle) else (middle + 1, high)
    return low

  def _completion(self, row: Row) -> types.Completion:
    assert row.finish_reason is not None
    text_ids = row.tokens
    if text_ids and text_ids[-1] in self._tokenizer.eos_ids:
      text_ids = text_ids[:-1]
    return types.Completion(
      token_ids=np.asarray(row.tokens, np.int32),
      logprobs=np.asarray(row.logprobs, np.float32),
      loss_mask=np.asarray(row.own, bool),
      finish_reason=row.finish_reason,
      text=self._tokenizer.decode(text_ids),
    )
