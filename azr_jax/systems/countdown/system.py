"""RLOO on Countdown, where only the distribution of prompts changes.

One step, as `Countdown.collect`:
1. a curriculum draws puzzles: from labelled ones of the training split, and
   perhaps from a pool that a proposer or chance made;
2. G answers to each are sampled, and verified: 1.0, 0.1 or 0.0;
3. the curriculum hears the share of right answers of each puzzle;
4. every answer becomes a trajectory whose baseline is its group's others.

In a closed loop the policy also proposes. The bucket `own` holds puzzles of its
own; when the curriculum chooses it, part of the step's answers are proposals,
new puzzles among them are solved at once, and a proposal is rewarded for being
learnable (AZR, eq. 4) by the solver that it was made for.

Paper: seed 003; what it leaves open is said where it is decided.
"""

import collections
import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from azr_jax import types
from azr_jax.curricula.curriculum import Buckets, Curriculum, SampledItem
from azr_jax.grading import answer_tags
from azr_jax.grading import countdown as verifier
from azr_jax.grading.countdown_puzzle import Puzzle
from azr_jax.rollout.policy import Policy
from azr_jax.systems.azr import rewards as azr_rewards
from azr_jax.systems.azr.rewards import RewardRules
from azr_jax.tasks.countdown import difficulty, prompts, proposals
from azr_jax.types import RolloutBatch

SOLVE, PROPOSE = "solve", "propose"
OWN = "own"


@dataclasses.dataclass(frozen=True)
class CountdownSettings:
  """What stays fixed while the curriculum changes.

  Attributes:
    prompts: puzzles of a step.
    group_size: G, answers to each.
    prompt_style: one of `prompts.STYLES`.
    verifier: one of `verifier.MODES`.
    proposals: of a step whose puzzles are the policy's own; 0: no closed loop.
    references: puzzles that a proposer is shown.
    rewards: of proposals.
    seed: root of every host-side random draw.
  """

  prompts: int
  group_size: int
  prompt_style: str
  verifier: str
  proposals: int
  references: int
  rewards: RewardRules
  seed: int


@dataclasses.dataclass
class _Proposal:
  prompt: types.Prompt
  completion: types.Completion
  rejection: str | None
  draw: SampledItem | None = None
  pass_rate: float = 0.0


