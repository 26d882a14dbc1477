"""Absolute Zero Reasoner: one model proposes and solves program tasks.

One step of Algorithm 1, as `AZR.collect`:
1. (first step only) seed the three buffers from the zero triplet;
2. propose: B prompts per task type; valid tasks enter the buffers;
3. learnability: n solver rollouts per valid proposal (eq. 4);
4. solve: B tasks per type, this step's first, filled from the buffer;
5. every proposal and solution becomes a trajectory with its composite
   reward (eq. 5, 6) and its (task type, role) baseline group (eq. 8).

Paper: arXiv 2505.03335. Where the published code differs from the paper, a
named setting selects either; the defaults follow the paper.
"""

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from azr_jax import types
from azr_jax.parallel.verification import Verification
from azr_jax.rollout.policy import Policy
from azr_jax.systems.azr import program_metrics, proposer, seeding, solver
from azr_jax.systems.azr import rewards as azr_rewards
from azr_jax.systems.azr.rewards import RewardRules
from azr_jax.tasks.programs import buffer as buffer_lib
from azr_jax.tasks.programs.task import PROPOSE, SOLVE, Task
from azr_jax.types import RolloutBatch

PREFIX = "azr"
DUPLICATES = ("keep", "reject")
FRESH_STEPS = 50  # A task that was found in the last of these is fresh.


@dataclasses.dataclass(frozen=True)
class AZRSettings:
  """The paper's constants (Table 3) and the named departures from it.

  Attributes:
    task_types: which of deduction, abduction, induction and error_deduction
      (appendix D.1) are played.
    batch_size: B, proposals and solutions per task type.
    references: K, example triplets shown to a proposer.
    reference_draw: `uniform`, or `recent`: likelier the newer (appendix D.3).
    composite_chance: of a deduction or abduction proposal being asked to build
      on programs of the buffer (appendix D.2).
    composite_most: most programs to build on; at least one.
    strip: what is removed of a proposed program, some of
      `rewriting.STRIPPED` (appendix D.5).
    roles: those that learn; both play (Table 2).
    learnability_samples: n, solver rollouts per valid proposal.
    induction_inputs: N, inputs of an induction task; half are shown.
    seed_factor: S; seeding stops at B x S tasks per buffer.
    seed_rounds: most sampling rounds spent on each seed buffer.
    seeds: programs to start from, as `seed_files.read` reads them; "": the
      model's own.
    max_programs: buffer cap.
    evict: who leaves at the cap, one of `buffer.EVICTIONS`.
    revisit: what of a buffer is solved again, one of `buffer.REVISITS`.
    duplicates: `keep` (paper), or `reject` proposals that differ from a task of
      the buffer in names or layout alone.
    prompt_style: one of `prompts.STYLES`.
    solve_from: `current` solves tasks of this step (paper), `previous` those
      of the step before (published code).
    measure_programs: log complexity and diversity (appendix C.4, C.5).
    train_on_learnability: also learn from the learnability rollouts, as
      solver trajectories; the paper discards them.
    rewards: the composite reward's values.
    seed: root of every host-side random draw.
  """

  task_types: tuple[str, ...]
  batch_size: int
  references: int
  reference_draw: str
  composite_chance: float
  composite_most: int
  strip: tuple[str, ...]
  roles: tuple[str, ...]
  learnability_samples: int
  induction_inputs: int
  seed_factor: int
  seed_rounds: int
  seeds: str
  max_programs: int
  evict: str
  revisit: str
  duplicates: str
  prompt_style: str
  solve_from: str
  train_on_learnability: bool
  measure_programs: bool
  rewards: RewardRules
  seed: int


