"""Measures how much of the scripts' time a rollout of conversations hides.

Conversations of fixed lengths go through the sampler's slots and the
executor's processes, as in a training run. After each response but the last, a
real script runs, and its output is appended in the slot. The same conversations
run with scripts that return immediately and with scripts that sleep.
"""

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Int32

from azr_jax import types
from azr_jax.executor import Executor, scripts
from azr_jax.executor.pool.pending import ResultFuture
from azr_jax.lab.bench.sampling import EndlessTokenizer
from azr_jax.models import transformer
from azr_jax.models.load import ModelSource
from azr_jax.parallel.hosts import Hosts
from azr_jax.parallel.shared_jobs import SharedJobs
from azr_jax.rollout.sampler import Sampler
from azr_jax.rollout.settings import SamplerSettings
from azr_jax.rollout.tool_runner import SequenceId

INSTANT = "pass"


@dataclasses.dataclass(frozen=True)
class ConversationWorkload:
  """Conversations of fixed lengths.

  Attributes:
    conversations: number of conversations.
    prompt_tokens: tokens of each prompt.
    calls: scripts per conversation; one more response follows the last.
    response_tokens: tokens of the longest response. The others have at least
      half as many, so that conversations drift apart.
    output_tokens: tokens of each tool output.
  """

  conversations: int
  prompt_tokens: int
  calls: int
  response_tokens: int
  output_tokens: int

  @property
  def max_tokens(self) -> int:
    """Maximum number of tokens of a conversation, without its prompt."""
    return (self.calls + 1) * (self.response_tokens + self.output_tokens)