class Countdown:
  """The system; its state is the curriculum's and the policy's own puzzles."""

  def __init__(
    self,
    settings: CountdownSettings,
    puzzles: Sequence[Sequence[Puzzle]],
    curriculum: Curriculum,
    pool: Buckets,
  ):
    """Makes the system.

    Args:
      settings: see there.
      puzzles: by source; a draw's index is one into its source.
      curriculum: samples the puzzles of a step.
      pool: of source 0, which the policy's own puzzles are added to.
    """
    self._settings = settings
    self._puzzles = [list(source) for source in puzzles]
    self._given = len(self._puzzles[0])
    self._known = {puzzle.key for source in puzzles for puzzle in source}
    self._curriculum = curriculum
    self._pool = pool

  def state_dict(self) -> dict[str, Any]:
    """The curriculum's state and the policy's own puzzles, as JSON values."""
    own = self._puzzles[0][self._given :]
    return {
      "curriculum": self._curriculum.state_dict(),
      "own": [[list(puzzle.numbers), puzzle.target] for puzzle in own],
    }

  def load_state_dict(self, state: dict[str, Any]) -> None:
    """Restores what `state_dict` returned, into a new system."""
    for numbers, target in state["own"]:
      self._add(Puzzle(tuple(numbers), target))
    self._curriculum.load_state_dict(state["curriculum"])

  def _add(self, puzzle: Puzzle) -> SampledItem:
    """Adds a puzzle of the policy's own."""
    bucket = self._pool.names.index(OWN)
    self._puzzles[0].append(puzzle)
    self._known.add(puzzle.key)
    return SampledItem(self._pool.add(bucket), bucket)

  def collect(self, policy: Policy, step: int) -> RolloutBatch:
    """Plays one step; see the module's docstring."""
    settings = self._settings
    rng = np.random.default_rng((settings.seed, step))
    draws = self._curriculum.sample(step, settings.prompts, rng)
    made: list[_Proposal] = []
    if settings.proposals and self._own_turn(draws):
      made = self._propose(policy, draws, rng)
      fresh = [p.draw for p in made if p.draw is not None]
      # Proposals are answers too: the step's budget stays what it was.
      room = settings.prompts - -(-settings.proposals // settings.group_size)
      draws = (fresh + draws)[:room]
    asked = [self._puzzles[draw.source][draw.index] for draw in draws]
    solved = self._solve(policy, asked)
    rates = [
      float(np.mean([t.metrics["correct"] for t in group])) for group in solved
    ]
    self._curriculum.update(step, draws, rates)
    for proposal in made:
      if proposal.draw in draws:
        proposal.pass_rate = rates[draws.index(proposal.draw)]
    trajectories = [trajectory for group in solved for trajectory in group]
    metrics = self._metrics(draws, trajectories)
    metrics |= _proposal_metrics(made)
    trajectories += [
      self._proposal_trajectory(proposal, step)
      for proposal in made
      # What was not solved for want of room earns nothing, and teaches nothing.
      if proposal.rejection is not None or proposal.draw in draws
    ]
    return RolloutBatch(trajectories, metrics)

  def _own_turn(self, draws: Sequence[SampledItem]) -> bool:
    """Whether the policy proposes: its bucket was chosen, or is still empty."""
    own = self._pool.names.index(OWN)
    return draws[0].bucket == own or self._pool.count(own) == 0

  def _solve(
    self, policy: Policy, puzzles: Sequence[Puzzle]
  ) -> list[list[types.Trajectory]]:
    """G verified answers to each puzzle, in order."""
    settings = self._settings
    asked = [
      policy.prompt(prompts.solve_prompt(puzzle, settings.prompt_style), puzzle)
      for puzzle in puzzles
    ]
    found: dict[tuple[int, int], types.Trajectory] = {}
    for index, sample, completion in policy.sample(asked, settings.group_size):
      verdict = verifier.verify(
        puzzles[index], completion.text, settings.verifier
      )
      found[index, sample] = types.Trajectory(
        prompt=asked[index],
        completion=completion,
        reward=verdict.score,
        group_id=(SOLVE, index),
        metrics={
          "correct": float(verdict.right),
          "answered": float(verdict.score > verifier.NO_ANSWER),
          "answer_blocks": float(answer_tags.answer_blocks(completion.text)),
        },
      )
    return [
      [found[index, sample] for sample in range(settings.group_size)]
      for index in range(len(puzzles))
    ]

  def _propose(
    self, policy: Policy, draws: Sequence[SampledItem], rng: np.random.Generator
  ) -> list[_Proposal]:
    """Proposals; what is a new puzzle joins the policy's own."""
    settings = self._settings
    asked = []
    for _ in range(settings.proposals):
      chosen = rng.choice(len(draws), settings.references, replace=False)
      shown = [self._puzzles[draws[i].source][draws[i].index] for i in chosen]
      text = prompts.propose_prompt(shown, settings.prompt_style)
      asked.append(policy.prompt(text))
    replies = {i: reply for i, _, reply in policy.sample(asked)}
    made = []
    for index, prompt in enumerate(asked):
      reply = replies[index]
      puzzle = prompts.parse_proposal(reply.text, settings.prompt_style)
      rejection = proposals.rejection(puzzle, self._known)
      proposal = _Proposal(prompt, reply, rejection)
      if puzzle is not None and rejection is None:
        proposal.draw = self._add(puzzle)
      made.append(proposal)
    return made

  def _proposal_trajectory(
    self, proposal: _Proposal, step: int
  ) -> types.Trajectory:
    valid = proposal.rejection is None
    return types.Trajectory(
      prompt=proposal.prompt,
      completion=proposal.completion,
      reward=azr_rewards.proposal_reward(
        valid, proposal.pass_rate, self._settings.rewards
      ),
      group_id=(PROPOSE, step),
      metrics={"valid": float(valid)},
    )

  def _metrics(
    self, draws: Sequence[SampledItem], solved: Sequence[types.Trajectory]
  ) -> dict[str, float]:
    """Rewards, groups that teach nothing, success by bucket, curriculum."""
    settings = self._settings
    rewards = np.array([t.reward for t in solved])
    groups = rewards.reshape(-1, settings.group_size)
    correct = np.array([t.metrics["correct"] for t in solved])
    metrics = {
      "reward/countdown/solve/mean": float(rewards.mean()),
      "correct/countdown/solve/mean": float(correct.mean()),
      "formatted/countdown/solve/mean": float(
        np.mean([t.metrics["answered"] for t in solved])
      ),
      "answer_blocks/countdown/solve/mean": float(
        np.mean([t.metrics["answer_blocks"] for t in solved])
      ),
      "tokens/countdown/solve/mean": float(
        np.mean([len(t.completion.token_ids) for t in solved])
      ),
      "tokens/countdown/solve/truncated_share": float(
        np.mean([t.completion.finish_reason == "length" for t in solved])
      ),
      "count/countdown/solve": float(len(solved)),
      "groups/countdown/equal_share": float(
        np.mean(np.ptp(groups, axis=1) == 0)
      ),
      f"buffer/countdown/{OWN}/size": float(
        len(self._puzzles[0]) - self._given
      ),
    }
    by_draw = correct.reshape(-1, settings.group_size).mean(axis=1)
    rates: dict[str, list[float]] = collections.defaultdict(list)
    for draw, rate in zip(draws, by_draw, strict=True):
      rates[f"source{draw.source}/{self._bucket_name(draw)}"].append(rate)
    for name, values in rates.items():
      metrics[f"correct/countdown/{name}"] = float(np.mean(values))
      metrics[f"count/countdown/{name}"] = float(len(values))
    for name, value in self._curriculum.metrics().items():
      metrics[f"curriculum/{name}"] = value
    return metrics

  def _bucket_name(self, draw: SampledItem) -> str:
    return (*difficulty.BUCKETS, OWN)[draw.bucket]


def _proposal_metrics(made: Sequence[_Proposal]) -> dict[str, float]:
  if not made:
    return {}
  metrics = {
    "count/countdown/propose": float(len(made)),
    "proposals/countdown/valid_share": float(
      np.mean([p.rejection is None for p in made])
    ),
  }
  for reason, count in collections.Counter(
    p.rejection for p in made if p.rejection
  ).items():
    metrics[f"proposals/countdown/rejected_{reason}"] = float(count)
  rates = [p.pass_rate for p in made if p.rejection is None]
  if rates:
    metrics["learnability/countdown/solve_rate"] = float(np.mean(rates))
    metrics["learnability/countdown/mean"] = float(
      np.mean([azr_rewards.learnability(rate) for rate in rates])
    )
  return metrics
