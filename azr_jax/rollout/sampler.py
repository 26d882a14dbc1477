"""The sampler of a decoder: its compiled functions, and streams over them.

The life of a request (`stream.py`):
1. Prompts are grouped by the smallest prompt bucket that holds them.
2. A few prompts at a time are prefilled, `prefill_tokens` per call, between
   calls of the decode loop. Once half of the slots decode, a long prompt no
   longer delays decoding.
3. A prompt that is sampled n times is prefilled once. Its samples share the
   prompt's pages and enter slots as these become free.
4. The decode loop runs `decode_chunk` tokens per call. Between calls the host
   collects the tokens and looks for stop strings. Completions are delivered
   while the device runs the next call.
5. In a conversation (`tool_runner.py`), a sequence whose response called a tool
   keeps its pages and enters a slot again once the output is prefilled.
"""

import collections
import dataclasses
from collections.abc import Iterator, Sequence

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Key

from azr_jax import types
from azr_jax.models import transformer
from azr_jax.models.tokenizers import Tokenizer
from azr_jax.parallel import memory
from azr_jax.rollout.build import build_engine, drafting_of
from azr_jax.rollout.engine import Engine
from azr_jax.rollout.kv_cache import KVCache
from azr_jax.rollout.meter import Meter, RequestMeter
from azr_jax.rollout.response_end import ResponseEnds
from azr_jax.rollout.scheduler import Scheduler
from azr_jax.rollout.settings import SamplerSettings
from azr_jax.rollout.stream import SampleKey, Stream
from azr_jax.rollout.tool_runner import ToolRunner
from azr_jax.rollout.weights import Weights


class Sampler:
  """Samples completions from a decoder on a mesh."""

  def __init__(
    self,
    model: transformer.Transformer,
    tokenizer: Tokenizer,
    mesh: Mesh,
    rules: types.Rules,
    settings: SamplerSettings,
    shares_base: bool = False,
  ):
    """Builds the engine; nothing is compiled yet.

    Args:
      model: the training decoder.
      tokenizer: decodes completions and knows the stop ids.
      mesh: the mesh to sample on.
      rules: logical parameter axis -> mesh axis.
      settings: the `rollout` section of the configuration.
      shares_base: see `engine.make_engine`.
    """
    self._tokenizer = tokenizer
    self._engine = build_engine(model, mesh, rules, settings, shares_base)
    self._ends = ResponseEnds(
      tokenizer, settings.stop_strings, settings.stop_after
    )
    self._drafting = drafting_of(settings.speculation, mesh)
    self._shares_prefixes = settings.prefix_cache
    self._max_tokens = settings.max_tokens
    self._temperature = settings.temperature
    self.meter = Meter()

  @property
  def engine(self) -> Engine:
    """The compiled functions, for measurements."""
    return self._engine

  @property
  def num_replicas(self) -> int:
    """Number of copies of the weights that the devices hold for sampling."""
    return self._engine.shapes.devices

  @property
  def prompt_buckets(self) -> tuple[int, ...]:
    """The compiled prompt lengths, ascending."""
    return self._engine.shapes.prompt_buckets

  def compute_params(self, params: types.Params) -> types.Params:
    """Returns training parameters, cast and laid out for sampling."""
    return self._engine.compute_params(params)

  @memory.explained(memory.SAMPLING_KEYS)
  def warm_up(self, params: types.Params) -> None:
    """Compiles every program that a stream runs."""
    meter = RequestMeter(Meter())
    Scheduler(
      self._engine,
      Weights(params),
      KVCache(self._engine),
      self._ends,
      meter,
      self._drafting,
    ).warm_up()

  def open(self, weights: Weights, reads_experts: bool = True) -> Stream:
    """Returns a stream that accepts prompts while it runs; see `Stream`.

    Args:
      weights: the parameters to sample with.
      reads_experts: whether completions have their experts, with router replay.
    """
    engine = self._engine
    if not reads_experts:
      engine = dataclasses.replace(engine, read_experts=None)
    return Stream(
      engine,
      self._tokenizer,
      self._ends,
      self.meter,
      weights,
      self._max_tokens,
      self._temperature,
      self._shares_prefixes,
      self._drafting,
    )

  def generate(
    self,
    params: types.Params,
    prompts: Sequence[types.Prompt],
    n: int,
    key: Key[Array, ""],
    max_new_tokens: Sequence[int] | None = None,
    prompt_numbers: Sequence[int] | None = None,
    tool_runner: ToolRunner | None = None,
  ) -> Iterator[tuple[int, int, types.Completion]]:
    """Samples n completions per prompt on a new stream.

    Args:
      params: the result of `compute_params`.
      prompts: any number of prompts, each up to the largest bucket.
      n: completions per prompt.
      key: random key; sample s of a prompt folds in (the prompt's number, s).
      max_new_tokens: the limit for each prompt, as for `Stream.submit`.
      prompt_numbers: the integer that each prompt folds into the key; None uses
        the prompt's index.
      tool_runner: as for `Stream.submit`.

    Yields:
      (prompt index, sample index, completion), as they finish.

    Raises:
      ValueError: as for `Stream.submit`.
    """
    stream = self.open(Weights(params))
    arrived: collections.deque[tuple[int, int, types.Completion]] = (
      collections.deque()
    )
    key_data = np.asarray(jax.random.key_data(key))
    if prompt_numbers is None:
      prompt_numbers = range(len(prompts))
    limits = max_new_tokens or [None] * len(prompts)
    for index, prompt in enumerate(prompts):
      sample_key = SampleKey(key_data, prompt_numbers[index])
      _, futures = stream.submit(
        prompt, n, sample_key, limits[index], tool_runner=tool_runner
      )
      for sample, future in enumerate(futures):
        future.add_done_callback(
          lambda done, i=index, s=sample: arrived.append((i, s, done.result()))
        )
    while not stream.is_empty:
      is_sent = stream.send()
      while arrived:
        yield arrived.popleft()
      if is_sent:
        stream.fetch()
      else:
        stream.wait_for_tools()
