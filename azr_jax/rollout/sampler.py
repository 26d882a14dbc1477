"""The sampler: prompts in, completions out as they finish.

The life of a request:
1. prompts are grouped by the smallest prompt bucket that holds them;
2. a prompt sampled n times is prefilled once and its cache fanned out;
3. the decode loop runs `decode_chunk` tokens a call; between calls the host
   takes the finished rows and looks for stop strings in the others.

Every array shape comes from the declared buckets and slots, so the set of
compiled programs is fixed: one prefill per bucket and fan-out, one decode per
bucket.
"""

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from azr_jax import types
from azr_jax.models import transformer
from azr_jax.models.tokenizers import Tokenizer
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.rollout import decode as decode_lib
from azr_jax.rollout import token_choice


@dataclasses.dataclass(frozen=True)
class SamplerSettings:
  """The declared shapes and rules of sampling.

  Attributes:
    slots: sequences decoded at the same time.
    prompt_buckets: prompt lengths that are compiled, ascending, in tokens.
    max_tokens: most tokens sampled for a completion.
    decode_chunk: tokens per device call.
    stop_strings: a completion ends where one of these is complete.
    choice: how a token is drawn.
  """

  slots: int
  prompt_buckets: tuple[int, ...]
  max_tokens: int
  decode_chunk: int
  stop_strings: tuple[str, ...]
  choice: token_choice.TokenChoice


@dataclasses.dataclass(frozen=True)
class _Row:
  """One sequence to sample: which prompt, and which of its n samples."""

  prompt: int
  sample: int


