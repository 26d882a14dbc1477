"""AZR's proposer: builds prompts, and turns completions into tasks.

Each completion is parsed and validated while others are still being sampled.
"""

import dataclasses
import functools
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from azr_jax import types
from azr_jax.executor import Executor, futures
from azr_jax.parallel.shared_jobs import SharedJobs
from azr_jax.rollout.event_loop import Awaited
from azr_jax.rollout.policy import Policy
from azr_jax.systems.azr import rewards, solver
from azr_jax.systems.azr.calls import AZRCall
from azr_jax.systems.azr.extensions import composite, repetition, rewriting
from azr_jax.tasks.programs import environments, parsing, validation
from azr_jax.tasks.programs import task as task_lib
from azr_jax.tasks.programs.buffer import TaskBuffer
from azr_jax.tasks.programs.prompt_builder import PromptBuilder
from azr_jax.tasks.programs.task import (
  ENVIRONMENT,
  ERROR_DEDUCTION,
  INDUCTION,
  ZERO_ERROR_TRIPLET,
  ZERO_TRIPLET,
  EnvironmentTask,
  Instance,
  Task,
  Triplet,
)

# Attempts to draw references before their number is halved.
MAX_RESAMPLES = 4
# Candidate tasks per component of a composite program.
_CANDIDATES_PER_COMPONENT = 8


@dataclasses.dataclass(frozen=True)
class PromptPrograms:
  """The programs in a proposer's prompt.

  Attributes:
    references: programs that the proposal should differ from.
    components: programs that the proposal must build on (appendix D.2).
    program: the program of an induction task.
  """

  references: tuple[str, ...] = ()
  components: tuple[str, ...] = ()
  program: str = ""


@dataclasses.dataclass
class Proposal:
  """A proposer's response, and the task that it proposes.

  Attributes:
    prompt: the prompt, whose task is `PromptPrograms`.
    completion: the response.
    task: the task; None if the proposal is neither valid nor admitted
      (`extensions/gate.py`).
    rejection: the reason why the proposal is invalid; None if it is valid.
    detail: what the program does instead, as in `validation.Rejection`.
    formatted: whether the response is well formed.
    instances: fresh instances of a valid environment, for its rollouts and
      its solution.
    solved: the outcome of the learnability rollouts, if any.
    guide_grade: the guide's mean grade from 0 to 1 (`extensions/guide.py`).
      None without one.
    is_unshown: whether the proposal is too long for the guide's prompt.
    duplicate: whether the buffer has a task that differs only in names or
      layout.
    program_metrics: metrics of the program (`program_metrics.py`).
  """

  prompt: types.Prompt
  completion: types.Completion
  task_type: str
  task: Task | None
  rejection: str | None
  formatted: bool
  instances: tuple[Instance, ...] = ()
  solved: rewards.Solved | None = None
  guide_grade: float | None = None
  is_unshown: bool = False
  duplicate: bool = False
  program_metrics: dict[str, float] = dataclasses.field(default_factory=dict)
  detail: str = ""

  @property
  def earns_reward(self) -> bool:
    """Whether the proposal earns its role's reward (eq. 6)."""
    return self.task is not None and self.formatted

  @property
  def verified(self) -> bool:
    """Whether the proposal is valid, rather than admitted unverified."""
    return self.task is not None and self.rejection is None

  def reject_duplicate(self) -> None:
    """Rejects the task because another one does the same."""
    self.task, self.rejection, self.solved = None, "duplicate", None
    self.duplicate = True


