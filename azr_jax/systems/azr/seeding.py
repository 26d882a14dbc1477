"""Fills the buffers with seed tasks of the untrained model (AZR, 3.3.1).

If a file of programs is named, its valid programs come first, and the model
adds the missing ones (appendix D.3).

Deduction and abduction start from the same triplets, induction from tasks about
the programs of these, and error deduction from other triplets. Comments and
globals of seed programs are stripped. No weights change.
"""

import functools
import logging
from collections.abc import Mapping, Sequence

import numpy as np

from azr_jax.parallel.shared_jobs import SharedJobs
from azr_jax.rollout.policy import Policy
from azr_jax.systems.azr import proposer, solver
from azr_jax.systems.azr.appendix import rewriting
from azr_jax.systems.azr.settings import AZRSettings
from azr_jax.tasks.programs import buffer as buffer_lib
from azr_jax.tasks.programs import seed_files, validation
from azr_jax.tasks.programs.program_key import program_key
from azr_jax.tasks.programs.prompts import PromptStyle
from azr_jax.tasks.programs.task import (
  ABDUCTION,
  DEDUCTION,
  ERROR_DEDUCTION,
  INDUCTION,
  ZERO_ERROR_TRIPLET,
  ZERO_TRIPLET,
  Triplet,
)

SEED_STEP = 0


def seed_buffers(
  policy: Policy,
  jobs: SharedJobs,
  buffers: Mapping[str, buffer_lib.TaskBuffer],
  settings: AZRSettings,
  style: PromptStyle,
  rng: np.random.Generator,
) -> None:
  """Fills each buffer with B x S seed tasks.

  The references in a prompt are seeds, or the zero triplet while there are no
  seeds. After `seed_rounds` rounds a warning says how many seeds are missing;
  a model that proposes none starts from the zero triplet.

  Args:
    policy: the untrained model.
    jobs: validates proposals.
    buffers: the empty buffers of the task types.
    settings: sizes and rounds.
    style: how prompts are written.
    rng: draws references.
  """
  target = settings.batch_size * settings.seed_factor
  triplet_types = [
    t for t in settings.task_types if t not in (INDUCTION, ERROR_DEDUCTION)
  ]
  seeds = buffer_lib.TaskBuffer(settings.buffer.max_programs)
  if triplet_types or INDUCTION in buffers:
    if settings.appendix.seeds:
      _seed_from_file(jobs, seeds, settings.appendix.seeds, target)
    proposing = triplet_types or [DEDUCTION]
    _seed_triplets(policy, jobs, seeds, proposing, settings, style, rng)
  for task_type in triplet_types:
    _add_fitting(policy, seeds, buffers[task_type], task_type, style)
  if ERROR_DEDUCTION in buffers:
    errors = buffer_lib.TaskBuffer(settings.buffer.max_programs)
    proposing = [ERROR_DEDUCTION]
    _seed_triplets(policy, jobs, errors, proposing, settings, style, rng)
    _add_fitting(
      policy, errors, buffers[ERROR_DEDUCTION], ERROR_DEDUCTION, style
    )
  if INDUCTION in buffers:
    _seed_induction(
      policy, jobs, seeds, buffers[INDUCTION], target, settings, style, rng
    )


def _add_fitting(
  policy: Policy,
  seeds: buffer_lib.TaskBuffer,
  buffer: buffer_lib.TaskBuffer,
  task_type: str,
  style: PromptStyle,
) -> None:
  """Adds the seeds that fit the solver's prompt of a task type.

  A seed may have been proposed for another type, and stripping changes its
  length.
  """
  for triplet in seeds.tasks():
    solving = solver.solve_prompt(policy, task_type, triplet, style)
    if policy.fits(solving):
      buffer.add(triplet, SEED_STEP)


def _seed_from_file(
  jobs: SharedJobs,
  seeds: buffer_lib.TaskBuffer,
  spec: str,
  target: int,
) -> None:
  """Adds the first valid programs of a file, up to the target."""
  pairs = seed_files.read(spec)
  for first in range(0, len(pairs), target):
    if len(seeds) >= target:
      return
    _add_valid(jobs, seeds, DEDUCTION, pairs[first : first + target], target)


