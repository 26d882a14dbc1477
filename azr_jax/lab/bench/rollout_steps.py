"""Simulates steps of self-play with given completion lengths, by schedule.

A step has P proposals; each that is valid gets n learnability rollouts and one
solution, another one a solution of an old task (AZR, arXiv 2505.03335). Every
completion has a drawn length, the same in each schedule:

| schedule | |
| --- | --- |
| `phases` | all proposals, then all rollouts, then all solutions |
| `stream` | one stream: no proposal waits for another |
| `ahead` | besides, the next step begins while the tail of a step decodes |
"""

import dataclasses
import random
import time
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from azr_jax import types
from azr_jax.executor import futures
from azr_jax.lab.compile.lengths import Lengths
from azr_jax.models.tokenizers import Tokenizer
from azr_jax.parallel.decode_clock import DecodeClock
from azr_jax.parallel.hosts import Hosts
from azr_jax.parallel.shared_jobs import SharedJobs
from azr_jax.rollout.event_loop import Awaited
from azr_jax.rollout.policy import Policy
from azr_jax.rollout.sampler import Sampler
from azr_jax.rollout.settings import SamplerSettings
from azr_jax.systems.system import System
from azr_jax.trainer.steps_in_flight import StepsInFlight

PHASES, STREAM, AHEAD = SCHEDULES = ("phases", "stream", "ahead")
# Calls of the policy.
_PROPOSE, _LEARN, _SOLVE = range(3)
_HOST_TIMEOUT_S = 60.0


@dataclasses.dataclass(frozen=True)
class Workload:
  """The completions of a step.

  Attributes:
    proposals: P, how many are proposed.
    rollouts: n, learnability rollouts of a valid proposal.
    valid_fraction: the fraction of the proposals that are valid.
    prompt_tokens: tokens of every prompt.
    lengths: of completions.
    steps: how many are simulated.
  """

  proposals: int
  rollouts: int
  valid_fraction: float
  prompt_tokens: int
  lengths: Lengths
  steps: int


class _Forced(System):
  """Simulates steps whose completions have the workload's lengths."""

  name = "forced"

  def __init__(
    self, work: Workload, jobs: SharedJobs, schedule: str, vocab: int
  ):
    self._work, self._jobs, self._schedule = work, jobs, schedule
    ids = np.random.default_rng(0).integers(1, vocab, work.prompt_tokens)
    self._prompt = types.Prompt("", tuple(ids.tolist()))

  def _rng(self, *words: Any) -> random.Random:
    return random.Random(repr(words))

  async def collect(self, policy: Policy, step: int) -> types.RolloutBatch:
    """Simulates one step; there are no trajectories."""
    work = self._work
    drawn = self._rng(step).sample(range(work.proposals), work.proposals)
    valid = drawn[: round(work.valid_fraction * work.proposals)]
    numbers = range(work.proposals)
    if self._schedule == PHASES:
      await self._sample(policy, step, _PROPOSE, numbers, 1)
      await self._sample(policy, step, _LEARN, sorted(valid), work.rollouts)
      await self._sample(policy, step, _SOLVE, numbers, 1)
    else:
      await policy.gather(
        self._sample_proposal(policy, step, number, number in valid)
        for number in numbers
      )
    return types.RolloutBatch([], {})

  async def _sample_proposal(
    self, policy: Policy, step: int, number: int, valid: bool
  ) -> None:
    await self._sample(policy, step, _PROPOSE, [number], 1)
    await Awaited(self._jobs.submit(lambda _: futures.done(valid)), self._jobs)
    rollouts = self._work.rollouts if valid else 0
    await policy.gather(
      (
        self._sample(policy, step, _LEARN, [number], rollouts),
        self._sample(policy, step, _SOLVE, [number], 1),
      )
    )

  async def _sample(
    self,
    policy: Policy,
    step: int,
    call: int,
    numbers: Sequence[int],
    n: int,
  ) -> None:
    """Samples n completions of each number, each of its own length."""
    lengths = [
      length
      for number in numbers
      for length in self._work.lengths.draw(n, self._rng(step, call, number))
    ]
    samples = policy.sample(
      [self._prompt] * len(lengths),
      prompt_seeds=[number * n + i for number in numbers for i in range(n)],
      call=call,
      max_new_tokens=lengths,
    )
    async for _ in samples:
      pass


def simulate(
  sampler: Sampler,
  tokenizer: Tokenizer,
  params: types.Params,
  work: Workload,
  schedule: str,
) -> dict[str, float]:
  """Simulates the steps by one of the schedules.

  Args:
    sampler: with stop ids that no token has.
    tokenizer: the sampler's.
    params: the decoder's.
    work: the completions.
    schedule: one of `SCHEDULES`.

  Returns:
    `calls` of the decode loop, its `iterations`, the fraction of slot-steps in
    which the slot got a token, and the seconds, all without the update.
  """
  jobs = SharedJobs(
    None,
    Hosts(_HOST_TIMEOUT_S),
    DecodeClock(SamplerSettings().verdict_delay_calls),
  )
  in_flight = StepsInFlight(
    sampler,
    tokenizer,
    lambda step: jax.random.fold_in(jax.random.key(0), step),
    _Forced(work, jobs, schedule, tokenizer.vocab_size),
    jobs,
    1 if schedule == AHEAD else 0,
    work.steps,
  )
  sampler.meter.take()
  start = time.perf_counter()
  for step in range(1, work.steps + 1):
    with in_flight.sampling(params, step) as policy:
      in_flight.collect(policy, step)
  seconds = time.perf_counter() - start
  counts = sampler.meter.take().counts
  slots = sampler.engine.slot_counts[0]
  return {
    "calls": counts.calls,
    "iterations": counts.iterations,
    "tokens": counts.tokens,
    "live_fraction": counts.live_slot_steps / (counts.iterations * slots),
    "seconds": seconds,
  }
