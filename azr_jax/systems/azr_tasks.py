"""AZR's two roles: making proposals and solutions out of completions.

Both roles live the same life: prompts are sampled as one stream, each
completion is parsed and handed to verification while others are still being
sampled, and the verdicts are collected in prompt order at the end.
"""

import collections
import concurrent.futures
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from azr_jax import types
from azr_jax.executor import Executor
from azr_jax.grading import futures
from azr_jax.grading import programs as grading
from azr_jax.grading.verification import Verification
from azr_jax.rollout.policy import Policy
from azr_jax.tasks.programs import parsing, prompts, validation
from azr_jax.tasks.programs.buffer import TaskBuffer
from azr_jax.tasks.programs.task import (
  ABDUCTION,
  DEDUCTION,
  INDUCTION,
  ZERO_TRIPLET,
  InductionTask,
  Task,
  Triplet,
)

if TYPE_CHECKING:
  from azr_jax.systems.azr import AZRSettings

# How often references are drawn anew when the prompt came out too long.
REDRAWS = 4


@dataclasses.dataclass
class Proposal:
  """A proposer's reply and what became of it.

  `task` is set when the proposal is valid, `rejection` when it is not;
  `passable` also asks for the reply's format. `solve_rate` is the solver's
  mean accuracy, known after the learnability rollouts. `duplicate`: the buffer
  had a task that differs in names or layout alone. `measures` are those of
  `azr_measures.py`.
  """

  prompt: types.Prompt
  completion: types.Completion
  task_type: str
  task: Task | None
  rejection: str | None
  formatted: bool
  solve_rate: float = 0.0
  duplicate: bool = False
  measures: dict[str, float] = dataclasses.field(default_factory=dict)

  @property
  def passable(self) -> bool:
    """Whether the proposal earns its role's reward (eq. 6)."""
    return self.task is not None and self.formatted


@dataclasses.dataclass
class Solution:
  """A solver's reply and its verdict."""

  prompt: types.Prompt
  completion: types.Completion
  task_type: str
  formatted: bool
  correct: bool