def _add_valid(
  jobs: SharedJobs,
  seeds: buffer_lib.TaskBuffer,
  task_type: str,
  pairs: Sequence[tuple[str, str]],
  target: int,
) -> None:
  """Adds the valid ones of programs with their arguments, each once."""
  submit = (
    validation.submit_error_triplet
    if task_type == ERROR_DEDUCTION
    else validation.submit_triplet
  )
  known = {program_key(task.code) for task in seeds.tasks()}
  futures = [
    jobs.submit(
      functools.partial(
        submit,
        code=rewriting.strip(code, rewriting.STRIPPED),
        argument_text=argument_text,
      )
    )
    for code, argument_text in pairs
  ]
  jobs.wait_all()
  for future in futures:
    triplet = future.result()
    if isinstance(triplet, validation.Rejection) or len(seeds) >= target:
      continue
    key = program_key(triplet.code)
    if key not in known:
      known.add(key)
      seeds.add(triplet, SEED_STEP)


def _seed_triplets(
  policy: Policy,
  jobs: SharedJobs,
  seeds: buffer_lib.TaskBuffer,
  task_types: Sequence[str],
  settings: AZRSettings,
  style: PromptStyle,
  rng: np.random.Generator,
) -> None:
  """Samples rounds, of each type in turn, until there are B x S seeds."""
  target = settings.batch_size * settings.seed_factor
  for round_index in range(settings.seed_rounds):
    if len(seeds) >= target:
      break
    task_type = task_types[round_index % len(task_types)]
    _seed_round(policy, jobs, seeds, task_type, target, settings, style, rng)
  if len(seeds) < target:
    logging.warning(
      "seeding has %d of %d valid tasks of %s",
      len(seeds),
      target,
      " and ".join(task_types),
    )
  if not len(seeds):
    is_error = ERROR_DEDUCTION in task_types
    seeds.add(ZERO_ERROR_TRIPLET if is_error else ZERO_TRIPLET, SEED_STEP)


def _seed_round(
  policy: Policy,
  jobs: SharedJobs,
  seeds: buffer_lib.TaskBuffer,
  task_type: str,
  target: int,
  settings: AZRSettings,
  style: PromptStyle,
  rng: np.random.Generator,
) -> None:
  """Adds the valid triplets of B x S proposals to the seeds."""
  asked = [
    proposer.propose_prompt(
      policy, task_type, {task_type: seeds}, settings, style, rng
    )
    for _ in range(settings.batch_size * settings.seed_factor)
  ]
  proposals = proposer.sample_proposals(
    policy, jobs, [(task_type, prompt) for prompt in asked], settings, style
  )
  pairs = [
    (proposal.task.code, proposal.task.input)
    for proposal in proposals
    if isinstance(proposal.task, Triplet)
  ]
  _add_valid(jobs, seeds, task_type, pairs, target)


def _seed_induction(
  policy: Policy,
  jobs: SharedJobs,
  seeds: buffer_lib.TaskBuffer,
  buffer: buffer_lib.TaskBuffer,
  target: int,
  settings: AZRSettings,
  style: PromptStyle,
  rng: np.random.Generator,
) -> None:
  """Samples induction tasks about programs of the seeds, up to the target."""
  for _ in range(settings.seed_rounds):
    missing = target - len(buffer)
    if missing <= 0:
      return
    asked = [
      proposer.propose_prompt(
        policy, INDUCTION, {ABDUCTION: seeds}, settings, style, rng
      )
      for _ in range(target)
    ]
    proposals = proposer.sample_proposals(
      policy, jobs, [(INDUCTION, prompt) for prompt in asked], settings, style
    )
    valid = [p.task for p in proposals if p.task is not None]
    for task in valid[:missing]:
      buffer.add(task, SEED_STEP)
  if len(buffer) < target:
    logging.warning("seeding has %d of %d induction tasks", len(buffer), target)
