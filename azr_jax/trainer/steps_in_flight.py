"""Steps whose rollouts are sampled at the same time.

With `rollout.max_staleness = s`, slots that step k leaves free take prompts of
the steps up to k + s while the tail of step k decodes. When step k is complete:
1. verdicts and tool outputs that are under way are waited for;
2. every sequence leaves its slot, and the update runs;
3. the tokens of these sequences are prefilled with the new parameters, and
   they go on.
So tokens alone are state, and a token of step k is at most s updates old.

What a step samples depends on nothing but the state after step k - s - 1 or
later, which is known when it begins, and on the numbers of its requests, from
which their random keys follow. A run that was killed
begins the steps that were under way anew, from the states that they began from,
and takes the tokens that its checkpoint has.
"""

import collections
import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import jax
import numpy as np

from azr_jax import types
from azr_jax.models.tokenizers import Tokenizer
from azr_jax.parallel.decode_clock import DecodeClock
from azr_jax.parallel.shared_jobs import SharedJobs
from azr_jax.rollout import partial_rollouts
from azr_jax.rollout import policy as policy_lib
from azr_jax.rollout.event_loop import EventLoop
from azr_jax.rollout.partial_rollouts import PartialRollouts, PausedGroup
from azr_jax.rollout.policy import Policy
from azr_jax.rollout.sampler import Sampler
from azr_jax.rollout.sequence import Request, SequenceState
from azr_jax.rollout.settings import SamplerSettings
from azr_jax.rollout.stream import sample_id
from azr_jax.rollout.weights import Weights
from azr_jax.systems.system import System

# The keys of the host's state that no system may have.
IN_FLIGHT, PAUSED = "steps_in_flight", "paused_groups"


@dataclasses.dataclass
class _Step:
  """A step that is under way.

  Attributes:
    number: of the step.
    policy: samples for it.
    rollouts: the future of its end.
    state: the system's state that it began from.
  """

  number: int
  policy: Policy
  rollouts: "Future[types.RolloutBatch]"
  state: dict[str, Any]


def decode_clock(c: SamplerSettings) -> DecodeClock:
  """Returns the clock by which the outcomes of jobs are taken.

  It decides which prompts are prefilled together, and so how numbers are
  rounded; without it two runs of a seed would differ.
  """
  return DecodeClock(c.verdict_delay_calls)