def propose_prompt(
  policy: Policy,
  task_type: str,
  buffers: Mapping[str, TaskBuffer],
  settings: "AZRSettings",
  rng: np.random.Generator,
) -> types.Prompt:
  """Draws references from the buffers and writes a proposer's prompt.

  A prompt that is too long is drawn anew a few times, then with half as many
  references; the last resort is the zero triplet.

  Raises:
    ValueError: not even the shortest prompt fits the largest bucket.
  """
  counts = [settings.references]
  while task_type != INDUCTION and counts[-1]:
    counts.append(counts[-1] // 2)
  for count in counts:
    for _ in range(REDRAWS):
      if task_type == INDUCTION:
        code = _draw_program(buffers, rng)
        prompt = _induction_prompt(policy, code, settings)
      else:
        prompt = _triplet_prompt(
          policy, task_type, buffers[task_type], count, settings, rng
        )
      if policy.fits(prompt):
        return prompt
  if task_type == INDUCTION:
    prompt = _induction_prompt(policy, ZERO_TRIPLET.code, settings)
    if policy.fits(prompt):
      return prompt
  raise ValueError(
    f"a proposer's prompt for {task_type} fits no rollout.prompt_buckets; "
    "expected a larger last bucket"
  )


def _draw_program(
  buffers: Mapping[str, TaskBuffer], rng: np.random.Generator
) -> str:
  """A program of the deduction and abduction buffers' union."""
  programs = [
    task.code
    for name, buffer in buffers.items()
    if name != INDUCTION
    for task in buffer.tasks()
  ] or [ZERO_TRIPLET.code]
  return programs[rng.integers(len(programs))]


def _induction_prompt(
  policy: Policy, code: str, settings: "AZRSettings"
) -> types.Prompt:
  return policy.prompt(
    prompts.propose_induction_prompt(
      code, settings.induction_inputs, settings.prompt_style
    ),
    task=code,
  )


def _triplet_prompt(
  policy: Policy,
  task_type: str,
  buffer: TaskBuffer,
  count: int,
  settings: "AZRSettings",
  rng: np.random.Generator,
) -> types.Prompt:
  """Shows up to `count` triplets, or the zero triplet if there are none.

  The prompt's task is the list of their programs.
  """
  draw = buffer.recent if settings.reference_draw == "recent" else buffer.sample
  drawn = draw(rng, min(count, len(buffer)))
  references = [task for task in drawn if isinstance(task, Triplet)]
  references = references or [ZERO_TRIPLET]
  return policy.prompt(
    prompts.propose_triplet_prompt(
      task_type, references, settings.prompt_style
    ),
    task=[reference.code for reference in references],
  )


def sample_proposals(
  policy: Policy,
  verification: Verification,
  asked: Sequence[tuple[str, types.Prompt]],
  settings: "AZRSettings",
) -> list[Proposal]:
  """Samples one proposal per (task type, prompt) and validates each."""
  replies: dict[int, types.Completion] = {}
  verdicts: dict[int, validation.Verdict] = {}
  for index, _, completion in policy.sample([prompt for _, prompt in asked]):
    task_type, prompt = asked[index]
    replies[index] = completion
    verdicts[index] = verification.submit(
      functools.partial(
        _submit_validation,
        task_type=task_type,
        prompt=prompt,
        reply=completion.text,
        settings=settings,
      )
    )
  verification.settle()
  proposals = []
  for index, (task_type, prompt) in enumerate(asked):
    task, rejection = None, None
    outcome = verdicts[index].result()
    if isinstance(outcome, validation.Rejection):
      rejection = outcome.reason
    elif policy.fits(
      solve_prompt(policy, task_type, outcome, settings.prompt_style)
    ):
      task = outcome
    else:
      rejection = "oversize"
    completion = replies[index]
    proposals.append(
      Proposal(
        prompt=prompt,
        completion=completion,
        task_type=task_type,
        task=task,
        rejection=rejection,
        formatted=parsing.well_formatted(completion.text),
      )
    )
  return proposals


def _submit_validation(
  executor: Executor,
  task_type: str,
  prompt: types.Prompt,
  reply: str,
  settings: "AZRSettings",
) -> validation.Verdict:
  """Starts a proposal's validation."""
  if task_type == INDUCTION:
    parsed = parsing.parse_induction_proposal(reply, settings.induction_inputs)
    if parsed is None:
      return futures.done(validation.Rejection("format"))
    inputs, message = parsed
    return validation.submit_induction_task(
      executor, prompt.task, inputs, message
    )
  parsed = parsing.parse_triplet_proposal(reply)
  if parsed is None:
    return futures.done(validation.Rejection("format"))
  code, argument_text = parsed
  code = validation.strip(code, settings.strip)
  return validation.submit_triplet(executor, code, argument_text)


def solve_prompt(
  policy: Policy, task_type: str, task: Task, style: str
) -> types.Prompt:
  """Writes the solver's prompt of a task; the gold stays in `Prompt.task`."""
  return policy.prompt(solve_prompt_text(task_type, task, style), task)


def solve_prompt_text(task_type: str, task: Task, style: str) -> str:
  """Shows the solver its half of a task."""
  if isinstance(task, InductionTask):
    shown = len(task.inputs) // 2
    return prompts.solve_induction_prompt(
      task.inputs[:shown], task.outputs[:shown], task.message, style
    )
  if task_type == DEDUCTION:
    return prompts.solve_deduction_prompt(task.code, task.input, style)
  return prompts.solve_abduction_prompt(task.code, task.output, style)


def sample_solutions(
  policy: Policy,
  verification: Verification,
  tasks: Sequence[tuple[str, Task]],
  style: str,
  n: int,
) -> list[Solution]:
  """Samples n solutions per task and grades each; ordered task by task.

  The inputs that one abduction task was given are run by one child, so they
  wait for each other; everything else is graded as it comes.
  """
  asked = [
    solve_prompt(policy, task_type, task, style) for task_type, task in tasks
  ]
  replies: dict[tuple[int, int], types.Completion] = {}
  waiting: dict[int, list[int]] = collections.defaultdict(list)
  verdicts: dict[tuple[int, int], Callable[[], bool]] = {}
  for index, sample, completion in policy.sample(asked, n):
    task_type, task = tasks[index]
    replies[index, sample] = completion
    waiting[index].append(sample)
    if task_type == ABDUCTION and len(waiting[index]) < n:
      continue
    samples = waiting.pop(index)
    texts = [replies[index, sample].text for sample in samples]
    graded = verification.submit(
      functools.partial(
        submit_grading, task_type=task_type, task=task, replies=texts
      )
    )
    for place, sample in enumerate(samples):
      verdicts[index, sample] = functools.partial(_verdict, graded, place)
  verification.settle()
  return [
    Solution(
      prompt=asked[index],
      completion=replies[index, sample],
      task_type=tasks[index][0],
      formatted=parsing.well_formatted(replies[index, sample].text),
      correct=verdicts[index, sample](),
    )
    for index in range(len(tasks))
    for sample in range(n)
  ]


def _verdict(
  graded: concurrent.futures.Future[tuple[bool, ...]], place: int
) -> bool:
  return graded.result()[place]


def submit_grading(
  executor: Executor, task_type: str, task: Task, replies: Sequence[str]
) -> concurrent.futures.Future[tuple[bool, ...]]:
  """Starts the verification of replies to a task (paper, section 3.3.4).

  Returns the future of a verdict per reply, in order.
  """
  if task_type == ABDUCTION and isinstance(task, Triplet):
    answers = [parsing.parse_input_answer(reply) or "" for reply in replies]
    return grading.submit_abduction(executor, task.code, task.output, answers)
  return futures.gather(
    [_submit_grading(executor, task, reply) for reply in replies]
  )


def _submit_grading(
  executor: Executor, task: Task, reply: str
) -> concurrent.futures.Future[bool]:
  """Grades a reply that needs a child of its own, or none."""
  if isinstance(task, InductionTask):
    answer = parsing.parse_program_answer(reply)
    if answer is None:
      return futures.done(False)
    return grading.submit_induction(executor, answer, task.inputs, task.outputs)
  answer = parsing.parse_output_answer(reply)
  return futures.done(
    answer is not None and grading.deduction_correct(task.output, answer)
  )
