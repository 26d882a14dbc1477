"""A guide: the model grades its own proposals (SGS, arXiv 2604.20209).

A proposer that is rewarded for difficulty alone may end with contrived tasks
that teach nothing. In a third role, the model reads each valid proposal and
answers with two grades from 0 to 4: how relevant the task is to a goal, and how
clean and natural it is. With g the mean grade divided by 4, and w
`azr.guide.weight`, a positive reward r of the proposal becomes

  r (1 - w + w g).

A response without two grades counts as the mean g of the step's others, as in
the published code, or as 1 if there are none. A proposal that is too long to be
shown has g = 0, which does not count in the mean. The guide is not trained.

SGS grades relevance to a target problem that the solver cannot solve yet, and
cleanness by redundancy and complexity. Self-play without data has no target
problems; `azr.guide.goal` describes what to practise in a sentence. The paper's
grades are of another scale and multiply another reward.
"""

import dataclasses
import re
from collections.abc import Sequence

import numpy as np

from azr_jax.config.settings import Settings, setting
from azr_jax.rollout.policy import Policy
from azr_jax.systems.azr.calls import AZRCall
from azr_jax.systems.azr.extensions import rewriting
from azr_jax.systems.azr.proposer import Proposal
from azr_jax.tasks.programs import parsing, prompts
from azr_jax.tasks.programs.task import EnvironmentTask, InductionTask, Triplet

MAX_GRADE = 4
_GRADES = re.compile(r"(?<![\d./])([0-4])(?!\d|\.\d)")


@dataclasses.dataclass(frozen=True)
class GuideSettings(Settings):
  """A third role that grades proposals (SGS); AZR has none."""

  weight: float = setting(
    0.0,
    "w, share of a proposal's reward that depends on the guide's grades; 0: no "
    "guide",
    minimum=0,
    maximum=1,
  )
  goal: str = setting(
    "reasoning about programs, algorithms and mathematics",
    "what relevant tasks should practise",
    required=True,
    expert=True,
  )


def prompt_text(proposal: Proposal, goal: str) -> str:
  """Returns the guide's prompt about a valid proposal.

  It shows the program without comments, which could ask for good grades.
  """
  task = proposal.task
  assert task is not None
  code = rewriting.strip(task.code, ("comments",))
  shown = [prompts.fence("python", code)]
  if isinstance(task, Triplet):
    shown.append(prompts.fence("input", task.input))
  else:
    assert isinstance(task, InductionTask | EnvironmentTask)
    shown.append(prompts.fence("message", task.message))
  fenced = "\n".join(shown)
  return prompts.wrap(
    f"""Grade a proposed {proposal.task_type.replace("_", " ")} task, from \
which a solver should learn {goal}.
{fenced}

Two grades from 0 to {MAX_GRADE}:
- Relevance: does solving it practise that? 0: not at all.
- Cleanness: is it short, natural and to the point? 0: contrived, with parts \
that only make it longer or harder.

Answer with both numbers, like this: <answer>3 2</answer>""",
    prompts.FULL,
  )


async def grade(
  policy: Policy, proposal: Proposal, index: int, goal: str
) -> None:
  """Sets `guide_grade` of a valid proposal, unless the prompt does not fit.

  Args:
    policy: the model, in its role as guide.
    proposal: the proposal to grade.
    index: the index of the proposal in the step, a part of the random key.
    goal: what relevant tasks should practise.
  """
  if not proposal.earns_reward:
    return
  prompt = policy.prompt(prompt_text(proposal, goal))
  if not policy.fits(prompt):
    proposal.is_unshown = True
    return
  [(_, _, completion)] = [
    one
    async for one in policy.sample(
      [prompt], prompt_numbers=[index], call=AZRCall.GUIDE
    )
  ]
  proposal.guide_grade = read(completion.text)


def read(response: str) -> float | None:
  """Returns g of a response; None unless its answer has exactly two grades."""
  answer = parsing.answer_text(response)
  found = _GRADES.findall(answer or "")
  if len(found) != 2:
    return None
  return sum(map(int, found)) / (2 * MAX_GRADE)


def factors(proposals: Sequence[Proposal], weight: float) -> list[float]:
  """Returns what multiplies the positive reward of each proposal.

  Args:
    proposals: the proposals of a step.
    weight: w, from 0 to 1.
  """
  known = [p.guide_grade for p in proposals if p.guide_grade is not None]
  mean = float(np.mean(known)) if known else 1.0
  grades = (
    0.0 if p.is_unshown else mean if p.guide_grade is None else p.guide_grade
    for p in proposals
  )
  return [1.0 - weight + weight * one for one in grades]


def metrics(proposals: Sequence[Proposal], name: str) -> dict[str, float]:
  """Returns the guide's metrics per task type, for system `name`.

  `unread_fraction` is the fraction of valid proposals without grades.
  """
  found: dict[str, float] = {}
  for task_type in dict.fromkeys(p.task_type for p in proposals):
    valid = [
      p for p in proposals if p.task_type == task_type and p.earns_reward
    ]
    grades = [p.guide_grade for p in valid if p.guide_grade is not None]
    prefix = f"guide/{name}/{task_type}"
    if valid:
      found[f"{prefix}/unread_fraction"] = 1.0 - len(grades) / len(valid)
    if grades:
      found[f"{prefix}/grade"] = float(np.mean(grades))
      found[f"{prefix}/grade_std"] = float(np.std(grades))
  return found
