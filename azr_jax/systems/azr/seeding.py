"""Fills the buffers with seed tasks of the untrained model (AZR, 3.3.1).

1. Triplets: rounds of B prompts, for deduction and abduction in turn, until
   there are B x S. A prompt shows references of the seeds so far, or the zero
   triplet while there are none. Both buffers start from these seeds.
2. Error deduction: the same with programs that raise (appendix D.1).
3. Induction: rounds of B prompts about programs of the triplets.

Seeds of a named file come first, in an order that is drawn, and the model adds
the missing ones (appendix D.3). Comments and globals of seed programs are
stripped. No weights change.

Seeds are written to the run's folder after each round. A run that was killed
while seeding continues with the next round, because the draws of a round follow
from its number alone; `appendix.seeds` reads them for another run.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from azr_jax.executor import Executor
from azr_jax.rollout.event_loop import Awaited
from azr_jax.rollout.policy import Policy
from azr_jax.run import console
from azr_jax.systems.azr import proposer, solver
from azr_jax.systems.azr.extensions import rewriting
from azr_jax.systems.azr.settings import AZRSettings
from azr_jax.systems.system import Context
from azr_jax.tasks.programs import buffer as buffer_lib
from azr_jax.tasks.programs import seed_files, validation
from azr_jax.tasks.programs import task as task_lib
from azr_jax.tasks.programs.prompt_builder import PromptBuilder
from azr_jax.tasks.programs.seed_files import CASES, ERRORS, KINDS, TRIPLETS
from azr_jax.tasks.programs.task import (
  ABDUCTION,
  DEDUCTION,
  ERROR_DEDUCTION,
  INDUCTION,
  ZERO_ERROR_TRIPLET,
  ZERO_TRIPLET,
  InductionTask,
  Task,
)

SEED_STEP = 0
# The seeds in the folder of a run's records.
FILE = "seeds.jsonl"
# The number of the round that seeds of a file come in.
_FROM_FILE = -1
# Purpose -> generator of the draws for it.
MakeRng = Callable[[str], np.random.Generator]


class Seeding:
  """Makes the seeds of a run, or reads those that it had made."""

  def __init__(
    self,
    policy: Policy,
    context: Context,
    settings: AZRSettings,
    prompt_builder: PromptBuilder,
    make_rng: MakeRng,
  ):
    """Reads what the run has written, if anything.

    Args:
      policy: the untrained model.
      context: validates proposals, and keeps the seeds.
      settings: sizes and rounds.
      prompt_builder: builds the prompts.
      make_rng: makes the generator of a round's draws.
    """
    self._policy = policy
    self._context = context
    self._settings = settings
    self._prompt_builder = prompt_builder
    self._make_rng = make_rng
    self._target = min(
      settings.prompts * settings.seed_factor, settings.buffer.max_programs
    )
    self._rows: list[dict[str, Any]] = context.records.read(FILE)
    self._seeds = {
      kind: buffer_lib.TaskBuffer(settings.buffer.max_programs)
      for kind in KINDS
    }
    self._done = dict.fromkeys(KINDS, _FROM_FILE - 1)
    for row in self._rows:
      self._seeds[row["kind"]].add(task_lib.from_json(row), SEED_STEP)
      self._done[row["kind"]] = row["round"]

  async def fill(self, buffers: Mapping[str, buffer_lib.TaskBuffer]) -> None:
    """Fills the empty buffers of the task types with B x S seeds each.

    After `seed_rounds` rounds a status line says how many seeds are missing. A
    model that proposes no valid triplet starts from the zero triplet.

    Raises:
      ValueError: the file of `appendix.seeds` cannot be read.
    """
    types_of = {
      TRIPLETS: [
        t
        for t in self._settings.task_types
        if t not in (INDUCTION, ERROR_DEDUCTION)
      ],
      ERRORS: [t for t in (ERROR_DEDUCTION,) if t in buffers],
      CASES: [t for t in (INDUCTION,) if t in buffers],
    }
    # Induction needs programs, even if neither of the other types is trained.
    sampled_types = types_of | {TRIPLETS: types_of[TRIPLETS] or [DEDUCTION]}
    if not (types_of[TRIPLETS] or types_of[CASES]):
      sampled_types[TRIPLETS] = []
    kinds = [kind for kind in KINDS if sampled_types[kind]]
    await self._read_file(kinds)
    for kind in kinds:
      await self._sample_rounds(kind, sampled_types[kind])
    for kind, task_types in types_of.items():
      for task_type in task_types:
        self._add_fitting(kind, task_type, buffers[task_type])

  async def _read_file(self, kinds: Sequence[str]) -> None:
    """Adds valid seeds of the named file, up to the target of each kind."""
    spec = self._settings.appendix.seeds
    if not spec:
      return
    read = seed_files.read(spec)
    order = self._make_rng("seed file").permutation(len(read))
    shuffled = [read[index] for index in order]
    if not any(seed.kind in kinds for seed in read):
      raise ValueError(
        f"{spec}: expected records of {' or '.join(kinds)}, which config.azr."
        f"task_types={self._settings.task_types!r} starts from"
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
    """Samples rounds, of each type in turn, until there are B x S seeds."""
    settings, seeds = self._settings, self._seeds[kind]
    for number in range(max(self._done[kind] + 1, 0), settings.seed_rounds):
      if len(seeds) >= self._target:
        return
      await self._sample_round(
        kind, task_types[number % len(task_types)], number
      )
      self._print_status(
        f"seeding: {len(seeds)} of {self._target} {kind} after round "
        f"{number + 1}"
      )
    if len(seeds) < self._target:
      self._print_status(
        f"seeding has {len(seeds)} of {self._target} {kind} after azr."
        f"seed_rounds={settings.seed_rounds}, and starts with these"
      )
    if not len(seeds) and kind != CASES:
      zero = ZERO_ERROR_TRIPLET if kind == ERRORS else ZERO_TRIPLET
      seeds.add(zero, SEED_STEP)

  async def _sample_round(self, kind: str, task_type: str, number: int) -> None:
    """Adds the valid ones of B proposals to the seeds."""
    policy = self._policy.branch(KINDS.index(kind), number)
    rng = self._make_rng(f"seed {kind} {number}")
    # Induction is about programs of deduction and abduction.
    shown = (
      {ABDUCTION: self._seeds[TRIPLETS]}
      if kind == CASES
      else {task_type: self._seeds[kind]}
    )
    prompts = [
      proposer.propose_prompt(
        policy, task_type, shown, self._settings, self._prompt_builder, rng
      )
      for _ in range(self._settings.prompts)
    ]
    proposals = await proposer.sample_proposals(
      policy,
      self._context.jobs,
      [(task_type, prompt) for prompt in prompts],
      self._settings,
      self._prompt_builder,
    )
    tasks = [p.task for p in proposals if p.task is not None]
    # The programs of induction tasks are seeds, which are stripped.
    self._add(
      kind,
      tasks if kind == CASES else await self._validated(kind, tasks),
      number,
    )

  def _has_all_cases(self, task: Task) -> bool:
    """Returns whether an induction task has as many cases as proposals have."""
    if not isinstance(task, InductionTask):
      return True
    return len(set(task.inputs)) == self._settings.induction_inputs

  async def _validated(self, kind: str, tasks: Sequence[Task]) -> list[Task]:
    """Strips tasks, validates them again and returns the valid ones."""
    jobs = self._context.jobs
    verdicts = [
      jobs.submit(functools.partial(_submit, kind=kind, task=task))
      for task in tasks
    ]
    results = [await Awaited(verdict, jobs) for verdict in verdicts]
    return [t for t in results if not isinstance(t, validation.Rejection)]

  def _add(self, kind: str, tasks: Sequence[Task], number: int) -> None:
    """Adds tasks of a round up to the target, and writes all seeds.

    A triplet is added once. Induction tasks may be alike but for the message.
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
    """Adds the seeds that fit the solver's prompt of a task type.

    A seed may have been proposed for another type, and stripping changes its
    length.
    """
    for seed in self._seeds[kind].tasks():
      prompt = solver.solve_prompt(
        self._policy, task_type, seed, self._prompt_builder
      )
      if self._policy.fits(prompt):
        buffer.add(seed, SEED_STEP)

  def _print_status(self, text: str) -> None:
    if self._context.hosts.is_primary:
      console.print_status(text)


def _submit(
  executor: Executor, kind: str, task: Task
) -> validation.ValidationFuture:
  """Starts to validate a task without its comments and globals."""
  code = rewriting.strip(task.code, rewriting.STRIPPED)
  if isinstance(task, InductionTask):
    return validation.submit_induction_task(
      executor, code, task.inputs, task.message
    )
  submit = (
    validation.submit_error_triplet
    if kind == ERRORS
    else validation.submit_triplet
  )
  return submit(executor, code, task.input)