class Sampler:
  """Samples completions from a decoder on a mesh."""

  def __init__(
    self,
    model: transformer.Transformer,
    tokenizer: Tokenizer,
    mesh: Mesh,
    settings: SamplerSettings,
  ):
    self._model = model
    self._tokenizer = tokenizer
    self._mesh = mesh
    self.settings = settings
    stop_ids = set(tokenizer.eos_ids)
    strings = []
    for stop in settings.stop_strings:
      token = tokenizer.token_id(stop)
      if token is None:
        strings.append(stop)
      else:
        stop_ids.add(token)
    self._stop_ids = jnp.asarray(sorted(stop_ids), jnp.int32)
    self._stop_strings = tuple(strings)
    self._slots = mesh_lib.padded_rows(settings.slots, mesh)
    rows = mesh_lib.batch_sharding(mesh)
    cache = mesh_lib.batch_sharding(mesh, axis=1)
    shardings = decode_lib.DecodeState(
      cache={"k": cache, "v": cache},
      **dict.fromkeys(
        ("logits", "length", "written", "done", "tokens", "logprobs", "keys"),
        rows,
      ),
    )
    self._start = jax.jit(
      functools.partial(_start, model=model, max_tokens=settings.max_tokens),
      out_shardings=shardings,
    )
    self._decode = jax.jit(
      functools.partial(
        decode_lib.decode,
        model,
        choice=settings.choice,
        steps=settings.decode_chunk,
      ),
      out_shardings=shardings,
      donate_argnums=1,
    )

  def bucket(self, length: int) -> int | None:
    """The smallest prompt bucket for a length; None if it fits in none."""
    fitting = (b for b in self.settings.prompt_buckets if b >= length)
    return next(fitting, None)

  def generate(
    self,
    params: Any,
    prompts: Sequence[types.Prompt],
    n: int,
    key: jax.Array,
  ) -> Iterator[tuple[int, int, types.Completion]]:
    """Samples n completions per prompt; uses up `key`.

    Args:
      params: the decoder's parameters.
      prompts: any number, of any length up to the largest bucket.
      n: completions per prompt.
      key: random key; sample s of prompt p folds in (p, s), so results do
        not depend on slots or order.

    Yields:
      (prompt index, sample index, completion), as they finish.

    Raises:
      ValueError: a prompt is longer than the largest bucket.
    """
    by_bucket: dict[int, list[_Row]] = {}
    for index, prompt in enumerate(prompts):
      bucket = self.bucket(len(prompt.token_ids))
      if bucket is None:
        raise ValueError(
          f"prompt {index} has {len(prompt.token_ids)} tokens; expected at "
          "most the largest of rollout.prompt_buckets="
          f"{self.settings.prompt_buckets}"
        )
      rows = by_bucket.setdefault(bucket, [])
      rows.extend(_Row(index, sample) for sample in range(n))
    for bucket in sorted(by_bucket):
      rows = by_bucket[bucket]
      for first in range(0, len(rows), self._slots):
        yield from self._generate_batch(
          params, prompts, rows[first : first + self._slots], bucket, n, key
        )

  def _generate_batch(
    self,
    params: Any,
    prompts: Sequence[types.Prompt],
    rows: list[_Row],
    bucket: int,
    n: int,
    key: jax.Array,
  ) -> Iterator[tuple[int, int, types.Completion]]:
    """Decodes up to `slots` rows of one bucket to their ends."""
    order = list(dict.fromkeys(row.prompt for row in rows))
    # A batch may cut a group in two, hence one prompt more than slots / n.
    places = self._slots if n == 1 else self._slots // n + 2
    places = mesh_lib.padded_rows(places, self._mesh)
    tokens = np.full((places, bucket), self._tokenizer.pad_id, np.int32)
    lengths = np.ones(places, np.int32)
    for place, index in enumerate(order):
      ids = prompts[index].token_ids
      tokens[place, : len(ids)] = ids
      lengths[place] = len(ids)
    source = np.zeros(self._slots, np.int32)
    streams = np.zeros((self._slots, 2), np.int32)
    for slot, row in enumerate(rows):
      source[slot] = order.index(row.prompt)
      streams[slot] = row.prompt, row.sample
    live = np.arange(self._slots) < len(rows)
    state = self._start(params, tokens, lengths, source, live, streams, key)
    limit = jnp.full(self._slots, self.settings.max_tokens, jnp.int32)
    waiting = dict(enumerate(rows))
    while waiting:
      state = self._decode(params, state, stop_ids=self._stop_ids, limit=limit)
      done, written, ids, logprobs = jax.device_get(
        (state.done, state.written, state.tokens, state.logprobs)
      )
      cut = np.zeros(self._slots, bool)
      for slot, row in list(waiting.items()):
        count = int(written[slot])
        end = self._stop_string_end(ids[slot, :count])
        if end is None and not done[slot]:
          continue
        cut[slot] = not done[slot]
        del waiting[slot]
        yield (
          row.prompt,
          row.sample,
          self._completion(ids[slot, :count], logprobs[slot, :count], end),
        )
      if cut.any():
        state = state.replace(
          done=jax.device_put(done | cut, state.done.sharding)
        )

  def _stop_string_end(self, ids: np.ndarray) -> int | None:
    """Tokens up to and with the one that completes a stop string, if any."""
    if not self._stop_strings:
      return None
    text = self._tokenizer.decode(ids.tolist())
    if not any(stop in text for stop in self._stop_strings):
      return None
    low, high = 1, len(ids)
    while low < high:
      middle = (low + high) // 2
      text = self._tokenizer.decode(ids[:middle].tolist())
      if any(stop in text for stop in self._stop_strings):
        high = middle
      else:
        low = middle + 1
    return low

  def _completion(
    self, ids: np.ndarray, logprobs: np.ndarray, end: int | None
  ) -> types.Completion:
    ids, logprobs = ids[:end].copy(), logprobs[:end].copy()
    stopped = end is not None or ids[-1] in np.asarray(self._stop_ids)
    text_ids = ids.tolist()
    if text_ids and text_ids[-1] in self._tokenizer.eos_ids:
      text_ids = text_ids[:-1]
    return types.Completion(
      token_ids=ids,
      logprobs=logprobs,
      loss_mask=np.ones(len(ids), bool),
      finish_reason="stop" if stopped else "length",
      text=self._tokenizer.decode(text_ids),
    )


def _start(
  params: Any,
  tokens: jax.Array,
  lengths: jax.Array,
  source: jax.Array,
  live: jax.Array,
  streams: jax.Array,
  key: jax.Array,
  *,
  model: transformer.Transformer,
  max_tokens: int,
) -> decode_lib.DecodeState:
  """Prefills a batch of prompts and fans them out to rows."""
  cache, logits = decode_lib.prefill(
    model, params, tokens, lengths, tokens.shape[1] + max_tokens
  )

  def row_key(stream: jax.Array) -> jax.Array:
    prompt_key = jax.random.fold_in(key, stream[0])
    return jax.random.fold_in(prompt_key, stream[1])

  keys = jax.vmap(row_key)(streams)
  return decode_lib.fan_out(
    cache, logits, lengths, source, live, keys, max_tokens
  )