class ScriptedToolRunner:
  """Ends responses at fixed lengths, and runs the same script after each.

  Attributes:
    wait_s: seconds during which every slot was waiting for a script.
    decoding: number of live slots, summed over calls of the decode loop.
    awaiting: number of slots waiting for a script, summed over the same calls.
    slots: total number of slots, summed over the same calls.
  """

  def __init__(
    self, workload: ConversationWorkload, executor: Executor, script: str
  ):
    self._workload = workload
    self._script = script
    self._output = [1] * workload.output_tokens
    self._jobs = SharedJobs(executor, Hosts(600.0))
    self.wait_s = 0.0
    self.decoding = self.awaiting = self.slots = 0

  @property
  def end_marks(self) -> str | None:
    """None: responses end after a number of tokens."""
    return None

  def forget(self, sequence_id: SequenceId) -> None:
    """Does nothing: no state is kept per conversation."""

  def end_of_response(
    self,
    sequence_id: SequenceId,
    prompt: types.Prompt,
    token_ids: Int32[np.ndarray, " S"],
    response_start: int,
    num_checked: int,
  ) -> int | None:
    """Returns the end of the response, as its first, random token decides."""
    del sequence_id, prompt, num_checked
    if response_start >= len(token_ids):
      return None
    longest = self._workload.response_tokens
    shortened = int(token_ids[response_start]) % max(1, longest // 2)
    end = response_start + longest - shortened
    return end if len(token_ids) >= end else None

  def step(
    self,
    sequence_id: SequenceId,
    prompt: types.Prompt,
    responses: Sequence[Sequence[int]],
  ) -> str | None:
    """Starts the script, or ends the conversation after the last response."""
    del prompt
    if len(responses) > self._workload.calls:
      return "stop"

    def start(executor: Executor) -> ResultFuture:
      return executor.submit(scripts.script_job(self._script))

    self._jobs.submit(start, sequence_id)
    return None

  def tool_outputs(self, wait: bool) -> Mapping[SequenceId, Sequence[int]]:
    """Returns the outputs of the scripts that have ended.

    Args:
      wait: whether to wait until at least one has ended.

    Raises:
      ValueError: a script failed or timed out.
    """
    start = time.perf_counter()
    results = self._jobs.poll(wait)
    if wait:
      self.wait_s += time.perf_counter() - start
    for result in results.values():
      if result.status != "ok":
        raise ValueError(
          f"a script ended as {result.status!r}: expected a longer --timeout_s"
        )
    return dict.fromkeys(results, self._output)

  def record_occupancy(self, decoding: int, awaiting: int, slots: int) -> None:
    """Adds the slot counts to the totals."""
    self.decoding += decoding
    self.awaiting += awaiting
    self.slots += slots


@dataclasses.dataclass(frozen=True)
class Rollout:
  """One rollout of all conversations.

  Attributes:
    seconds: wall-clock time.
    tokens: tokens of all completions, tool output included.
    tool_runner: the tool runner, with its counts.
  """

  seconds: float
  tokens: int
  tool_runner: ScriptedToolRunner


class ConversationRunner:
  """A compiled sampler that can sample the conversations repeatedly."""

  def __init__(
    self,
    source: ModelSource,
    params: types.Params,
    model: transformer.Transformer,
    mesh: jax.sharding.Mesh,
    rules: types.Rules,
    workload: ConversationWorkload,
    settings: SamplerSettings,
  ):
    """Builds the sampler and compiles it.

    Args:
      source: the model's config and tokenizer.
      params: the decoder's parameters.
      model: the decoder.
      mesh: the mesh to sample on.
      rules: logical axis to mesh axis.
      workload: the conversations.
      settings: the sampler's settings.
    """
    self.workload = workload
    tokenizer = EndlessTokenizer(source.tokenizer.vocab_size)
    self._sampler = Sampler(model, tokenizer, mesh, rules, settings)
    self._params = self._sampler.compute_params(params)
    self._sampler.warm_up(self._params)
    rng = np.random.default_rng(0)
    shape = (workload.conversations, workload.prompt_tokens)
    ids = rng.integers(0, source.config.vocab_size, shape)
    self._prompts = [types.Prompt("", tuple(row.tolist())) for row in ids]

  def run(self, executor: Executor, script: str) -> Rollout:
    """Samples all conversations once, with this script after each response."""
    tool_runner = ScriptedToolRunner(self.workload, executor, script)
    start = time.perf_counter()
    tokens = sum(
      len(completion.token_ids)
      for _, _, completion in self._sampler.generate(
        self._params,
        self._prompts,
        1,
        jax.random.key(0),
        tool_runner=tool_runner,
      )
    )
    return Rollout(time.perf_counter() - start, tokens, tool_runner)


def report(
  runner: ConversationRunner, executor: Executor, sleep_s: float, repeats: int
) -> dict[str, Any]:
  """Alternates rollouts with instant and with sleeping scripts.

  Args:
    runner: samples the conversations.
    executor: runs the scripts.
    sleep_s: seconds that a sleeping script sleeps.
    repeats: rollouts with each kind of script.

  Returns:
    The median seconds of each kind, and the median ratio, `slowdown`. From the
    last rollout with sleeping scripts: the fractions of slots that decode and
    that wait for a script, the seconds in which the device was idle, and the
    total sleep of all scripts.
  """
  sleep = f"import time; time.sleep({sleep_s})"
  runner.run(executor, INSTANT)  # The first rollout warms the executor up.
  pairs = [
    (runner.run(executor, INSTANT), runner.run(executor, sleep))
    for _ in range(repeats)
  ]
  assert all(instant.tokens == slept.tokens for instant, slept in pairs)
  last = pairs[-1][1]
  used = last.tool_runner
  ratios = [slept.seconds / instant.seconds for instant, slept in pairs]
  workload = runner.workload
  return {
    "tokens": last.tokens,
    "instant_s": float(np.median([instant.seconds for instant, _ in pairs])),
    "sleeping_s": float(np.median([slept.seconds for _, slept in pairs])),
    "slowdown": float(np.median(ratios)),
    "slots_decoding": used.decoding / used.slots,
    "awaiting": used.awaiting / used.slots,
    "device_idle_s": used.wait_s,
    "slept_s": sleep_s * workload.conversations * workload.calls,
  }
