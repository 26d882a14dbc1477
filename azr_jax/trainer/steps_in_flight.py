"""Rollouts of several steps in flight at once.

With `rollout.max_staleness = s`, slots that step k leaves free take prompts of
steps up to k + s while the tail of step k decodes. When step k is complete:
1. verdicts and tool outputs in flight are awaited;
2. every sequence leaves its slot, and the update runs;
3. the tokens of these sequences are prefilled with the new parameters, and
   decoding continues.
So tokens are the only state that crosses an update, and a token of step k is at
most s updates old.

What a step samples depends only on the system's state when it starts (the state
after step k - s - 1 or later) and on its prompt numbers, which are part of the
random keys. Steps update the state in order: a step that has sampled everything
waits for earlier ones (`Policy.earlier_steps`). A killed run restarts the steps
in flight from the states that they started from, and reuses the tokens in its
checkpoint.
"""

import collections
import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
from jaxtyping import Array, Key

from azr_jax import types
from azr_jax.models.tokenizers import Tokenizer
from azr_jax.parallel.shared_jobs import SharedJobs
from azr_jax.rollout import partial_rollouts
from azr_jax.rollout import policy as policy_lib
from azr_jax.rollout.event_loop import EventLoop
from azr_jax.rollout.partial_rollouts import PartialRollouts, PausedGroup
from azr_jax.rollout.policy import Policy
from azr_jax.rollout.sampler import Sampler
from azr_jax.rollout.sequence import Request, SequenceState
from azr_jax.rollout.stream import sample_id
from azr_jax.rollout.weights import Weights
from azr_jax.systems.system import System

# Keys of the host's state that are reserved: systems may not use them.
IN_FLIGHT, PAUSED_GROUPS = "steps_in_flight", "paused_groups"


@dataclasses.dataclass
class _Step:
  """A step in flight.

  Attributes:
    number: the step.
    policy: the policy that samples for the step.
    rollouts: the future of the step's rollouts.
    state: the system's state when the step started.
    in_turn: completed when the rollouts of the step are collected, which lets
      the step change the system's state.
  """

  number: int
  policy: Policy
  rollouts: "Future[types.RolloutBatch]"
  state: dict[str, Any]
  in_turn: "Future[None]"