class AZR:
  """The self-play system; its state is the task buffers, and what was asked."""

  def __init__(self, settings: AZRSettings, verification: Verification):
    self._settings = settings
    self._verification = verification
    self.buffers = {
      task_type: buffer_lib.TaskBuffer(
        settings.max_programs, settings.evict, settings.revisit
      )
      for task_type in settings.task_types
    }
    self._answers = program_metrics.AnswerCounts()

  def state_dict(self) -> dict[str, Any]:
    """Returns the buffers and the counts of answers as JSON values."""
    buffers = {name: b.state_dict() for name, b in self.buffers.items()}
    return {**buffers, "answers": self._answers.state_dict()}

  def load_state_dict(self, state: dict[str, Any]) -> None:
    """Restores what `state_dict` returned.

    Raises:
      ValueError: it is of a run without one of the task types.
    """
    for name, buffer in self.buffers.items():
      if name not in state:
        raise ValueError(
          f"config.azr.task_types has {name}, of which this run has no tasks: "
          "expected the types that it began with, or another --workdir"
        )
      buffer.load_state_dict(state[name])
    self._answers.load_state_dict(state["answers"])

  def collect(self, policy: Policy, step: int) -> RolloutBatch:
    """Plays one step; see the module's docstring."""
    settings = self._settings
    clock = _Clock()
    if not any(len(buffer) for buffer in self.buffers.values()):
      seeding.seed_buffers(
        policy,
        self._verification,
        self.buffers,
        settings,
        self._rng(step, "seed"),
      )
      clock.lap("seed")
    proposals = self._propose(policy, step)
    clock.lap("propose")
    measured = []
    if settings.measure_programs:
      # In other processes, while the rollouts are sampled.
      measured = program_metrics.start(self._verification, proposals)
    rollouts = self._measure_learnability(policy, proposals)
    clock.lap("learnability")
    solutions = self._solve(policy, proposals, step)
    clock.lap("solve")

    if settings.measure_programs:
      program_metrics.finish(measured, proposals, self._answers)
    proposed = [self._proposal_trajectory(p) for p in proposals]
    solved = [self._solution_trajectory(s) for s in solutions]
    metrics = azr_rewards.step_metrics([*proposed, *solved], PREFIX)
    metrics |= _proposal_metrics(proposals, settings.learnability_samples)
    if settings.measure_programs:
      metrics |= program_metrics.metrics(proposals, PREFIX)
      metrics |= program_metrics.solution_metrics(
        self._verification, solutions, PREFIX
      )
      clock.lap("measures")
    if settings.train_on_learnability:
      solved += [self._solution_trajectory(s) for s in rollouts]
    for name, buffer in self.buffers.items():
      metrics[f"buffer/{PREFIX}/{name}/size"] = float(len(buffer))
      metrics[f"buffer/{PREFIX}/{name}/fresh_share"] = buffer.share_since(
        step - FRESH_STEPS + 1
      )
    metrics |= self._verification.metrics()
    metrics |= clock.metrics()
    by_role = {PROPOSE: proposed, SOLVE: solved}
    learned = [t for role in settings.roles for t in by_role[role]]
    return RolloutBatch(learned, metrics)

  def _rng(self, step: int, purpose: str) -> np.random.Generator:
    words = [self._settings.seed, step, *purpose.encode()]
    return np.random.default_rng(words)

  def _propose(self, policy: Policy, step: int) -> list[proposer.Proposal]:
    """Asks for B proposals per type; valid ones enter the buffers."""
    rng = self._rng(step, "propose")
    settings = self._settings
    prompts = [
      (
        task_type,
        proposer.propose_prompt(policy, task_type, self.buffers, settings, rng),
      )
      for task_type in settings.task_types
      for _ in range(settings.batch_size)
    ]
    proposals = proposer.sample_proposals(
      policy, self._verification, prompts, settings
    )
    for proposal in proposals:
      if proposal.task is None:
        continue
      buffer = self.buffers[proposal.task_type]
      proposal.duplicate = buffer.has_like(proposal.task)
      if proposal.duplicate and settings.duplicates == "reject":
        proposal.task, proposal.rejection = None, "duplicate"
      else:
        buffer.add(proposal.task, step)
    return proposals

  def _measure_learnability(
    self, policy: Policy, proposals: Sequence[proposer.Proposal]
  ) -> list[solver.Solution]:
    """Sets each valid proposal's mean solver accuracy (eq. 4's r-bar)."""
    valid = [p for p in proposals if p.passable]
    solutions = solver.sample_solutions(
      policy,
      self._verification,
      [(p.task_type, p.task) for p in valid if p.task is not None],
      self._settings.prompt_style,
      n=self._settings.learnability_samples,
    )
    n = self._settings.learnability_samples
    for index, proposal in enumerate(valid):
      own = solutions[index * n : (index + 1) * n]
      proposal.solve_rate = float(np.mean([s.correct for s in own]))
    self._observe(solutions)
    return solutions

  def _observe(self, solutions: Sequence[solver.Solution]) -> None:
    """Tells the buffers how their tasks were answered."""
    for one in solutions:
      buffer = self.buffers[one.task_type]
      buffer.update(one.prompt.task, int(one.correct), 1)

  def _solve(
    self,
    policy: Policy,
    proposals: Sequence[proposer.Proposal],
    step: int,
  ) -> list[solver.Solution]:
    """Solves B tasks per type: fresh ones first, the rest from the buffer."""
    rng = self._rng(step, "solve")
    settings = self._settings
    tasks: list[tuple[str, Task]] = []
    for task_type in settings.task_types:
      buffer = self.buffers[task_type]
      if settings.solve_from == "current":
        fresh = [
          p.task
          for p in proposals
          if p.task is not None and p.task_type == task_type
        ]
      else:
        fresh = buffer.from_step(step - 1)
      fresh = fresh[: settings.batch_size]
      filler = buffer.revisit(rng, settings.batch_size - len(fresh))
      tasks += [(task_type, task) for task in [*fresh, *filler]]
    solutions = solver.sample_solutions(
      policy, self._verification, tasks, settings.prompt_style, n=1
    )
    self._observe(solutions)
    return solutions

  def _proposal_trajectory(
    self, proposal: proposer.Proposal
  ) -> types.Trajectory:
    reward = azr_rewards.proposal_reward(
      proposal.passable,
      proposal.solve_rate,
      self._settings.rewards,
      proposal.measures,
    )
    metrics = {"valid": float(proposal.task is not None)}
    if proposal.passable:
      metrics["solve_rate"] = proposal.solve_rate
    return types.Trajectory(
      prompt=proposal.prompt,
      completion=proposal.completion,
      reward=reward,
      group_id=(proposal.task_type, PROPOSE),
      metrics=metrics,
    )

  def _solution_trajectory(self, solution: solver.Solution) -> types.Trajectory:
    reward = azr_rewards.solution_reward(
      solution.formatted, solution.correct, self._settings.rewards
    )
    return types.Trajectory(
      prompt=solution.prompt,
      completion=solution.completion,
      reward=reward,
      group_id=(solution.task_type, SOLVE),
      metrics={
        "correct": float(solution.correct),
        "formatted": float(solution.formatted),
      },
    )