class Proposer:
  """Builds proposer prompts, and samples and validates proposals.

  Attributes:
    induction_inputs: N, the number of inputs of an induction task.
  """

  def __init__(
    self,
    prompt_builder: PromptBuilder,
    *,
    references: int,
    induction_inputs: int,
    recent_references: bool = False,
    composite_prob: float = 0.0,
    max_components: int = 0,
    strip: Collection[str] = (),
    instances: int = 0,
    novelty: float = 0.0,
  ):
    """Makes the proposer.

    Args:
      prompt_builder: builds the prompts of proposers and solvers.
      references: K, the number of buffered tasks that a prompt shows.
      induction_inputs: N, the number of inputs of an induction task.
      recent_references: whether newer tasks are shown more often (appendix
        D.3).
      composite_prob: the probability that a prompt has components (appendix
        D.2).
      max_components: the maximum number of components.
      strip: the parts to strip from proposed programs (`rewriting.STRIPPED`).
      instances: the number of instances per validation of an environment.
      novelty: the least distance of an environment to those of its prompt.
    """
    self._prompt_builder = prompt_builder
    self._instances = instances
    self._novelty = novelty
    self._references = references
    self.induction_inputs = induction_inputs
    self._recent_references = recent_references
    self._composite_prob = composite_prob
    self._max_components = max_components
    self._strip = strip

  def prompt(
    self,
    policy: Policy,
    task_type: str,
    buffers: Mapping[str, TaskBuffer],
    rng: np.random.Generator,
  ) -> types.Prompt:
    """Draws references from the buffers and builds a proposer prompt.

    If the prompt is too long, draws references again a few times, then half as
    many, and so on. The last resort shows only the zero triplet.

    Args:
      policy: tokenizes prompts and limits their length.
      task_type: the type of the proposal.
      buffers: the tasks of each type.
      rng: draws the references.

    Raises:
      ValueError: even the shortest prompt exceeds the largest bucket.
    """
    counts = [self._references]
    while task_type != INDUCTION and counts[-1]:
      counts.append(counts[-1] // 2)
    for count in counts:
      for _ in range(MAX_RESAMPLES):
        if task_type == INDUCTION:
          code = _draw_program(buffers, rng)
          prompt = self._induction_prompt(policy, code)
        elif task_type == ENVIRONMENT:
          prompt = self._environment_prompt(
            policy, buffers[task_type], count, rng
          )
        else:
          buffer = buffers[task_type]
          prompt = self._triplet_prompt(policy, task_type, buffer, count, rng)
        if policy.fits(prompt):
          return prompt
    if task_type == INDUCTION:
      prompt = self._induction_prompt(policy, ZERO_TRIPLET.code)
    elif task_type == ENVIRONMENT:
      prompt = self._environment_prompt(policy, buffers[task_type], 0, rng)
    else:
      buffer = buffers[task_type]
      prompt = self._triplet_prompt(
        policy, task_type, buffer, 0, rng, composites=False
      )
    if policy.fits(prompt):
      return prompt
    raise ValueError(
      f"a proposer prompt for {task_type} exceeds all rollout.prompt_buckets: "
      "expected a larger last bucket"
    )

  def _induction_prompt(self, policy: Policy, code: str) -> types.Prompt:
    text = self._prompt_builder.propose_induction(code, self.induction_inputs)
    return policy.prompt(text, task=PromptPrograms(program=code))

  def _environment_prompt(
    self,
    policy: Policy,
    buffer: TaskBuffer,
    count: int,
    rng: np.random.Generator,
  ) -> types.Prompt:
    """Returns a prompt that asks for an environment and shows up to `count`."""
    drawn = self._drawn(buffer, count, rng)
    shown = [task for task in drawn if isinstance(task, EnvironmentTask)]
    return policy.prompt(
      self._prompt_builder.propose_environment(shown),
      task=PromptPrograms(tuple(one.code for one in shown)),
    )

  def _drawn(
    self, buffer: TaskBuffer, count: int, rng: np.random.Generator
  ) -> list[Task]:
    draw = buffer.recent if self._recent_references else buffer.sample
    return draw(rng, min(count, len(buffer)))

  def _triplet_prompt(
    self,
    policy: Policy,
    task_type: str,
    buffer: TaskBuffer,
    count: int,
    rng: np.random.Generator,
    composites: bool = True,
  ) -> types.Prompt:
    """Returns a prompt that asks for a triplet.

    Args:
      policy: tokenizes the prompt.
      task_type: the type of the proposal.
      buffer: the tasks of this type.
      count: the maximum number of references; 0 shows the zero triplet.
      rng: draws the references.
      composites: whether the prompt may have components (appendix D.2).
    """
    drawn = self._drawn(buffer, count, rng)
    references = [task for task in drawn if isinstance(task, Triplet)]
    is_error = task_type == ERROR_DEDUCTION
    references = references or [
      ZERO_ERROR_TRIPLET if is_error else ZERO_TRIPLET
    ]
    components: tuple[str, ...] = ()
    can_compose = composites and not is_error
    chance = self._composite_prob if can_compose else 0.0
    if chance and rng.random() < chance:
      num_parts = int(rng.integers(1, self._max_components, endpoint=True))
      candidates = buffer.sample(
        rng, min(_CANDIDATES_PER_COMPONENT * num_parts, len(buffer))
      )
      components = composite.components(candidates, num_parts)
    return policy.prompt(
      self._prompt_builder.propose_triplet(task_type, references, components),
      task=PromptPrograms(tuple(r.code for r in references), components),
    )

  async def propose(
    self,
    policy: Policy,
    jobs: SharedJobs,
    prompt_number: int,
    task_type: str,
    prompt: types.Prompt,
    instance_seed: int,
  ) -> Proposal:
    """Samples a proposal and validates it.

    Args:
      policy: samples the proposal.
      jobs: validates the proposal.
      prompt_number: a part of the random key.
      task_type: the type of the proposal.
      prompt: the proposer prompt.
      instance_seed: decides which instances of an environment are drawn.
    """
    [(_, _, completion)] = [
      one
      async for one in policy.sample(
        [prompt], prompt_numbers=[prompt_number], call=AZRCall.PROPOSE
      )
    ]
    verdict = jobs.submit(
      functools.partial(
        _submit_validation,
        task_type=task_type,
        shown=prompt.task,
        response=completion.text,
        induction_inputs=self.induction_inputs,
        strip=self._strip,
        instances=self._instances,
        instance_seed=instance_seed,
        novelty=self._novelty,
      )
    )
    outcome = await Awaited(verdict, jobs)
    return _proposal(
      policy, task_type, prompt, completion, outcome, self._prompt_builder
    )

  async def propose_all(
    self,
    policy: Policy,
    jobs: SharedJobs,
    typed_prompts: Sequence[tuple[str, types.Prompt]],
  ) -> list[Proposal]:
    """Samples and validates one proposal per (task type, prompt), in order."""
    return await policy.gather(
      self.propose(policy, jobs, number, task_type, prompt, instance_seed=0)
      for number, (task_type, prompt) in enumerate(typed_prompts)
    )


def _draw_program(
  buffers: Mapping[str, TaskBuffer], rng: np.random.Generator
) -> str:
  """Draws a program from the deduction and abduction buffers."""
  programs = [
    task.code
    for name, buffer in buffers.items()
    if name not in (INDUCTION, ERROR_DEDUCTION, ENVIRONMENT)
    for task in buffer.tasks()
  ] or [ZERO_TRIPLET.code]
  return programs[rng.integers(len(programs))]


def _proposal(
  policy: Policy,
  task_type: str,
  prompt: types.Prompt,
  completion: types.Completion,
  outcome: validation.Verdict,
  prompt_builder: PromptBuilder,
) -> Proposal:
  """Returns the proposal of a response; rejects tasks too long for a prompt."""
  task, rejection, detail, instances = None, None, "", ()
  if isinstance(outcome, validation.Rejection):
    rejection, detail = outcome.reason, outcome.detail
  else:
    solved: tuple[Task, ...]
    if isinstance(outcome, tuple):
      solved = instances = outcome
    else:
      solved = (outcome,)
    prompts = [
      solver.solve_prompt(policy, task_type, one, prompt_builder)
      for one in solved
    ]
    if all(map(policy.fits, prompts)):
      task = task_lib.buffered(solved[0])
    else:
      rejection = "oversize"
  return Proposal(
    prompt=prompt,
    completion=completion,
    task_type=task_type,
    task=task,
    rejection=rejection,
    instances=instances,
    formatted=parsing.well_formatted(
      completion.text, prompt_builder.answer_format
    ),
    detail=detail,
  )


def _submit_validation(
  executor: Executor,
  task_type: str,
  shown: PromptPrograms,
  response: str,
  induction_inputs: int,
  strip: Collection[str],
  instances: int,
  instance_seed: int,
  novelty: float,
) -> validation.ValidationFuture:
  """Parses a proposal and submits its validation."""
  if task_type == ENVIRONMENT:
    proposed = parsing.parse_environment_proposal(response)
    if proposed is None:
      return futures.done(validation.Rejection("format"))
    if any(
      repetition.distance_to(proposed[0], known) < novelty
      for known in shown.references
    ):
      return futures.done(validation.Rejection("similar"))
    return environments.submit(executor, *proposed, instances, instance_seed)
  if task_type == INDUCTION:
    parsed = parsing.parse_induction_proposal(response, induction_inputs)
    if parsed is None:
      return futures.done(validation.Rejection("format"))
    inputs, message = parsed
    return validation.submit_induction_task(
      executor, shown.program, inputs, message
    )
  parsed = parsing.parse_triplet_proposal(response)
  if parsed is None:
    return futures.done(validation.Rejection("format"))
  code, argument_text = parsed
  code = rewriting.strip(code, strip)
  if task_type == ERROR_DEDUCTION:
    return validation.submit_error_triplet(executor, code, argument_text)
  if shown.components:
    return composite.submit(executor, code, shown.components, argument_text)
  return validation.submit_triplet(executor, code, argument_text)
