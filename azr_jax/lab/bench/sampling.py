"""Measures the sampler's tokens per second and fraction of the roofline."""

import pathlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from azr_jax import types
from azr_jax.lab.bench import comparison, device, measured_costs
from azr_jax.lab.bench.workload import SamplerWorkload
from azr_jax.lab.compile.sampler_forecast import Rules, SamplerCosts
from azr_jax.models import transformer
from azr_jax.models.config import ModelConfig
from azr_jax.models.load import ModelSource
from azr_jax.models.operations import SamplingDtypes, decode_bytes
from azr_jax.models.tokenizers import Message
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.rollout.sampler import Sampler
from azr_jax.rollout.settings import SamplerSettings


class SamplerRunner:
  """A compiled sampler that can sample a workload repeatedly.

  Attributes:
    tokenizer: a tokenizer without stop ids.
    dtypes: the dtypes that decoding reads.
    compile_s: seconds of compilation.
  """

  def __init__(
    self,
    source: ModelSource,
    params: types.Params,
    model: transformer.Transformer,
    mesh: jax.sharding.Mesh,
    rules: types.Rules,
    workload: SamplerWorkload,
    settings: SamplerSettings,
  ):
    """Builds the sampler and compiles it.

    Args:
      source: the model's config and tokenizer.
      params: the decoder's parameters.
      model: the decoder.
      mesh: the mesh to sample on.
      rules: logical axis to mesh axis.
      workload: the prompts to sample from.
      settings: the sampler's settings, which must fit the workload.
    """
    self._workload = workload
    self.tokenizer = EndlessTokenizer(source.tokenizer.vocab_size)
    self.sampler = Sampler(model, self.tokenizer, mesh, rules, settings)
    self.dtypes = settings.dtypes(model.dtype)
    self._params = self.sampler.compute_params(params)
    ids = workload.prompt_ids(source.config.vocab_size)
    self._prompts = [types.Prompt("", tuple(row.tolist())) for row in ids]
    start = time.perf_counter()
    self.sampler.warm_up(self._params)
    self.compile_s = time.perf_counter() - start

  def run(self, max_new_tokens: list[int] | None = None) -> float:
    """Samples the workload once; returns seconds.

    Args:
      max_new_tokens: response length of each prompt; None takes the workload's.
    """
    start = time.perf_counter()
    max_new_tokens = max_new_tokens or self._workload.max_new_tokens()
    count = 0
    for _, _, completion in self.sampler.generate(
      self._params,
      self._prompts,
      self._workload.samples,
      jax.random.key(0),
      max_new_tokens,
    ):
      count += len(completion.token_ids)
    seconds = time.perf_counter() - start
    assert count == self._workload.samples * sum(max_new_tokens)
    return seconds

  def costs(self, repeats: int) -> SamplerCosts:
    """Measures each of the sampler's device calls on its own.

    Args:
      repeats: runs of each call; the fastest counts.
    """
    return measured_costs.sampler_costs(
      self.sampler.engine, self._params, repeats
    )

  def rules(self) -> Rules:
    """Returns the scheduler's settings, for a forecast."""
    engine = self.sampler.engine
    return Rules(
      engine.shapes,
      mesh_lib.platform(engine.mesh),
      engine.lists_pages,
    )

  def prefill_s(self) -> float:
    """Returns the seconds for the same prompts with one new token each."""
    return self.run([1] * self._workload.prompts)


class EndlessTokenizer:
  """A tokenizer without stop ids that decodes everything to an empty text.

  So every completion has its maximum number of tokens.
  """

  eos_ids: tuple[int, ...] = ()
  has_chat_template = False
  pad_id = 0

  def __init__(self, vocab_size: int):
    self.vocab_size = vocab_size

  def encode(self, text: str) -> list[int]:
    """Raises NotImplementedError, because nothing encodes text."""
    raise NotImplementedError

  def encode_prompt(self, text: str) -> list[int]:
    """Raises NotImplementedError, because nothing encodes text."""
    raise NotImplementedError

  def decode(self, ids: list[int], skip_special: bool = False) -> str:
    """Returns an empty text, which contains no stop string."""
    del ids, skip_special
    return ""

  def token_id(self, piece: str) -> int | None:
    """Returns None: no text is a token."""
    del piece
    return None

  def vocabulary(self) -> dict[int, str]:
    """Returns {}: no id has a text."""
    return {}

  def apply_chat_template(
    self,
    messages: str | Sequence[Message],
    is_answered: bool = False,
    tools: Sequence[Mapping[str, Any]] = (),
    is_continued: bool = False,
    arguments: Mapping[str, Any] | None = None,
  ) -> str:
    """Raises NotImplementedError, because nothing encodes text."""
    raise NotImplementedError

  def save(self, folder: pathlib.Path) -> None:
    """Raises NotImplementedError, because nothing is saved."""
    raise NotImplementedError


def min_bytes_read(
  config: ModelConfig, workload: SamplerWorkload, dtypes: SamplingDtypes
) -> float:
  """Returns the minimum number of bytes that decoding reads.

  Every step reads the weights once, and every token reads its live cache.

  Args:
    config: the decoder's config.
    workload: the decoded workload; the bound assumes that slots are always
      full.
    dtypes: dtypes of weights and cache.
  """
  # The last token of a response is sampled but not fed to the decoder.
  fed = np.repeat(workload.max_new_tokens(), workload.samples) - 1
  steps = max(int(np.max(fed)), -(-int(np.sum(fed)) // workload.slots))
  entries = np.sum(workload.prompt_tokens * fed + fed * (fed + 1) / 2)
  return decode_bytes(config, dtypes, steps, float(entries))


def report(
  runner: SamplerRunner,
  config: ModelConfig,
  workload: SamplerWorkload,
  dtypes: SamplingDtypes,
  baseline: Callable[[], float] | None,
  repeats: int,
) -> dict[str, Any]:
  """Alternates runs of the sampler and the baseline, and compares them.

  Args:
    runner: the sampler.
    config: the decoder's config.
    workload: the prompts that both sample from.
    dtypes: dtypes of weights and cache.
    baseline: samples the same workload once and returns seconds, or None.
    repeats: runs of each.
  """
  sampler_s, baseline_s = comparison.alternate(runner.run, baseline, repeats)
  prefill_s = runner.prefill_s()
  decode_s = float(np.median(sampler_s)) - prefill_s
  peak_rates = device.peak_rates()
  min_bytes = min_bytes_read(config, workload, dtypes)
  return comparison.rates(workload.tokens(), sampler_s, baseline_s) | {
    "prefill_s": prefill_s,
    "decode_s": decode_s,
    "compile_s": runner.compile_s,
    "peak_rates": peak_rates,
    "decode_roofline_fraction": min_bytes / peak_rates["bandwidth"] / decode_s,
  }
