"""Countdown: experiments that change only the distribution of prompts.

The life of a step (`GroupSystem.collect`):
1. The curriculum samples puzzles of the training split, and optionally of a
   second source (a pool of random or proposed puzzles).
2. Sample G responses to each puzzle and grade them: the reward is 1.0, 0.1 or
   0. A puzzle whose responses have equal rewards may be replaced
   (`systems/dynamic_sampling.py`).
3. Update the curriculum with the pass rate of each puzzle.
4. Every response becomes a trajectory, whose baseline is the rest of its group
   (RLOO).

In a closed loop the policy also proposes puzzles, which form their own bucket.
When the curriculum chooses this bucket, some of the step's completions are
proposals. New puzzles are solved in the same step, and the reward of a proposal
is the puzzle's learnability (AZR, eq. 4).

Paper: Countdown (docs/papers.md).
"""

import collections
import dataclasses
import enum
from collections.abc import Sequence
from typing import Any

import numpy as np

from azr_jax import types
from azr_jax.config.settings import Invalid
from azr_jax.curricula.curriculum import SampledItem
from azr_jax.executor import futures
from azr_jax.grading import answer_tags
from azr_jax.grading import countdown as verifier
from azr_jax.grading.countdown_puzzle import Puzzle
from azr_jax.randomness import streams
from azr_jax.randomness.purposes import Purpose
from azr_jax.rollout.policy import Policy
from azr_jax.rollout.settings import SamplerSettings
from azr_jax.systems import collect, dynamic_sampling
from azr_jax.systems import groups as groups_lib
from azr_jax.systems.countdown import sources as sources_lib
from azr_jax.systems.countdown.settings import CountdownSettings
from azr_jax.systems.countdown.sources import PROPOSED, Sources
from azr_jax.systems.dynamic_sampling import Groups
from azr_jax.systems.groups import GroupSystem, StepItems
from azr_jax.systems.proposer_rewards import learnability
from azr_jax.systems.system import About, Context, SuggestedScoring
from azr_jax.tasks.countdown import difficulty, prompts, proposals
from azr_jax.tasks.templates import PromptFiles

SOLVE, PROPOSE = "solve", "propose"


class CountdownCall(enum.IntEnum):
  """The `policy.sample` calls of a step. Their numbers are in random keys.

  Puzzles are solved by the first call of a step without proposals.
  """

  FIRST = 0
  AFTER_PROPOSALS = 1


# The reward of a rejected proposal.
_BAD_PROPOSAL_REWARD = -0.5


@dataclasses.dataclass
class _Proposal:
  """A proposed puzzle.

  Attributes:
    completion: the response that proposes the puzzle.
    puzzle: the proposed puzzle; None if rejected.
    rejection: the reason for rejecting it; None if it is a valid new puzzle.
    item: the puzzle's item in source 0; None until it is added.
    pass_rate: the fraction of correct responses, once the puzzle was tried.
  """

  prompt: types.Prompt
  completion: types.Completion
  puzzle: Puzzle | None
  rejection: str | None
  item: SampledItem | None = None
  pass_rate: float = 0.0


@dataclasses.dataclass
class StepPuzzles(StepItems):
  """The puzzles of a step; `items` holds the fields of `SampledItem`.

  Attributes:
    proposals: the step's proposals, sampled in a phase of their own.
    tried: the proposals whose puzzles are the first prompts of the step. Their
      items are None until `observe` adds the puzzles.
  """

  proposals: Sequence[_Proposal] = ()
  tried: Sequence[_Proposal] = ()

  def sampled(self, groups: Groups) -> list[SampledItem]:
    """Returns the item of each sampled group."""
    return [SampledItem(*self.items[g.prompt_index]) for g in groups.sampled]


