"""Tokens per second of the sampler, and its share of the roofline."""

import pathlib
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from azr_jax import types
from azr_jax.models import transformer
from azr_jax.models.config import ModelConfig
from azr_jax.models.load import ModelSource
from azr_jax.models.presets import parameter_count
from azr_jax.perf import comparison, device
from azr_jax.perf.workload import SamplerWorkload
from azr_jax.rollout.settings import SamplerSettings
from azr_jax.rollout.sampler import Sampler
from azr_jax.rollout.token_sampling import SamplingParams


class Runner:
  """The sampler, ready to do a workload again and again."""

  def __init__(
    self,
    source: ModelSource,
    params: Any,
    model: transformer.Transformer,
    mesh: jax.sharding.Mesh,
    rules: dict[str, str | None],
    workload: SamplerWorkload,
    settings: dict[str, int],
  ):
    """Builds the sampler and compiles it; `compile_s` says how long it took.

    Args:
      source: where the tokenizer comes from.
      params: the decoder's parameters.
      model: the decoder.
      mesh: where it runs.
      rules: logical axis to mesh axis.
      workload: what to sample.
      settings: prefill_tokens, decode_chunk and cache_chunk.
    """
    self._workload = workload
    # The first token of each is drawn from its prompt's logits.
    self.decoded = workload.tokens() - workload.prompts * workload.samples
    self._sampler = Sampler(
      model,
      Endless(source.tokenizer),
      mesh,
      rules,
      SamplerSettings(
        slots=workload.slots,
        prompt_buckets=(workload.prompt_tokens,),
        max_tokens=workload.new_tokens,
        stop_strings=(),
        top_p=workload.top_p,
        **settings,
      ),
    )
    self._params = self._sampler.compute_params(params)
    ids = workload.prompt_ids(source.config.vocab_size)
    self._prompts = [types.Prompt("", tuple(row.tolist())) for row in ids]
    start = time.perf_counter()
    self._sampler.warm_up(self._params)
    self.compile_s = time.perf_counter() - start

  def run(self, limits: list[int] | None = None) -> float:
    """Samples the workload once; returns seconds."""
    start = time.perf_counter()
    limits = limits or self._workload.limits()
    count = 0
    for _, _, completion in self._sampler.generate(
      self._params,
      self._prompts,
      self._workload.samples,
      jax.random.key(0),
      limits,
    ):
      count += len(completion.token_ids)
    seconds = time.perf_counter() - start
    assert count == self._workload.samples * sum(limits)
    return seconds

  def prefill_s(self) -> float:
    """Seconds of the same prompts with one new token each."""
    return self.run([1] * self._workload.prompts)


class Endless:
  """A tokenizer whose texts never end and are not looked at."""

  eos_ids: tuple[int, ...] = ()

  def __init__(self, tokenizer: Any):
    self.vocab_size = tokenizer.vocab_size
    self.pad_id = 0

  def encode(self, text: str) -> list[int]:
    raise NotImplementedError

  def decode(self, ids: list[int]) -> str:
    del ids
    return ""

  def token_id(self, piece: str) -> int | None:
    del piece
    return None

  def chat(self, text: str) -> str:
    raise NotImplementedError

  def save(self, folder: pathlib.Path) -> None:
    raise NotImplementedError


def fewest_bytes(
  config: ModelConfig, workload: SamplerWorkload, element_bytes: int
) -> float:
  """What decoding must at least read: weights per step, live cache per token.

  Args:
    config: the decoder's shape.
    workload: what is decoded; its slots are always full, at the best.
    element_bytes: of a weight and of a cache entry.
  """
  # The last token of each is not read back.
  limits = np.repeat(workload.limits(), workload.samples) - 1
  steps = max(int(np.max(limits)), -(-int(np.sum(limits)) // workload.slots))
  c = config
  read = parameter_count(c)
  if not c.tie_embeddings:
    read -= c.vocab_size * c.hidden_size  # The input table: a row per token.
  entry = 2 * c.num_layers * c.num_kv_heads * c.head_size
  entries = np.sum(workload.prompt_tokens * limits + limits * (limits + 1) / 2)
  return element_bytes * float(steps * read + entry * entries)


def report(
  runner: Runner,
  config: ModelConfig,
  workload: SamplerWorkload,
  element_bytes: int,
  peer: Callable[[], float] | None,
  repeats: int,
) -> dict[str, Any]:
  """Runs both sides in turn and compares them.

  Args:
    runner: our side.
    config: the decoder's shape.
    workload: what both do.
    element_bytes: of a weight.
    peer: does the same workload once and returns seconds, or None.
    repeats: runs of each side.
  """
  ours, theirs = comparison.take_turns(runner.run, peer, repeats)
  prefill_s = runner.prefill_s()
  decode_s = float(np.median(ours)) - prefill_s
  limits = device.ceilings()
  least_s = fewest_bytes(config, workload, element_bytes) / limits["bandwidth"]
  return comparison.rates(workload.tokens(), ours, theirs) | {
    "prefill_s": prefill_s,
    "decode_s": decode_s,
    "compile_s": runner.compile_s,
    "ceilings": limits,
    "decode_roofline_share": least_s / decode_s,
  }
