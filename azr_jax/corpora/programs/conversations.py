"""The six propose/solve conversations, written around procedural programs.

Solutions come in two styles. A `worked` reply reasons step by step and is
right. A `direct` reply answers at once: right for deduction and abduction
(but hard to get right without the work), and for induction on longer programs
often a table of the shown cases, which fails on hidden ones. The mix leaves
self-play something to find out: that working pays.
"""

import dataclasses

import numpy as np

from azr_jax.corpora.programs import generator
from azr_jax.corpora.programs.generator import ProceduralProgram, argument_text
from azr_jax.tasks.programs import prompts
from azr_jax.tasks.programs.task import (
  ABDUCTION,
  DEDUCTION,
  INDUCTION,
  PROPOSE,
  SOLVE,
  ZERO_TRIPLET,
  InductionTask,
  Triplet,
)

DIRECT = "direct"


@dataclasses.dataclass(frozen=True)
class CorpusSettings:
  """The mix of the corpus.

  Attributes:
    worked_share: share of solutions that reason step by step.
    table_share: share of direct induction answers to programs of several
      operations that are a case table.
    flaw_share: share of proposals with a realistic mistake.
    vague_share: share of induction messages that leave a step out.
    num_inputs: N, cases of an induction task.
    references: most example triplets in a proposer's prompt.
  """

  worked_share: float
  table_share: float
  flaw_share: float
  vague_share: float
  num_inputs: int
  references: int


@dataclasses.dataclass(frozen=True)
class Case:
  """What a program is claimed to return for some inputs."""

  code: str
  inputs: tuple[str, ...]
  outputs: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Conversation:
  """A prompt with the reply to learn.

  Attributes:
    prompt: the compact prompt.
    reply: what the model should write after it.
    task_type: deduction, abduction or induction.
    role: propose or solve.
    programs: every program that occurs in the prompt or as the gold.
    case: the program with the inputs and outputs that the corpus claims,
      for the executor to check.
  """

  prompt: str
  reply: str
  task_type: str
  role: str
  programs: tuple[str, ...]
  case: Case


def make_conversation(
  rng: np.random.Generator,
  task_type: str,
  role: str,
  settings: CorpusSettings,
) -> Conversation:
  """Writes one conversation of the given kind."""
  if role == PROPOSE:
    if task_type in (DEDUCTION, ABDUCTION):
      return _propose_triplet(rng, task_type, settings)
    return _propose_induction(rng, settings)
  if task_type == DEDUCTION:
    return _solve_deduction(rng, settings)
  if task_type == ABDUCTION:
    return _solve_abduction(rng, settings)
  return _solve_induction(rng, settings)


def draw_triplet(
  rng: np.random.Generator,
) -> tuple[ProceduralProgram, tuple, Triplet]:
  """Draws a program with arguments and its triplet."""
  while True:
    program = generator.generate_program(rng)
    arguments = program.draw_arguments(rng)
    values = program.trace(arguments)
    if values is not None:
      triplet = Triplet(
        program.code, argument_text(arguments), repr(values[-1])
      )
      return program, arguments, triplet


def draw_induction(
  rng: np.random.Generator, num_inputs: int, vague_share: float
) -> tuple[ProceduralProgram, InductionTask]:
  """Draws a program with `num_inputs` different cases and a message."""
  while True:
    program = generator.generate_program(rng)
    cases: dict[str, str] = {}
    for _ in range(4 * num_inputs):
      arguments = program.draw_arguments(rng)
      values = program.trace(arguments)
      if values is not None:
        cases[argument_text(arguments)] = repr(values[-1])
      if len(cases) == num_inputs:
        break
    if len(cases) == num_inputs and len(set(cases.values())) > 1:
      phrases = program.phrases()
      if len(phrases) > 1 and rng.random() < vague_share:
        phrases[rng.integers(len(phrases))] = "something"
      return program, InductionTask(
        code=program.code,
        inputs=tuple(cases),
        outputs=tuple(cases.values()),
        message=", then ".join(phrases),
      )


def _solve_deduction(
  rng: np.random.Generator, settings: CorpusSettings
) -> Conversation:
  program, arguments, triplet = draw_triplet(rng)
  think = DIRECT
  if rng.random() < settings.worked_share:
    values = program.trace(arguments)
    assert values is not None
    think = work_forward(program, values)
  return Conversation(
    prompts.solve_deduction_prompt(
      triplet.code, triplet.input, prompts.COMPACT
    ),
    prompts.reply(think, prompts.fence("output", triplet.output)),
    DEDUCTION,
    SOLVE,
    (triplet.code,),
    Case(triplet.code, (triplet.input,), (triplet.output,)),
  )