class Countdown(GroupSystem[StepPuzzles]):
  """The Countdown system. Its state: the curriculum and proposed puzzles."""

  name = "countdown"
  Settings = CountdownSettings
  settings: CountdownSettings

  def __init__(
    self, settings: CountdownSettings, context: Context, sources: Sources
  ):
    super().__init__(settings, context)
    self._puzzles = [list(source) for source in sources.puzzles]
    self._num_given = len(self._puzzles[0])
    self._given = {puzzle.key for source in self._puzzles for puzzle in source}
    # Key of a proposed puzzle -> its item.
    self._proposed: dict[object, SampledItem] = {}
    self._curriculum = sources.curriculum
    self._buckets = sources.buckets

  @classmethod
  def build(cls, settings: CountdownSettings, context: Context) -> "Countdown":
    """Reads or generates the puzzles and makes the system."""
    sources = sources_lib.read(settings, context.steps, context.say)
    return cls(settings, context, sources)

  @classmethod
  def check(cls, settings: CountdownSettings, rollout: SamplerSettings) -> None:
    """Rejects proposals whose step could end before their puzzles are tried."""
    if settings.proposals and rollout.step_tokens:
      raise Invalid(
        f"{cls.name}.proposals",
        f"={settings.proposals}: expected 0 with rollout.step_tokens="
        f"{rollout.step_tokens}, because a proposal's reward needs the pass "
        "rate of its puzzle in the same step",
      )

  @classmethod
  def prompt_files(cls, settings: CountdownSettings) -> PromptFiles:
    """Returns the prompts of solutions and, if there are any, of proposals."""
    names = prompts.SOLVE, *([prompts.PROPOSE] if settings.proposals else [])
    return {name: prompts.FILES[name] for name in names}

  @classmethod
  def about(cls, settings: CountdownSettings) -> About:
    """Returns facts about the system under these settings.

    Proposals replace solutions, so they do not change the load.
    """
    full = settings.prompt_format == "full"
    is_static = settings.curriculum == "static"
    return dataclasses.replace(
      super().about(settings),
      metrics={
        "curriculum": "probability and success (pass rate) of each bucket; "
        "replay_fraction",
        "answer_blocks": "answers per response: 1",
      },
      scoring=SuggestedScoring(
        "countdown" if full else "countdown_tiny", "countdown"
      ),
      # The static schedule depends on the run's length.
      fixed_keys=("train.steps",) if is_static else (),
    )

  def state_dict(self) -> dict[str, Any]:
    """Returns the curriculum's state and the proposed puzzles, as JSON."""
    proposed = self._puzzles[0][self._num_given :]
    return {
      "curriculum": self._curriculum.state_dict(),
      "own": [[list(puzzle.numbers), puzzle.target] for puzzle in proposed],
    }

  def load_state_dict(self, state: dict[str, Any]) -> None:
    """Replaces the curriculum's state and the proposed puzzles."""
    del self._puzzles[0][self._num_given :]
    self._buckets.truncate(self._num_given)
    self._proposed.clear()
    for numbers, target in state["own"]:
      self._add(Puzzle(tuple(numbers), target))
    self._curriculum.load_state_dict(state["curriculum"])

  def _add(self, puzzle: Puzzle) -> SampledItem:
    """Adds a proposed puzzle to source 0 and to its bucket; returns its item.

    A step that overlaps this one may have added it already.
    """
    if puzzle.key not in self._proposed:
      bucket = self._buckets.names.index(PROPOSED)
      self._puzzles[0].append(puzzle)
      item = SampledItem(self._buckets.add(bucket), bucket)
      self._proposed[puzzle.key] = item
    return self._proposed[puzzle.key]

  async def take(self, policy: Policy, step: int) -> StepPuzzles:
    """Draws puzzles from the curriculum; samples proposals if they are due."""
    settings = self.settings
    rngs = dynamic_sampling.generators(
      settings.dynamic_sampling.max_prompts, self.context.seed, step
    )
    items, *extra = reversed(
      [
        self._curriculum.sample(step, settings.prompts, rng)
        for rng in reversed(rngs)
      ]
    )
    proposed: list[_Proposal] = []
    tried: list[_Proposal] = []
    batch_size = settings.prompts
    if settings.proposals and self._may_propose(items):
      proposed = await self._propose(policy, items, step)
      # Proposals replace solutions, so the number of completions per step is
      # the same as without them.
      batch_size -= -(-settings.proposals // settings.group_size)
      tried = [p for p in proposed if p.puzzle is not None][:batch_size]
      items = items[: batch_size - len(tried)]
    for replacements in extra:
      items = items + replacements[:batch_size]
    rows = [dataclasses.astuple(item) for item in items]
    return StepPuzzles(
      [None] * len(tried) + rows, proposals=proposed, tried=tried
    )

  def observe(self, step: int, taken: StepPuzzles, groups: Groups) -> None:
    """Adds proposed puzzles; updates the curriculum and their pass rates."""
    for proposal in taken.proposals:
      if proposal.puzzle is not None:
        proposal.item = self._add(proposal.puzzle)
    added = [p.item for p in taken.tried if p.item is not None]
    taken.items = [
      *map(dataclasses.astuple, added),
      *taken.items[len(added) :],
    ]
    solved = [group.trajectories for group in groups.sampled]
    items = taken.sampled(groups)
    rates = [
      float(np.mean([t.metrics["correct"] for t in group])) for group in solved
    ]
    self._curriculum.update(step, items, rates, collect.gains(solved))
    for proposal in taken.proposals:
      if proposal.item in items:
        proposal.pass_rate = rates[items.index(proposal.item)]

  def batch(
    self, step: int, taken: StepPuzzles, groups: Groups
  ) -> list[types.Trajectory]:
    """Returns the solutions and proposals to train on."""
    items = taken.sampled(groups)
    return super().batch(step, taken, groups) + [
      self._proposal_trajectory(proposal, step)
      for proposal in taken.proposals
      # New puzzles without room in the step have no pass rate, so no reward.
      if proposal.rejection is not None or proposal.item in items
    ]

  def _may_propose(self, items: Sequence[SampledItem]) -> bool:
    """Returns whether the bucket of proposals was drawn or is empty."""
    bucket = self._buckets.names.index(PROPOSED)
    return items[0].bucket == bucket or self._buckets.count(bucket) == 0

  async def sample_group(
    self, policy: Policy, taken: StepPuzzles, index: int
  ) -> list[types.Trajectory]:
    """Returns G graded responses to a puzzle; [] if its prompt is too long."""
    settings, puzzle = self.settings, self._puzzle(taken, index)
    text = prompts.solve_prompt(
      puzzle, self.context.prompt_format(settings.prompt_format)
    )
    prompt = policy.prompt(text, puzzle)
    if not policy.fits(prompt):
      return []
    graded = await collect.sample_group(
      policy,
      prompt,
      index,
      settings.group_size,
      lambda completion: futures.done(
        verifier.verify(puzzle, completion.text, settings.verifier)
      ),
      call=CountdownCall.AFTER_PROPOSALS
      if taken.proposals
      else CountdownCall.FIRST,
    )
    return [
      types.Trajectory(
        prompt=prompt,
        completion=one.completion,
        reward=one.grade.value,
        group_id=(SOLVE, index),
        metrics={
          "correct": float(one.grade.correct),
          "answered": float(one.grade.value > verifier.NO_ANSWER_SCORE),
          "answer_blocks": float(
            answer_tags.answer_blocks(one.completion.text)
          ),
        },
        feedback=verifier.explain(
          puzzle, one.completion.text, settings.verifier
        ),
      )
      for one in graded
    ]

  def _puzzle(self, taken: StepPuzzles, index: int) -> Puzzle:
    """Returns the puzzle of a prompt."""
    if index < len(taken.tried):
      puzzle = taken.tried[index].puzzle
      assert puzzle is not None
      return puzzle
    item = SampledItem(*taken.items[index])
    return self._puzzles[item.source][item.index]

  async def _propose(
    self, policy: Policy, items: Sequence[SampledItem], step: int
  ) -> list[_Proposal]:
    """Samples proposals. New puzzles differ from those before the step."""
    settings = self.settings
    rng = streams.generator(self.context.seed, Purpose.REFERENCES, step)
    known = set(self._proposed)
    proposer_prompts = []
    for _ in range(settings.proposals):
      chosen = rng.choice(len(items), settings.references, replace=False)
      shown = [self._puzzles[items[i].source][items[i].index] for i in chosen]
      text = prompts.propose_prompt(
        shown, self.context.prompt_format(settings.prompt_format)
      )
      proposer_prompts.append(policy.prompt(text))
    samples = policy.sample(proposer_prompts, call=CountdownCall.FIRST)
    responses = {i: response async for i, _, response in samples}
    proposed = []
    for index, prompt in enumerate(proposer_prompts):
      response = responses[index]
      puzzle = prompts.parse_proposal(response.text, settings.prompt_format)
      rejection = proposals.rejection(puzzle, self._given, known)
      if rejection is not None:
        puzzle = None
      if puzzle is not None:
        known.add(puzzle.key)
      proposed.append(_Proposal(prompt, response, puzzle, rejection))
    return proposed

  def _proposal_trajectory(
    self, proposal: _Proposal, step: int
  ) -> types.Trajectory:
    is_valid = proposal.rejection is None
    reward = _BAD_PROPOSAL_REWARD
    if is_valid:
      reward = learnability(proposal.pass_rate)
    return types.Trajectory(
      prompt=proposal.prompt,
      completion=proposal.completion,
      reward=reward,
      group_id=(PROPOSE, step),
      metrics={"valid": float(is_valid)},
      feedback=proposals.explain(proposal.rejection),
    )

  def step_metrics(
    self, step: int, taken: StepPuzzles, groups: Groups
  ) -> dict[str, float]:
    """Returns rewards, pass rates by bucket, and curriculum metrics."""
    del step
    items = taken.sampled(groups)
    solved = groups_lib.trajectories(groups.sampled)
    group_size = self.settings.group_size
    metrics = collect.solve_metrics(solved, "countdown/solve", group_size)
    metrics |= {
      "formatted/countdown/solve/mean": float(
        np.mean([t.metrics["answered"] for t in solved])
      ),
      "answer_blocks/countdown/solve/mean": float(
        np.mean([t.metrics["answer_blocks"] for t in solved])
      ),
      f"buffer/countdown/{PROPOSED}/size": float(
        len(self._puzzles[0]) - self._num_given
      ),
    }
    correct = np.array([t.metrics["correct"] for t in solved])
    pass_rates = correct.reshape(-1, group_size).mean(axis=1)
    by_bucket: dict[str, list[float]] = collections.defaultdict(list)
    names = (*difficulty.BUCKETS, PROPOSED)
    for item, rate in zip(items, pass_rates, strict=True):
      by_bucket[f"source{item.source}/{names[item.bucket]}"].append(rate)
    for name, rates in by_bucket.items():
      metrics[f"correct/countdown/{name}"] = float(np.mean(rates))
      metrics[f"count/countdown/{name}"] = float(len(rates))
    for name, value in self._curriculum.metrics().items():
      metrics[f"curriculum/{name}"] = value
    return metrics | _proposal_metrics(taken.proposals)


def _proposal_metrics(proposed: Sequence[_Proposal]) -> dict[str, float]:
  """Returns the valid fraction, rejection counts and learnability."""
  if not proposed:
    return {}
  metrics = {
    "count/countdown/propose": float(len(proposed)),
    "proposals/countdown/valid_fraction": float(
      np.mean([p.rejection is None for p in proposed])
    ),
  }
  reasons = collections.Counter(p.rejection for p in proposed if p.rejection)
  for reason, count in reasons.items():
    metrics[f"proposals/countdown/rejected_{reason}"] = float(count)
  rates = [p.pass_rate for p in proposed if p.rejection is None]
  if rates:
    metrics["learnability/countdown/solve_rate"] = float(np.mean(rates))
    metrics["learnability/countdown/mean"] = float(
      np.mean([learnability(rate) for rate in rates])
    )
  return metrics
