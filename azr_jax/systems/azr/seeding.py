"""Buffer initialisation: seed tasks from the untrained model (section 3.3.1).

Or from a file, where one is named; what it lacks, the model adds.

Deduction and abduction start from the same seed triplets; induction from
tasks made of their programs; error deduction from its own. Comments and
globals are always stripped here. No weight changes.
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
  rng: np.random.Generator,
) -> None:
  """Fills the buffers with B x S seed tasks each.

  The proposer sees references from the seeds found so far, and the zero
  triplet while there are none. Stops early after `seed_rounds` rounds, with
  a warning: a model that cannot propose starts from the zero triplet alone.
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
    _seed_triplets(policy, jobs, seeds, proposing, settings, rng)
  for task_type in triplet_types:
    _add_fitting(policy, seeds, buffers[task_type], task_type, settings)
  if ERROR_DEDUCTION in buffers:
    errors = buffer_lib.TaskBuffer(settings.buffer.max_programs)
    proposing = [ERROR_DEDUCTION]
    _seed_triplets(policy, jobs, errors, proposing, settings, rng)
    own = buffers[ERROR_DEDUCTION]
    _add_fitting(policy, errors, own, ERROR_DEDUCTION, settings)
  if INDUCTION in buffers:
    _seed_induction(
      policy, jobs, seeds, buffers[INDUCTION], target, settings, rng
    )


def _add_fitting(
  policy: Policy,
  seeds: buffer_lib.TaskBuffer,
  buffer: buffer_lib.TaskBuffer,
  task_type: str,
  settings: AZRSettings,
) -> None:
  """Adds the seeds that can be asked as a type.

  A seed may have been asked for as another, and stripping changes its length.
  """
  for triplet in seeds.tasks():
    solving = solver.solve_prompt(
      policy, task_type, triplet, settings.prompt_style
    )
    if policy.fits(solving):
      buffer.add(triplet, SEED_STEP)


def _seed_from_file(
  jobs: SharedJobs,
  seeds: buffer_lib.TaskBuffer,
  spec: str,
  target: int,
) -> None:
  """Takes the first valid programs of a file (appendix D.3)."""
  pairs = seed_files.read(spec)
  for first in range(0, len(pairs), target):
    if len(seeds) >= target:
      return
    some = pairs[first : first + target]
    _add_valid(jobs, seeds, DEDUCTION, some, target)


def _add_valid(
  jobs: SharedJobs,
  seeds: buffer_lib.TaskBuffer,
  task_type: str,
  pairs: Sequence[tuple[str, str]],
  target: int,
) -> None:
  """Adds those programs that can be tasks, each once."""
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
  rng: np.random.Generator,
) -> None:
  """Samples rounds of one type after the other until B x S are valid."""
  target = settings.batch_size * settings.seed_factor
  for round_index in range(settings.seed_rounds):
    if len(seeds) >= target:
      break
    task_type = task_types[round_index % len(task_types)]
    _seed_round(policy, jobs, seeds, task_type, target, settings, rng)
  if len(seeds) < target:
    logging.warning(
      "seeding found %d of %d valid tasks of %s",
      len(seeds),
      target,
      " and ".join(task_types),
    )
  if not len(seeds):
    raises = ERROR_DEDUCTION in task_types
    seeds.add(ZERO_ERROR_TRIPLET if raises else ZERO_TRIPLET, SEED_STEP)


def _seed_round(
  policy: Policy,
  jobs: SharedJobs,
  seeds: buffer_lib.TaskBuffer,
  task_type: str,
  target: int,
  settings: AZRSettings,
  rng: np.random.Generator,
) -> None:
  """Samples a round of triplet proposals into the seeds."""
  asked = [
    proposer.propose_prompt(
      policy, task_type, {task_type: seeds}, settings, rng
    )
    for _ in range(settings.batch_size * settings.seed_factor)
  ]
  proposals = proposer.sample_proposals(
    policy, jobs, [(task_type, prompt) for prompt in asked], settings
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
  rng: np.random.Generator,
) -> None:
  """Samples induction tasks over the seeds' programs until B x S are valid."""
  for _ in range(settings.seed_rounds):
    missing = target - len(buffer)
    if missing <= 0:
      return
    asked = [
      proposer.propose_prompt(
        policy, INDUCTION, {ABDUCTION: seeds}, settings, rng
      )
      for _ in range(target)
    ]
    proposals = proposer.sample_proposals(
      policy, jobs, [(INDUCTION, prompt) for prompt in asked], settings
    )
    valid = [p.task for p in proposals if p.task is not None]
    for task in valid[:missing]:
      buffer.add(task, SEED_STEP)
  if len(buffer) < target:
    logging.warning(
      "seeding found %d of %d induction tasks", len(buffer), target
    )
