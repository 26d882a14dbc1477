"""Open-Reasoner-Zero: answers to problems, rewarded by a rule, nothing else.

One step, as `ORZ.collect`:
1. the next problems, in an order that is shuffled anew for every pass;
2. several answers to each are sampled, and compared with the reference: 1 or 0;
3. every answer becomes a trajectory. With `learner.estimator = "gae"` a critic
   makes advantages of the rewards; with `grpo` or `grpo_mean` the other answers
   to the same problem do.

The system remembers how often each problem was last solved, so that hard ones
can be chosen for an annealing stage (`azr_jax.select_problems`).

Paper: seed 002. Completions are learned from as they were sampled; the
published code tokenises their text again.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from azr_jax import types
from azr_jax.curricula import passes
from azr_jax.grading.mathematics import extraction, grader
from azr_jax.learner import advantages
from azr_jax.parallel.verification import Verification
from azr_jax.rollout.policy import Policy
from azr_jax.systems import text_metrics
from azr_jax.tasks.mathematics import prompts
from azr_jax.tasks.mathematics.problem import Problem
from azr_jax.types import RolloutBatch

LENGTH_STOPPED = ("wrong", "graded")


@dataclasses.dataclass(frozen=True)
class ORZSettings:
  """What does not change.

  Attributes:
    prompts: problems of a step.
    samples: answers to each.
    prompt_style: one of `prompts.STYLES`.
    grader: one of `grader.MODES`.
    length_stopped: what an answer earns that ran into the length limit after
      its box: nothing (`wrong`, as published), or what it deserves (`graded`).
    health_samples: answers of a step whose repetition is scored.
    seed: root of every host-side random draw.
  """

  prompts: int
  samples: int
  prompt_style: str
  grader: str
  length_stopped: str
  health_samples: int
  seed: int


class ORZ:
  """The system; its state is how often each problem was last solved."""

  def __init__(
    self,
    settings: ORZSettings,
    problems: Sequence[Problem],
    verification: Verification,
  ):
    """Makes the system.

    Args:
      settings: see there.
      problems: what to train on.
      verification: compares answers with references.

    Raises:
      ValueError: there are fewer problems than a step needs.
    """
    if len(problems) < settings.prompts:
      raise ValueError(
        f"{len(problems)} problems: expected at least orz.prompts="
        f"{settings.prompts}"
      )
    self._settings = settings
    self._problems = list(problems)
    self._verification = verification
    self._solved: dict[int, tuple[int, int]] = {}

  def state_dict(self) -> dict[str, Any]:
    """Right answers and answers at each problem's last turn."""
    return {
      "solved": [[index, *counts] for index, counts in self._solved.items()]
    }

  def load_state_dict(self, state: dict[str, Any]) -> None:
    """Restores what `state_dict` returned."""
    self._solved = {
      index: (right, asked) for index, right, asked in state["solved"]
    }

  def _turn(self, step: int) -> list[int]:
    """The problems of a step; each pass over all has an order of its own."""
    count = self._settings.prompts
    return passes.epoch_indices(
      (self._settings.seed,), len(self._problems), (step - 1) * count, count
    )

  def _ask(
    self, policy: Policy, step: int
  ) -> tuple[list[int], list[types.Prompt]]:
    """The problems of a step whose prompts are not too long, and these.

    Raises:
      ValueError: all are too long.
    """
    turn, asked = [], []
    for index in self._turn(step):
      problem = self._problems[index]
      text = prompts.solve_prompt(problem.question, self._settings.prompt_style)
      prompt = policy.prompt(text, problem)
      if policy.fits(prompt):
        turn.append(index)
        asked.append(prompt)
    if not asked:
      raise ValueError(
        "no problem of this step fits the last of rollout.prompt_buckets; "
        "expected a larger bucket"
      )
    return turn, asked

  def collect(self, policy: Policy, step: int) -> RolloutBatch:
    """Plays one step; see the module's docstring."""
    settings = self._settings
    turn, asked = self._ask(policy, step)
    found = {}
    for index, sample, completion in policy.sample(asked, settings.samples):
      answer = extraction.find_answer(completion.text)
      if settings.length_stopped == "wrong" and (
        completion.finish_reason != "stop"
      ):
        answer = None
      gold = asked[index].task.answer
      verdict = self._verification.submit(
        lambda executor, gold=gold, answer=answer: grader.submit(
          executor, gold, answer, settings.grader
        )
      )
      found[index, sample] = completion, verdict
    self._verification.settle()
    trajectories = []
    for index, prompt in enumerate(asked):
      right = 0
      for sample in range(settings.samples):
        completion, verdict = found[index, sample]
        correct = verdict.result()
        right += correct
        trajectories.append(_trajectory(prompt, completion, correct, index))
      self._solved[turn[index]] = right, settings.samples
    metrics = self._metrics(trajectories)
    metrics["count/orz/too_long"] = float(settings.prompts - len(turn))
    return RolloutBatch(trajectories, metrics)

  def _metrics(
    self, trajectories: Sequence[types.Trajectory]
  ) -> dict[str, float]:
    settings = self._settings
    correct = np.array([t.reward for t in trajectories])
    groups = correct.reshape(-1, settings.samples)
    lengths = np.array([len(t.completion.token_ids) for t in trajectories])
    found = {
      "reward/orz/solve/mean": float(correct.mean()),
      "correct/orz/solve/mean": float(correct.mean()),
      "correct/orz/solve/any": float(groups.any(axis=1).mean()),
      "groups/orz/equal_share": float(np.mean(np.ptp(groups, axis=1) == 0)),
      "tokens/orz/solve/mean": float(lengths.mean()),
      "tokens/orz/solve/std": float(lengths.std()),
      "count/orz/solve": float(len(trajectories)),
    }
    found |= text_metrics.metrics(
      trajectories, "health/orz", settings.health_samples
    )
    found |= _repetition(trajectories, correct, lengths)
    return found | self._verification.metrics()


def _trajectory(
  prompt: types.Prompt, completion: types.Completion, correct: bool, index: int
) -> types.Trajectory:
  return types.Trajectory(
    prompt=prompt,
    completion=completion,
    reward=float(correct),
    group_id=("solve", index),
    metrics={
      "correct": float(correct),
      "formatted": float(prompts.well_formatted(completion.text)),
    },
    repeats_from=text_metrics.repeats_from(completion.token_ids),
  )


def _repetition(
  trajectories: Sequence[types.Trajectory],
  rewards: np.ndarray,
  lengths: np.ndarray,
) -> dict[str, float]:
  """Repetitive tokens, and the advantage that GRPO would give them.

  The critic's is `critic/advantage_on_repetition` (seed 002, figure 5); both
  are normalised over the tokens of the batch.
  """
  repeated = np.array(
    [
      0 if t.repeats_from is None else length - t.repeats_from
      for t, length in zip(trajectories, lengths, strict=True)
    ]
  )
  found = {
    "health/orz/repeated_token_share": float(repeated.sum() / lengths.sum()),
    "health/orz/grpo_advantage_on_repetition": 0.0,
  }
  if repeated.any():
    groups = [t.group_id for t in trajectories]
    grpo = advantages.estimate(
      "grpo", rewards.tolist(), groups, lengths.tolist(), normalize=True
    )
    found["health/orz/grpo_advantage_on_repetition"] = float(
      np.average(grpo, weights=repeated)
    )
  return found
