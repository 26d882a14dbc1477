"""Fills the buffers with seed tasks from the untrained model (AZR, 3.3.1).

1. Triplets: rounds of B prompts, alternating between deduction and abduction,
   until there are B x S seeds. A prompt shows earlier seeds as references, or
   the zero triplet if there are none. Both buffers start from these seeds.
2. Error deduction: the same, with programs that raise (appendix D.1).
3. Induction: rounds of B prompts about the triplets' programs.
4. Environments: like triplets, after ten that come with this package, as EvoEnv
   has.

If a seed file is given, its seeds come first, in random order, and the model
adds the missing ones (appendix D.3). Comments and globals of seed programs are
stripped. No weights change.

Seeds are written to the run's folder after each round. A run that is killed
while seeding resumes with the next round, because a round's draws depend only
on its number. `appendix.seeds` reuses the file in another run.
"""

import dataclasses
import functools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from azr_jax.executor import Executor
from azr_jax.randomness import streams
from azr_jax.randomness.purposes import Purpose
from azr_jax.rollout.event_loop import Awaited
from azr_jax.rollout.policy import Policy
from azr_jax.systems.azr import solver
from azr_jax.systems.azr.extensions import rewriting
from azr_jax.systems.azr.proposer import Proposer
from azr_jax.systems.system import Context
from azr_jax.tasks.programs import buffer as buffer_lib
from azr_jax.tasks.programs import environments, seed_files, validation
from azr_jax.tasks.programs import task as task_lib
from azr_jax.tasks.programs.prompt_builder import PromptBuilder
from azr_jax.tasks.programs.seed_files import (
  CASES,
  ENVIRONMENTS,
  ERRORS,
  KINDS,
  TRIPLETS,
)
from azr_jax.tasks.programs.task import (
  ABDUCTION,
  DEDUCTION,
  ENVIRONMENT,
  ERROR_DEDUCTION,
  INDUCTION,
  ZERO_ERROR_TRIPLET,
  ZERO_TRIPLET,
  EnvironmentTask,
  InductionTask,
  Task,
  Triplet,
)

SEED_STEP = 0
# The environments that self-play starts from.
SEED_ENVIRONMENTS = (
  pathlib.Path(__file__).parents[2] / "assets/environments/seeds.jsonl"
)
# File of the seeds among a run's records.
FILE = "seeds.jsonl"
# The round number of seeds that were read from a file.
_FROM_FILE = -1