class StepsInFlight:
  """Collects rollouts, step by step."""

  def __init__(
    self,
    sampler: Sampler,
    tokenizer: Tokenizer,
    sampling_key: Callable[[int], Key[Array, ""]],
    system: System,
    jobs: SharedJobs,
    staleness: int,
    step_tokens: int,
    last: int,
  ):
    """Initializes the collector. No step starts yet.

    Args:
      sampler: the sampler of all steps.
      tokenizer: the model's tokenizer.
      sampling_key: step -> the random key of its rollouts.
      system: collects the rollouts of a step.
      jobs: the system's jobs, with their clock.
      staleness: s, the number of steps that may start before an earlier one is
        complete.
      step_tokens: number of tokens after which a sequence is paused; 0 never
        pauses.
      last: the last step of the run.
    """
    self._sampler, self._tokenizer = sampler, tokenizer
    self._sampling_key, self._system = sampling_key, system
    self._staleness, self._last = staleness, last
    self._jobs = jobs
    self._loop = EventLoop(jobs.clock)
    # Shared by the policies of all steps. Empty between `sampling` blocks.
    self._weights = Weights()
    self._steps: collections.deque[_Step] = collections.deque()
    self._step_tokens = step_tokens
    self._paused: Sequence[PausedGroup] = ()

  @contextlib.contextmanager
  def sampling(self, params: types.Params, step: int) -> Iterator[Policy]:
    """Yields the policy of a step, and frees the sampler's weights at the end.

    Args:
      params: the training parameters before the step.
      step: the next step to collect.
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

    Call this inside a `sampling` block.
    """
    if not self._steps:
      self._begin(step)
      self._steps[0].in_turn.set_result(None)
    first = self._steps[0]
    assert first.number == step
    if not first.in_turn.done():
      first.in_turn.set_result(None)
      self._loop.run_until_idle()
    while not first.rollouts.done():
      if self._loop.run_once():
        self._begin_more(step)
    rollouts = first.rollouts.result()
    self._loop.run_until_idle()
    self._steps.popleft()
    # A system with jobs of its own has reported the waits for their verdicts.
    rollouts.metrics.update(self._jobs.metrics() | rollouts.metrics)
    if self._staleness or self._step_tokens:
      rollouts.metrics.update(_staleness(rollouts, step))
    if self._step_tokens:
      partial = first.policy.partial
      self._paused = partial.paused
      num_ended = len(first.policy.sample_log.completions)
      rollouts.metrics.update(partial.metrics(num_ended))
    return rollouts, first.policy

  def _begin(self, number: int) -> None:
    """Starts a step. Its prompts queue behind those of earlier steps."""
    in_turn: Future[None] = Future()
    policy = Policy(
      self._sampler,
      self._tokenizer,
      self._weights,
      self._sampling_key(number),
      loop=self._loop,
      priority=(number,),
      partial=PartialRollouts(self._step_tokens, self._paused),
      in_turn=in_turn,
    )
    state = self._system.state_dict() if self._staleness else {}
    rollouts = self._loop.spawn(self._system.collect(policy, number))
    self._steps.append(_Step(number, policy, rollouts, state, in_turn))

  def _begin_more(self, step: int) -> None:
    """Starts the next step if at least an eighth of the slots is free."""
    following = self._steps[-1].number + 1
    enough = max(1, self._sampler.engine.shapes.slot_counts[0] // 8)
    if (
      following <= min(step + self._staleness, self._last)
      and self._loop.num_free >= enough
      and self._system.can_sample_ahead(following)
    ):
      self._begin(following)

  def state_dict(self) -> dict[str, Any]:
    """Returns the system's state, the steps in flight and the paused groups.

    All values are JSON. Call this only between calls of `collect`.
    """
    state = self._system.state_dict()
    if self._paused:
      state = {
        **state,
        PAUSED_GROUPS: [dict(vars(group)) for group in self._paused],
      }
    if not self._steps:
      return state
    suspended = {
      sample_id(sequence): sequence for sequence in self._loop.suspended
    }
    states: list[dict[str, Any]] = []
    steps = []
    for unfinished in self._steps:
      if not states or states[-1] != unfinished.state:
        states.append(unfinished.state)
      sequences = []
      for request, futures in unfinished.policy.sample_log.requests:
        for sample, future in enumerate(futures):
          sequence = _sequence(request, sample, future, suspended)
          if sequence is not None:
            sequences.append(partial_rollouts.sequence_to_json(sequence))
      steps.append(
        {
          "step": unfinished.number,
          "state": len(states) - 1,
          "sequences": sequences,
        }
      )
    return {**state, IN_FLIGHT: {"states": states, "steps": steps}}

  def load_state_dict(self, state: Mapping[str, Any]) -> None:
    """Restores the system's state and restarts the steps in flight.

    Args:
      state: the state that `state_dict` returned.
    """
    ours = (IN_FLIGHT, PAUSED_GROUPS)
    system = {key: v for key, v in state.items() if key not in ours}
    self._paused = [PausedGroup(**row) for row in state.get(PAUSED_GROUPS, ())]
    for step in state.get(IN_FLIGHT, {}).get("steps", ()):
      known = map(partial_rollouts.sequence_from_json, step["sequences"])
      self._loop.restore(known)
      self._system.load_state_dict(state[IN_FLIGHT]["states"][step["state"]])
      self._begin(step["step"])
      self._loop.run_until_idle()
    self._loop.restore([])
    self._jobs.metrics()  # Discard them: the saved run counted these jobs.
    self._system.load_state_dict(system)


def _sequence(
  request: Request,
  sample: int,
  future: "Future[types.Completion]",
  suspended: Mapping[Any, SequenceState],
) -> SequenceState | None:
  """Returns a sequence, ended or not; None if it has no tokens yet."""
  sequence = SequenceState(request, sample)
  if not future.done():
    known = suspended.get(sample_id(sequence))
    return known if known is not None and known.num_tokens else None
  return partial_rollouts.sequence_of(request, sample, future.result())


def _staleness(rollouts: types.RolloutBatch, step: int) -> dict[str, float]:
  """Returns metrics of how many updates old the tokens of a step are."""
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
