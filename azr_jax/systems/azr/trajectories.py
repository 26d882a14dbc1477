"""AZR trajectories: proposals and solutions with their composite rewards."""

from collections.abc import Sequence

from azr_jax import types
from azr_jax.systems import collect
from azr_jax.systems.azr import rewards
from azr_jax.systems.azr.extensions import guide, intrinsic, repetition
from azr_jax.systems.azr.proposer import Proposal
from azr_jax.systems.azr.rewards import RewardRules
from azr_jax.systems.azr.solver import Solution
from azr_jax.tasks.programs.task import DEDUCTION, PROPOSE, SOLVE

# Why a proposal is invalid, in words.
_REASONS = {
  "format": "it does not have the parts that were asked for",
  "input": "an input is not a literal value, or two inputs are equal",
  "error": "the program does not run",
  "no_error": "the program raises no exception",
  "timeout": "the program does not end in time",
  "blocked": "the program uses a forbidden module",
  "nondeterministic": "the program does not always return the same value",
  "no_output": "the program returns None",
  "oversize": "the program or a value is too long",
  "duplicate": "the same task exists already",
  "similar": "it is too close to a task of its prompt",
  "unused": "the program does not build on the given functions",
  "trivial": "the program only returns what a given function returns",
  "constant": "its instances or their answers do not differ enough",
  "instance": "an instance is not a literal value",
  "score": "a score is not a number from 0 to 1",
  "oracle": "its own answers do not get full marks",
  "lenient": "wrong answers get full marks",
}


def of_proposals(
  proposals: Sequence[Proposal], rules: RewardRules
) -> list[types.Trajectory]:
  """Returns the trajectories of a step's proposals.

  Args:
    proposals: all proposals of the step, which the repetition penalty compares.
    rules: the values of the composite reward.
  """
  penalties = repetition.penalties(
    [(p.task_type, p.task) for p in proposals],
    rules.repetition,
    rules.repetition_distance,
  )
  return [
    _of_proposal(proposal, rules, penalty, factor)
    for proposal, penalty, factor in zip(
      proposals,
      penalties,
      guide.factors(proposals, rules.guide_weight),
      strict=True,
    )
  ]


def _of_proposal(
  proposal: Proposal, rules: RewardRules, penalty: float, factor: float
) -> types.Trajectory:
  """Returns a proposal's trajectory, whose group is (task type, propose).

  Args:
    proposal: the proposal. `solved` is set if it earns its role's reward (eq.
      6), because only then it has learnability rollouts.
    rules: the values of the composite reward.
    penalty: the repetition penalty, subtracted from the reward.
    factor: the guide's factor of a positive reward.
  """
  solved, extra = proposal.solved, rules.intrinsic
  reward = rewards.proposal_reward(solved, rules, penalty)
  if extra is not None and solved is not None:
    is_learnable = rewards.min_reward(solved, rules.proposer) > 0
    if is_learnable or not extra.only_learnable:
      reward = intrinsic.reward(
        reward, proposal.program_metrics, extra.weights, extra.aggregation
      )
  reward *= factor if reward > 0 else 1.0
  metrics = {
    "valid": float(proposal.earns_reward),
    "formatted": float(proposal.formatted),
  }
  if solved and solved.rate is not None:
    metrics["solve_rate"] = solved.rate
  if rules.repetition:
    metrics["repetition"] = penalty
  return types.Trajectory(
    prompt=proposal.prompt,
    completion=proposal.completion,
    reward=reward,
    group_id=(proposal.task_type, PROPOSE),
    metrics=metrics,
    feedback=_rejection(proposal),
  )


def of_solution(solution: Solution, rules: RewardRules) -> types.Trajectory:
  """Returns a solution's trajectory, whose group is (task type, solve)."""
  reward = rewards.solution_reward(solution.formatted, solution.correct, rules)
  metrics = collect.outcome_metrics(solution.outcome)
  metrics["formatted"] = float(solution.formatted)
  if solution.task_type == DEDUCTION:
    metrics[collect.COMPUTED] = float(solution.computed)
  return types.Trajectory(
    prompt=solution.prompt,
    completion=solution.completion,
    reward=reward,
    group_id=(solution.task_type, SOLVE),
    metrics=metrics,
    feedback=collect.feedback(
      solution.outcome, solution.formatted, solution.said
    ),
    reference=solution.reference,
  )


def _rejection(proposal: Proposal) -> str:
  """Returns what a teacher reads about a proposal; "" if it is valid."""
  if proposal.rejection:
    reason = _REASONS.get(proposal.rejection, proposal.rejection)
    return f"The proposal is invalid: {reason}. {proposal.detail}".strip()
  return "" if proposal.formatted else "It does not have the required format."