class StepsInFlight:
  """Collects rollouts, step after step."""

  def __init__(
    self,
    sampler: Sampler,
    tokenizer: Tokenizer,
    sampling_key: Callable[[int], jax.Array],
    system: System,
    jobs: SharedJobs,
    staleness: int,
    last: int,
  ):
    """Begins no step yet.

    Args:
      sampler: samples.
      tokenizer: of the model.
      sampling_key: step -> the random key of its rollouts.
      system: collects the rollouts.
      jobs: of the system, with their clock.
      staleness: s, steps that may begin before an earlier one is complete.
      last: the last step of the run.
    """
    self._sampler, self._tokenizer = sampler, tokenizer
    self._sampling_key, self._system = sampling_key, system
    self._staleness, self._last = staleness, last
    self._jobs = jobs
    self._loop = EventLoop(jobs.clock)
    # Shared by the policies of all steps; empty between two `sampling` blocks.
    self._weights = Weights()
    self._steps: collections.deque[_Step] = collections.deque()
    self._step_tokens = sampler.settings.step_tokens
    self._paused: Sequence[PausedGroup] = ()

  @contextlib.contextmanager
  def sampling(self, params: types.Params, step: int) -> Iterator[Policy]:
    """Yields the policy of a step; the sampler's weights are freed at the end.

    Args:
      params: the training parameters before the step.
      step: the next one to be collected.
    """
    with policy_lib.open_policy(
      self._sampler,
      self._tokenizer,
      params,
      self._sampling_key(step),
      self._weights,
      step - 1,
    ) as policy:
      try:
        yield policy
      finally:
        self._loop.suspend()

  def collect(self, step: int) -> tuple[types.RolloutBatch, Policy]:
    """Returns the rollouts of a step, and the policy that sampled them.

    Call it in the block of `sampling`.
    """
    if not self._steps:
      self._begin(step)
    first = self._steps[0]
    assert first.number == step
    while not first.rollouts.done():
      if self._loop.run_once():
        self._begin_more(step)
    rollouts = first.rollouts.result()
    self._loop.run_until_idle()
    self._steps.popleft()
    rollouts.metrics.update(self._jobs.metrics())
    if self._staleness or self._step_tokens:
      rollouts.metrics.update(_staleness(rollouts, step))
    if self._step_tokens:
      partial = first.policy.partial
      self._paused = partial.paused
      num_ended = len(first.policy.sample_log.completions)
      rollouts.metrics.update(partial.metrics(num_ended))
    return rollouts, first.policy

  def _begin(self, number: int) -> None:
    """Begins a step, whose prompts wait behind those of earlier ones."""
    policy = Policy(
      self._sampler,
      self._tokenizer,
      self._weights,
      self._sampling_key(number),
      loop=self._loop,
      priority=(number,),
      partial=PartialRollouts(self._step_tokens, self._paused),
    )
    state = self._system.state_dict() if self._staleness else {}
    rollouts = self._loop.spawn(self._system.collect(policy, number))
    self._steps.append(_Step(number, policy, rollouts, state))

  def _begin_more(self, step: int) -> None:
    """Begins the next step if slots are free for an eighth of all."""
    following = self._steps[-1].number + 1
    enough = max(1, self._sampler.engine.slot_counts[0] // 8)
    if (
      following <= min(step + self._staleness, self._last)
      and self._loop.num_free >= enough
      and self._system.can_sample_ahead(following)
    ):
      self._begin(following)

  def state_dict(self) -> dict[str, Any]:
    """Returns the system's state, with steps under way and paused groups.

    All are JSON values.

    Call it between two calls of `collect`.
    """
    state = self._system.state_dict()
    if self._paused:
      state = {**state, PAUSED: [dict(vars(group)) for group in self._paused]}
    if not self._steps:
      return state
    suspended = {
      sample_id(sequence): sequence for sequence in self._loop.suspended
    }
    states: list[dict[str, Any]] = []
    steps = []
    for under_way in self._steps:
      if not states or states[-1] != under_way.state:
        states.append(under_way.state)
      sequences = []
      for request, futures in under_way.policy.sample_log.requests:
        for sample, future in enumerate(futures):
          sequence = _sequence(request, sample, future, suspended)
          if sequence is not None:
            sequences.append(partial_rollouts.sequence_to_json(sequence))
      steps.append(
        {
          "step": under_way.number,
          "state": len(states) - 1,
          "sequences": sequences,
        }
      )
    return {**state, IN_FLIGHT: {"states": states, "steps": steps}}

  def load_state_dict(self, state: Mapping[str, Any]) -> None:
    """Begins the steps that were under way, and restores the system's state.

    Args:
      state: what `state_dict` returned.
    """
    ours = (IN_FLIGHT, PAUSED)
    system = {key: v for key, v in state.items() if key not in ours}
    self._paused = [PausedGroup(**row) for row in state.get(PAUSED, ())]
    for step in state.get(IN_FLIGHT, {}).get("steps", ()):
      known = map(partial_rollouts.sequence_from_json, step["sequences"])
      self._loop.restore(known)
      self._system.load_state_dict(state[IN_FLIGHT]["states"][step["state"]])
      self._begin(step["step"])
      self._loop.run_until_idle()
    self._loop.restore([])
    self._jobs.metrics()  # They were counted before.
    self._system.load_state_dict(system)


def _sequence(
  request: Request,
  sample: int,
  future: "Future[types.Completion]",
  suspended: Mapping[Any, SequenceState],
) -> SequenceState | None:
  """Returns a sequence with tokens, ended or not; None: it has none."""
  sequence = SequenceState(request, sample)
  if not future.done():
    known = suspended.get(sample_id(sequence))
    return known if known is not None and known.token_ids else None
  return partial_rollouts.sequence_of(request, sample, future.result())


def _staleness(rollouts: types.RolloutBatch, step: int) -> dict[str, float]:
  """Returns how many updates old the tokens of a step are."""
  ages = [
    step - 1 - trajectory.completion.versions[trajectory.completion.loss_mask]
    for trajectory in rollouts.trajectories
    if trajectory.completion.versions is not None
  ]
  age = np.concatenate(ages) if ages else np.zeros(1)
  return {
    "rollout/staleness/mean": float(age.mean()),
    "rollout/staleness/max": float(age.max()),
  }