def _proposal_metrics(
  proposals: Sequence[proposer.Proposal], samples: int
) -> dict[str, float]:
  """Valid share, rejection reasons and learnability, per task type.

  Of learnability the histogram, too: how many proposals were solved how often.
  """
  metrics: dict[str, float] = {}
  for task_type in dict.fromkeys(p.task_type for p in proposals):
    own = [p for p in proposals if p.task_type == task_type]
    name = f"{PREFIX}/{task_type}"
    valid = [p for p in own if p.task is not None]
    metrics[f"proposals/{name}/valid_share"] = len(valid) / len(own)
    metrics[f"proposals/{name}/duplicate_share"] = float(
      np.mean([p.duplicate for p in own])
    )
    composites = [p for p in own if p.prompt.task.components]
    if composites:
      metrics[f"proposals/{name}/composite_share"] = len(composites) / len(own)
      metrics[f"proposals/{name}/composite_valid_share"] = float(
        np.mean([p.task is not None for p in composites])
      )
    for reason in dict.fromkeys(p.rejection for p in own if p.rejection):
      count = sum(p.rejection == reason for p in own)
      metrics[f"proposals/{name}/rejected_{reason}"] = float(count)
    rates = [p.solve_rate for p in own if p.passable]
    if rates:
      learnability = [azr_rewards.learnability(rate) for rate in rates]
      metrics[f"learnability/{name}/solve_rate"] = float(np.mean(rates))
      metrics[f"learnability/{name}/mean"] = float(np.mean(learnability))
      metrics[f"learnability/{name}/never_solved_share"] = float(
        np.mean([rate == 0 for rate in rates])
      )
      for right in range(samples + 1):
        count = sum(round(rate * samples) == right for rate in rates)
        metrics[f"learnability/{name}/solved_{right}_of_{samples}"] = count
  return metrics


class _Clock:
  """Wall-clock seconds of the step's phases."""

  def __init__(self) -> None:
    self._last = time.monotonic()
    self._laps: dict[str, float] = {}

  def lap(self, name: str) -> None:
    now = time.monotonic()
    self._laps[name] = now - self._last
    self._last = now

  def metrics(self) -> dict[str, float]:
    return {f"time/{name}": value for name, value in self._laps.items()}