def work_forward(program: ProceduralProgram, values: list) -> str:
  """The value after each step: `x = 8; x = 16; return 17`."""
  steps = [f"{program.variable} = {value!r}" for value in values[:-1]]
  return "; ".join([*steps, f"return {values[-1]!r}"])


def _solve_abduction(
  rng: np.random.Generator, settings: CorpusSettings
) -> Conversation:
  while True:
    program, _, triplet = draw_triplet(rng)
    values = program.trace(program.draw_arguments(rng))
    back = None if values is None else program.trace_back(values[-1])
    if values is not None and back is not None:
      break
  before, arguments = back
  think = DIRECT
  if rng.random() < settings.worked_share:
    steps = [f"{program.variable} = {value!r}" for value in before[1:]]
    think = "; ".join([f"return {before[0]!r}", *steps])
  return Conversation(
    prompts.solve_abduction_prompt(
      triplet.code, repr(values[-1]), prompts.COMPACT
    ),
    prompts.reply(think, prompts.fence("input", argument_text(arguments))),
    ABDUCTION,
    SOLVE,
    (triplet.code,),
    Case(triplet.code, (argument_text(arguments),), (repr(values[-1]),)),
  )


def _solve_induction(
  rng: np.random.Generator, settings: CorpusSettings
) -> Conversation:
  program, task = draw_induction(rng, settings.num_inputs, settings.vague_share)
  shown = len(task.inputs) // 2
  code = task.code
  if rng.random() < settings.worked_share:
    think = ", then ".join(program.phrases())
  else:
    think = DIRECT
    several = len(program.chain) > 1
    if several and rng.random() < settings.table_share:
      code = _case_table(program, task, shown)
  return Conversation(
    prompts.solve_induction_prompt(
      task.inputs[:shown], task.outputs[:shown], task.message, prompts.COMPACT
    ),
    prompts.reply(think, prompts.fence("python", code)),
    INDUCTION,
    SOLVE,
    (task.code,),
    Case(task.code, task.inputs, task.outputs),
  )


def _case_table(
  program: ProceduralProgram, task: InductionTask, shown: int
) -> str:
  """A program that knows the shown cases by heart."""
  parameters = ", ".join(program.opening.parameters)
  value = (
    parameters if len(program.opening.parameters) == 1 else (f"({parameters})")
  )
  first = task.inputs[0] if value == parameters else f"({task.inputs[0]})"
  return (
    f"def f({parameters}):\n  if {value} == {first}:\n"
    f"    return {task.outputs[0]}\n  return {task.outputs[shown - 1]}"
  )


def _propose_triplet(
  rng: np.random.Generator, task_type: str, settings: CorpusSettings
) -> Conversation:
  references = [
    draw_triplet(rng)[2]
    for _ in range(int(rng.integers(0, settings.references + 1)))
  ]
  program, arguments, triplet = draw_triplet(rng)
  code, text = triplet.code, triplet.input
  if rng.random() < settings.flaw_share:
    code, text = _flawed(rng, code, text)
  answer = "\n".join(
    [prompts.fence("python", code), prompts.fence("input", text)]
  )
  return Conversation(
    prompts.propose_triplet_prompt(
      task_type, references or [ZERO_TRIPLET], prompts.COMPACT
    ),
    prompts.reply(", then ".join(program.phrases()), answer),
    task_type,
    PROPOSE,
    (triplet.code, *(reference.code for reference in references)),
    Case(triplet.code, (triplet.input,), (triplet.output,)),
  )


def _flawed(rng: np.random.Generator, code: str, text: str) -> tuple[str, str]:
  """A mistake that real proposals make: wrong type, lost name or return."""
  kind = int(rng.integers(4))
  if kind == 0:
    return code.replace("return ", "", 1), text
  if kind == 1:
    return code.replace("return ", "return z + ", 1), text
  if kind == 2:
    return code, "None"
  return code, text.rstrip("])'") + ","


def _propose_induction(
  rng: np.random.Generator, settings: CorpusSettings
) -> Conversation:
  program, task = draw_induction(rng, settings.num_inputs, settings.vague_share)
  inputs = list(task.inputs)
  if rng.random() < settings.flaw_share:
    if rng.random() < 0.5:
      inputs = inputs[:-1]
    else:
      inputs[rng.integers(len(inputs))] = inputs[0]
      inputs[-1] = "None"
  answer = "\n".join(
    [prompts.fence("input", text) for text in inputs]
    + [prompts.fence("message", task.message)]
  )
  return Conversation(
    prompts.propose_induction_prompt(
      task.code, settings.num_inputs, prompts.COMPACT
    ),
    prompts.reply(", then ".join(program.phrases()), answer),
    INDUCTION,
    PROPOSE,
    (task.code,),
    Case(task.code, task.inputs, task.outputs),
  )
