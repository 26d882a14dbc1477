"""The gate: which proposals become tasks (Survive or Collapse).

A proposal that validation accepts always does. One whose program failed when it
was run does with probability epsilon, `azr.unverified_fraction`:

  F(task) = 1 if the task is valid, otherwise 1 with probability epsilon.

0 is AZR's gate, 1 admits every program with an input that can be read. A task
that was admitted is `UNKNOWN` of output, is shown to proposers and solved again
like any other, and is labelled by vote (`labels.py`).

Only deduction tasks are admitted. The statement of the other types has outputs,
which the executor writes, so an unverified one cannot be asked; in the paper
too, outputs are what solvers predict. What is refused for another reason than
its run stays out: a format that cannot be read, an input that is no literal, a
forbidden module, a size that fits no prompt.

Paper: Survive or Collapse (arXiv 2605.22217), section 4, which has epsilon of
0, 0.05, 0.1, 0.2, 0.4, 0.7 and 1.
"""

import numpy as np

from azr_jax.rollout.policy import Policy
from azr_jax.systems.azr import solver
from azr_jax.systems.azr.extensions import rewriting
from azr_jax.systems.azr.proposer import Proposal
from azr_jax.systems.azr.settings import AZRSettings
from azr_jax.tasks.programs import parsing
from azr_jax.tasks.programs.prompt_builder import PromptBuilder
from azr_jax.tasks.programs.task import DEDUCTION, UNKNOWN, Triplet

# Rejections that the run of a program gives (`validation.Rejection`).
FAILED_RUNS = frozenset(("error", "timeout", "nondeterministic", "no_output"))
_PURPOSE = b"gate"


def draw(seed: int, step: int, index: int) -> float:
  """Returns the draw in [0, 1) for a proposal.

  Args:
    seed: of the run.
    step: the training step.
    index: the number of the proposal's prompt in the step.
  """
  return float(np.random.default_rng([seed, step, *_PURPOSE, index]).random())


def admit(
  policy: Policy,
  proposal: Proposal,
  drawn: float,
  settings: AZRSettings,
  prompt_builder: PromptBuilder,
) -> None:
  """Gives a refused proposal an unverified task, if the gate admits it.

  Its `rejection` stays, by which metrics and `Proposal.verified` tell it apart.

  Args:
    policy: knows the largest prompt bucket.
    proposal: a proposal that was validated.
    drawn: what `draw` returned for it.
    settings: epsilon, and what is stripped of programs.
    prompt_builder: builds the solver's prompt, which the task must fit.
  """
  is_admitted = (
    proposal.task_type == DEDUCTION
    and proposal.rejection in FAILED_RUNS
    and not proposal.prompt.task.components
    and drawn < settings.unverified_fraction
  )
  if not is_admitted:
    return
  parsed = parsing.parse_triplet_proposal(proposal.completion.text)
  assert parsed is not None, "validation has read it"
  code, argument_text = parsed
  code = rewriting.strip(code, settings.appendix.strip)
  task = Triplet(code, argument_text, UNKNOWN)
  if policy.fits(solver.solve_prompt(policy, DEDUCTION, task, prompt_builder)):
    proposal.task = task
