"""Shared parts of a step: sample and grade concurrently, compute metrics."""

import dataclasses
from collections.abc import AsyncIterable, Callable, Sequence
from concurrent.futures import Future
from typing import Generic, TypeVar

import numpy as np

from azr_jax import types
from azr_jax.grading.outcome import Outcome
from azr_jax.learner import advantages
from azr_jax.parallel.shared_jobs import SharedJobs
from azr_jax.rollout.event_loop import Awaited
from azr_jax.rollout.policy import IndexedCompletion, Policy
from azr_jax.rollout.tool_runner import ToolRunner

OUTCOME_METRICS = CORRECT, TIMED_OUT, LOST = "correct", "timed_out", "lost"
COMPUTED = "computed"
# What the outcomes say about a response. A lost process says nothing.
_FEEDBACK = {
  Outcome.INCORRECT: "The final answer is wrong, or there is none.",
  Outcome.COMPUTED: "The final answer is an expression that has the right "
  "value. The value itself was asked for.",
  Outcome.TIMEOUT: "The final answer took too long to check.",
}
GradeT = TypeVar("GradeT")


@dataclasses.dataclass(frozen=True)
class GradedCompletion(Generic[GradeT]):
  """A completion and the future of its grade.

  Attributes:
    future: the future of the grade. `sample_and_grade` returns it resolved.
  """

  completion: types.Completion
  future: "Future[GradeT]"

  @property
  def grade(self) -> GradeT:
    """The grade. Raises the exception with which grading failed."""
    return self.future.result()


async def sample_and_grade(
  samples: AsyncIterable[IndexedCompletion],
  submit: Callable[[int, types.Completion], "Future[GradeT]"],
  jobs: SharedJobs | None = None,
) -> list[list[GradedCompletion[GradeT]]]:
  """Grades completions while others are still being sampled.

  Args:
    samples: (prompt index, sample index, completion), as a policy yields them.
    submit: maps (prompt index, completion) to the future of its grade.
    jobs: the jobs that grade. None if `submit` returns resolved futures.

  Returns:
    The graded samples of each prompt, in prompt and sample order.
  """
  graded: dict[tuple[int, int], GradedCompletion[GradeT]] = {}
  async for index, sample, completion in samples:
    graded[index, sample] = GradedCompletion(
      completion, submit(index, completion)
    )
  for one in graded.values():
    await Awaited(one.future, jobs)
  by_prompt: dict[int, list[GradedCompletion[GradeT]]] = {}
  for index, sample in sorted(graded):
    by_prompt.setdefault(index, []).append(graded[index, sample])
  return list(by_prompt.values())


async def sample_group(
  policy: Policy,
  prompt: types.Prompt,
  prompt_number: int,
  n: int,
  grade: Callable[[types.Completion], "Future[GradeT]"],
  *,
  call: int = 0,
  jobs: SharedJobs | None = None,
  tool_runner: ToolRunner | None = None,
) -> list[GradedCompletion[GradeT]]:
  """Returns n graded responses to a prompt of a step.

  Args:
    policy: the policy to sample from.
    prompt: a prompt that fits the largest prompt bucket.
    prompt_number: a part of the random key, unique among the prompts of a call.
    n: the number of responses.
    grade: maps a completion to the future of its grade.
    call: a part of the random key, for steps that sample for several purposes.
    jobs: see `sample_and_grade`.
    tool_runner: runs the tool calls of conversations.
  """
  samples = policy.sample([prompt], n, [prompt_number], tool_runner, call=call)
  [graded] = await sample_and_grade(samples, lambda _, c: grade(c), jobs)
  return graded


def outcome_metrics(outcome: Outcome) -> dict[str, float]:
  """Returns the trajectory metrics of an outcome, for `solve_metrics`."""
  values = bool(outcome), outcome is Outcome.TIMEOUT, outcome is Outcome.LOST
  return dict(zip(OUTCOME_METRICS, map(float, values), strict=True))


def feedback(
  outcome: Outcome, is_formatted: bool = True, said: str = ""
) -> str:
  """Returns what a teacher reads about a graded response; "" if nothing.

  Args:
    outcome: the outcome of grading.
    is_formatted: whether the response has the format that its reward requires.
    said: what grading showed about a response that is not correct; "" if it
      showed only the outcome.
  """
  text = _FEEDBACK.get(outcome, "")
  text = text and (said or text)
  if not is_formatted:
    return f"The response does not have the required format. {text}".strip()
  return text


def response_metrics(
  completions: Sequence[types.Completion], name: str
) -> dict[str, float]:
  """Returns the count, lengths and truncated fraction of completions.

  Args:
    completions: at least one.
    name: the part of the metric names after the family.
  """
  # Count only tokens that the model wrote, not tool output.
  lengths = np.array([c.loss_mask.sum() for c in completions])
  truncated = [c.finish_reason == "length" for c in completions]
  return {
    f"tokens/{name}/mean": float(lengths.mean()),
    f"tokens/{name}/std": float(lengths.std()),
    f"tokens/{name}/truncated_fraction": float(np.mean(truncated)),
    f"count/{name}": float(len(completions)),
  }


def solve_metrics(
  trajectories: Sequence[types.Trajectory], name: str, group_size: int = 1
) -> dict[str, float]:
  """Returns the metrics that all solvers share.

  Args:
    trajectories: the trajectories of one role, group after group; at least one.
    name: the part of the metric names after the family, such as `orz/solve`.
    group_size: completions per prompt. With 1, group metrics are left out.
  """
  rewards = np.array([t.reward for t in trajectories], np.float64)
  metrics = {
    f"reward/{name}/mean": float(rewards.mean()),
    f"reward/{name}/std": float(rewards.std()),
    **response_metrics([t.completion for t in trajectories], name),
  }
  for key in (CORRECT, "formatted"):
    values = [t.metrics[key] for t in trajectories if key in t.metrics]
    if values:
      metrics[f"{key}/{name}/mean"] = float(np.mean(values))
  fractions = (
    # Incorrect because a time limit or a lost process ended the grading.
    (TIMED_OUT, "timeout_fraction"),
    (LOST, "lost_fraction"),
    # Correct, but the answer is an expression that computes the value.
    (COMPUTED, "computed_fraction"),
  )
  for key, metric in fractions:
    values = [t.metrics[key] for t in trajectories if key in t.metrics]
    if values:
      metrics[f"correct/{name}/{metric}"] = float(np.mean(values))
  if group_size > 1:
    system = name.split("/")[0]
    groups = rewards.reshape(-1, group_size)
    metrics[f"groups/{system}/equal_fraction"] = float(
      np.mean(advantages.are_equal(groups))
    )
    # Without grades there is no notion of a correct response.
    if any(CORRECT in t.metrics for t in trajectories):
      correct = [t.metrics.get(CORRECT, 0.0) for t in trajectories]
      metrics[f"correct/{name}/any"] = float(
        np.reshape(correct, (-1, group_size)).any(axis=1).mean()
      )
  return metrics


def gains(groups: Sequence[Sequence[types.Trajectory]]) -> list[float]:
  """Returns the mean absolute advantage of each group, for curricula.

  These are GRPO advantages, as in SEC (arXiv 2505.14970), regardless of the
  run's estimator. With rewards of 0 and 1 and a pass rate p, the mean is
  2 sqrt(p (1 - p)).

  Args:
    groups: the trajectories of each prompt.
  """
  return [
    float(
      np.abs(
        advantages.task_relative(
          np.array([t.reward for t in group]),
          [0] * len(group),
          np.ones(len(group), int),
        )
      ).mean()
    )
    for group in groups
  ]
