"""The gate: decides which proposals become tasks (Survive or Collapse).

A valid proposal always passes. A proposal whose program failed to run passes
with probability epsilon, `azr.unverified_fraction`:

  F(task) = 1 if the task is valid, otherwise 1 with probability epsilon.

Epsilon 0 is AZR's gate; 1 admits every program with a readable input. An
admitted task has the output `UNKNOWN`. It is shown to proposers and solved
again like any other task, and is labelled by vote (`labels.py`).

Only deduction tasks can be admitted. Prompts of the other types show outputs,
which come from the executor, so unverified ones cannot be posed. In the paper,
too, solvers predict outputs. Proposals rejected for reasons other than their
run never pass: a malformed response, an input that is not a literal, a
forbidden module, or a task too long for any prompt.

Paper: Survive or Collapse (arXiv 2605.22217), section 4, with epsilon 0, 0.05,
0.1, 0.2, 0.4, 0.7 and 1.
"""

from collections.abc import Collection

from azr_jax.randomness import streams
from azr_jax.randomness.purposes import Purpose
from azr_jax.rollout.policy import Policy
from azr_jax.systems.azr import solver
from azr_jax.systems.azr.extensions import rewriting
from azr_jax.systems.azr.proposer import Proposal
from azr_jax.tasks.programs import parsing
from azr_jax.tasks.programs.prompt_builder import PromptBuilder
from azr_jax.tasks.programs.task import DEDUCTION, UNKNOWN, Triplet

# Reasons for rejection that come from running the program
# (`validation.Rejection`).
FAILED_RUNS = frozenset(("error", "timeout", "nondeterministic", "no_output"))


def draw(seed: int, step: int, index: int) -> float:
  """Returns a proposal's uniform random draw in [0, 1).

  Args:
    seed: the seed of the run.
    step: the training step.
    index: the index of the proposal's prompt in the step.
  """
  return streams.generator(seed, Purpose.GATE, step, index).random()


def admit(
  policy: Policy,
  proposal: Proposal,
  drawn: float,
  unverified_fraction: float,
  strip: Collection[str],
  prompt_builder: PromptBuilder,
) -> None:
  """Gives a rejected proposal an unverified task, if the gate admits it.

  Its `rejection` stays set, so metrics and `Proposal.verified` can tell it
  apart.

  Args:
    policy: tokenizes the solver prompt and limits its length.
    proposal: a proposal after validation.
    drawn: the proposal's value from `draw`.
    unverified_fraction: epsilon.
    strip: the parts to strip from the program (`rewriting.STRIPPED`).
    prompt_builder: builds the solver prompt, which must fit.
  """
  is_admitted = (
    proposal.task_type == DEDUCTION
    and proposal.rejection in FAILED_RUNS
    and not proposal.prompt.task.components
    and drawn < unverified_fraction
  )
  if not is_admitted:
    return
  parsed = parsing.parse_triplet_proposal(proposal.completion.text)
  assert parsed is not None, "validation has read it"
  code, argument_text = parsed
  code = rewriting.strip(code, strip)
  task = Triplet(code, argument_text, UNKNOWN)
  if policy.fits(solver.solve_prompt(policy, DEDUCTION, task, prompt_builder)):
    proposal.task = task