class Seeding:
  """Makes the seeds of a run; reuses those made before it was killed."""

  def __init__(
    self,
    policy: Policy,
    context: Context,
    proposer: Proposer,
    prompt_builder: PromptBuilder,
    *,
    task_types: Sequence[str],
    prompts: int,
    target: int,
    max_rounds: int,
    file: str = "",
  ):
    """Reads seeds that the run has already written, if any.

    Args:
      policy: the untrained model.
      context: validates proposals and stores the seeds.
      proposer: samples and validates proposals.
      prompt_builder: builds the solver prompts, which seeds must fit.
      task_types: the task types of self-play.
      prompts: B, the prompts of a round.
      target: B x S, the number of seeds per buffer.
      max_rounds: the maximum number of rounds per kind of seed.
      file: a source of seeds (`seed_files.py`); "" for none.
    """
    self._policy = policy
    self._context = context
    self._proposer = proposer
    self._prompt_builder = prompt_builder
    self._task_types = task_types
    self._prompts = prompts
    self._target = target
    self._max_rounds = max_rounds
    self._file = file
    self._rows: list[dict[str, Any]] = context.records.read(FILE)
    self._seeds = {kind: buffer_lib.TaskBuffer(target) for kind in KINDS}
    self._done = dict.fromkeys(KINDS, _FROM_FILE - 1)
    for row in self._rows:
      self._seeds[row["kind"]].add(task_lib.from_json(row), SEED_STEP)
      self._done[row["kind"]] = row["round"]

  async def fill(self, buffers: Mapping[str, buffer_lib.TaskBuffer]) -> None:
    """Fills the empty buffers with B x S seeds each.

    If seeds are still missing after `max_rounds` rounds, prints a status line.
    If the model proposed no valid triplet, training starts from the zero
    triplet.

    Raises:
      ValueError: the file of seeds cannot be read.
    """
    types_of = {
      TRIPLETS: [t for t in self._task_types if t in (DEDUCTION, ABDUCTION)],
      ERRORS: [t for t in (ERROR_DEDUCTION,) if t in buffers],
      ENVIRONMENTS: [t for t in (ENVIRONMENT,) if t in buffers],
      CASES: [t for t in (INDUCTION,) if t in buffers],
    }
    # Induction tasks are made from buffered programs, so triplets are sampled
    # even if neither deduction nor abduction is trained.
    sampled_types = types_of | {TRIPLETS: types_of[TRIPLETS] or [DEDUCTION]}
    if not (types_of[TRIPLETS] or types_of[CASES]):
      sampled_types[TRIPLETS] = []
    kinds = [kind for kind in KINDS if sampled_types[kind]]
    if self._file:
      await self._read_file(self._file, kinds)
    if ENVIRONMENTS in kinds and not len(self._seeds[ENVIRONMENTS]):
      await self._read_file(str(SEED_ENVIRONMENTS), [ENVIRONMENTS])
    for kind in kinds:
      await self._sample_rounds(kind, sampled_types[kind])
    for kind, task_types in types_of.items():
      for task_type in task_types:
        self._add_fitting(kind, task_type, buffers[task_type])

  async def _read_file(self, file: str, kinds: Sequence[str]) -> None:
    """Adds valid seeds from a file, up to the target of each kind."""
    read = seed_files.read(file)
    order = streams.generator(
      self._context.seed, Purpose.SEED_FILE
    ).permutation(len(read))
    shuffled = [read[index] for index in order]
    if not any(seed.kind in kinds for seed in read):
      raise ValueError(
        f"{file}: expected records of {' or '.join(kinds)}, which config."
        f"azr.task_types={self._task_types!r} needs as seeds"
      )
    for kind in kinds:
      if self._done[kind] >= _FROM_FILE:
        continue
      tasks = [
        seed.task
        for seed in shuffled
        if seed.kind == kind and self._has_all_cases(seed.task)
      ]
      for first in range(0, len(tasks), self._target):
        if len(self._seeds[kind]) < self._target:
          part = tasks[first : first + self._target]
          self._add(kind, await self._validated(kind, part), _FROM_FILE)

  async def _sample_rounds(self, kind: str, task_types: Sequence[str]) -> None:
    """Samples rounds, cycling over the types, until there are B x S seeds."""
    seeds = self._seeds[kind]
    for number in range(max(self._done[kind] + 1, 0), self._max_rounds):
      if len(seeds) >= self._target:
        return
      await self._sample_round(
        kind, task_types[number % len(task_types)], number
      )
      self._context.say(
        f"seeding: {len(seeds)} of {self._target} {kind} after round "
        f"{number + 1}"
      )
    if len(seeds) < self._target:
      self._context.say(
        f"seeding has {len(seeds)} of {self._target} {kind} after azr."
        f"seed_rounds={self._max_rounds}; training starts with these"
      )
    if not len(seeds) and kind in (TRIPLETS, ERRORS):
      zero = ZERO_ERROR_TRIPLET if kind == ERRORS else ZERO_TRIPLET
      seeds.add(zero, SEED_STEP)

  async def _sample_round(self, kind: str, task_type: str, number: int) -> None:
    """Samples B proposals and adds the valid ones to the seeds."""
    numbers = KINDS.index(kind), number
    policy = self._policy.branch(*numbers)
    rng = streams.generator(
      self._context.seed, Purpose.SEED_REFERENCES, *numbers
    )
    # Induction prompts use the programs of deduction and abduction seeds.
    shown = (
      {ABDUCTION: self._seeds[TRIPLETS]}
      if kind == CASES
      else {task_type: self._seeds[kind]}
    )
    prompts = [
      self._proposer.prompt(policy, task_type, shown, rng)
      for _ in range(self._prompts)
    ]
    proposals = await self._proposer.propose_all(
      policy,
      self._context.jobs,
      [(task_type, prompt) for prompt in prompts],
    )
    tasks = [p.task for p in proposals if p.task is not None]
    # Programs of induction tasks come from seeds, so they are stripped already.
    # Those of environments may need their globals.
    if kind in (TRIPLETS, ERRORS):
      tasks = await self._validated(kind, tasks)
    self._add(kind, tasks, number)

  def _has_all_cases(self, task: Task) -> bool:
    """Returns whether a task, if induction, has `induction_inputs` cases."""
    if not isinstance(task, InductionTask):
      return True
    return len(set(task.inputs)) == self._proposer.induction_inputs

  async def _validated(self, kind: str, tasks: Sequence[Task]) -> list[Task]:
    """Strips tasks, revalidates them, and returns the valid ones."""
    jobs = self._context.jobs
    verdicts = [
      jobs.submit(functools.partial(_submit, kind=kind, task=task))
      for task in tasks
    ]
    results = [await Awaited(verdict, jobs) for verdict in verdicts]
    return [
      t[0].environment if isinstance(t, tuple) else t
      for t in results
      if not isinstance(t, validation.Rejection)
    ]

  def _add(self, kind: str, tasks: Sequence[Task], number: int) -> None:
    """Adds tasks of a round up to the target, and writes all seeds.

    Skips triplets equivalent to earlier ones. Induction tasks may repeat, since
    they can differ in the message alone.
    """
    seeds = self._seeds[kind]
    for task in tasks:
      is_known = kind != CASES and seeds.has_equivalent(task)
      if is_known or len(seeds) >= self._target:
        continue
      seeds.add(task, SEED_STEP)
      self._rows.append({"round": number, **seed_files.to_json(kind, task)})
    self._context.records.write(FILE, self._rows)

  def _add_fitting(
    self, kind: str, task_type: str, buffer: buffer_lib.TaskBuffer
  ) -> None:
    """Adds seeds that fit into a solver prompt of the task type.

    Their length must be checked again: seeds may come from another task type,
    and stripping changes them.
    """
    for seed in self._seeds[kind].tasks():
      if isinstance(seed, EnvironmentTask):  # Its instances are drawn later.
        buffer.add(seed, SEED_STEP)
        continue
      prompt = solver.solve_prompt(
        self._policy, task_type, seed, self._prompt_builder
      )
      if self._policy.fits(prompt):
        buffer.add(seed, SEED_STEP)


def _submit(
  executor: Executor, kind: str, task: Task
) -> validation.ValidationFuture:
  """Submits the validation of a task without its comments and globals."""
  if isinstance(task, EnvironmentTask):
    return environments.submit(
      executor, task.code, task.message, count=1, seed=0
    )
  code = rewriting.strip(task.code, rewriting.STRIPPED)
  if kind == ERRORS:
    assert isinstance(task, Triplet)
    return validation.submit_error_triplet(executor, code, task.input)
  assert isinstance(task, Triplet | InductionTask)
  return validation.submit_again(executor, dataclasses.replace(task, code=code))
