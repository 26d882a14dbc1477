"""How much of the time that programs take is hidden behind the sampling.

Conversations of fixed lengths, through the sampler's slots and the executor's
processes as in a run: replies of so many tokens, each but the last followed by
a real script, whose result is read into the slot. The same conversations, with
scripts that end at once and with scripts that sleep.
"""

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from azr_jax import types
from azr_jax.executor import Executor, scripts
from azr_jax.executor.pending import ResultFuture
from azr_jax.models import transformer
from azr_jax.models.load import ModelSource
from azr_jax.parallel.hosts import Hosts
from azr_jax.parallel.shared_jobs import SharedJobs
from azr_jax.perf.sampling import Endless
from azr_jax.rollout.environment import Name
from azr_jax.rollout.sampler import Sampler
from azr_jax.rollout.settings import SamplerSettings

INSTANT = "pass"


@dataclasses.dataclass(frozen=True)
class Workload:
  """Conversations.

  Attributes:
    conversations: how many.
    prompt_tokens: of each.
    calls: scripts of each; one more reply follows the last.
    reply_tokens: of the longest reply; the others are half as long or more,
      so that conversations come to be at different turns.
    result_tokens: of each result.
  """

  conversations: int
  prompt_tokens: int
  calls: int
  reply_tokens: int
  result_tokens: int

  @property
  def max_tokens(self) -> int:
    """As many as a conversation may have, without its prompt."""
    return (self.calls + 1) * (self.reply_tokens + self.result_tokens)


class _Scripted:
  """Ends replies by their length, and answers each with a script's result."""

  def __init__(self, workload: Workload, executor: Executor, script: str):
    self._workload = workload
    self._script = script
    self._result = [1] * workload.result_tokens
    self._jobs: SharedJobs = SharedJobs(executor, Hosts(600.0))
    self.wait_s = 0.0
    self.writing = self.waiting = self.slots = 0

  def begin(self) -> None:
    self._jobs.cancel()

  def end_of_reply(
    self, ids: Sequence[int], start: int, seen: int
  ) -> int | None:
    """A reply's first token, which is random, says how long it is."""
    del seen
    if start >= len(ids):
      return None
    longest = self._workload.reply_tokens
    end = start + longest - ids[start] % max(1, longest // 2)
    return end if len(ids) >= end else None

  def take(self, name: Name, replies: Sequence[Sequence[int]]) -> str | None:
    if len(replies) > self._workload.calls:
      return "stop"

    def start(executor: Executor) -> ResultFuture:
      return executor.submit(scripts.script_job(self._script))

    self._jobs.submit(start, name)
    return None

  def answers(self, wait: bool) -> Mapping[Name, Sequence[int]]:
    start = time.perf_counter()
    found = self._jobs.poll(wait)
    if wait:
      self.wait_s += time.perf_counter() - start
    for result in found.values():
      if result.status != "ok":
        raise ValueError(
          f"a script ended as {result.status!r}: expected a longer --timeout_s"
        )
    return dict.fromkeys(found, self._result)

  def observe(self, writing: int, waiting: int, slots: int) -> None:
    self.writing += writing
    self.waiting += waiting
    self.slots += slots


def report(
  source: ModelSource,
  params: Any,
  model: transformer.Transformer,
  mesh: jax.sharding.Mesh,
  rules: dict[str, str | None],
  workload: Workload,
  settings: SamplerSettings,
  executor: Executor,
  sleep_s: float,
  repeats: int,
) -> dict[str, Any]:
  """Seconds of a rollout with instant and with sleeping scripts.

  Args:
    source: where the tokenizer comes from.
    params: the decoder's parameters.
    model: the decoder.
    mesh: where it runs.
    rules: logical axis to mesh axis.
    workload: the conversations.
    settings: of the sampler.
    executor: runs the scripts.
    sleep_s: how long a script sleeps.
    repeats: of each, in turn.

  Returns:
    The medians, and `of_instant`, the median of the ratios; of the last
    sleeping one the share of slots that write and wait, the seconds in which
    the device had nothing to do, and all that the scripts slept.
  """
  sampler = Sampler(model, Endless(source.tokenizer), mesh, rules, settings)
  params = sampler.compute_params(params)
  sampler.warm_up(params)
  rng = np.random.default_rng(0)
  shape = (workload.conversations, workload.prompt_tokens)
  ids = rng.integers(0, source.config.vocab_size, shape)
  prompts = [types.Prompt("", tuple(row.tolist())) for row in ids]
  sleep = f"import time; time.sleep({sleep_s})"

  def run(script: str) -> tuple[float, int, _Scripted]:
    turns = _Scripted(workload, executor, script)
    start = time.perf_counter()
    tokens = sum(
      len(completion.token_ids)
      for _, _, completion in sampler.generate(
        params, prompts, 1, jax.random.key(0), environment=turns
      )
    )
    return time.perf_counter() - start, tokens, turns

  run(INSTANT)
  pairs = [(run(INSTANT), run(sleep)) for _ in range(repeats)]
  assert all(instant[1] == slept[1] for instant, slept in pairs)
  _, tokens, turns = pairs[-1][1]
  return {
    "tokens": tokens,
    "instant_s": float(np.median([instant[0] for instant, _ in pairs])),
    "sleeping_s": float(np.median([slept[0] for _, slept in pairs])),
    "of_instant": float(
      np.median([slept[0] / instant[0] for instant, slept in pairs])
    ),
    "slots_writing": turns.writing / turns.slots,
    "slots_waiting": turns.waiting / turns.slots,
    "device_idle_s": turns.wait_s,
    "slept_s": sleep_s * workload.conversations * workload.calls,
  }
