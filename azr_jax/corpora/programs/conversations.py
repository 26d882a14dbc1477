"""The six propose and solve conversations about procedural programs.

Solutions have one of two styles. A chain of thought reasons step by step and is
correct. A direct answer has no steps. For deduction and abduction it is
correct, but a model can hardly learn it. For induction on longer programs it is
often a table of the shown cases, which fails on the hidden ones. This mix lets
self-play discover that reasoning is rewarded.
"""

import dataclasses

import numpy as np

from azr_jax.config.settings import Settings, setting
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

# The text in place of a chain of thought in a direct answer.
DIRECT = "direct"
# Draws of arguments per case before a program is rejected.
_ATTEMPTS_PER_CASE = 4


@dataclasses.dataclass(frozen=True)
class ProgramCorpusSettings(Settings):
  """Section `programs.mix` of supervised training: the mix of the corpus."""

  chain_of_thought_prob: float = setting(
    0.42,
    "probability that a solution reasons step by step",
    minimum=0,
    maximum=1,
    expert=True,
  )
  table_prob: float = setting(
    0.7,
    "probability that a longer direct induction answer is a table",
    minimum=0,
    maximum=1,
    expert=True,
  )
  flaw_prob: float = setting(
    0.25,
    "probability that a proposal has a mistake",
    minimum=0,
    maximum=1,
    expert=True,
  )
  vague_prob: float = setting(
    0.3,
    "probability that an induction message omits a step",
    minimum=0,
    maximum=1,
    expert=True,
  )
  num_inputs: int = setting(
    4,
    "N, cases of an induction task",
    accepts=(
      lambda v: v >= 2 and v % 2 == 0,
      "an even integer of at least 2",
    ),
    expert=True,
  )
  references: int = setting(
    2,
    "maximum number of example triplets in a proposer's prompt",
    minimum=0,
    expert=True,
  )


@dataclasses.dataclass(frozen=True)
class ClaimedCase:
  """The outputs that the corpus claims for some inputs of a program.

  Attributes:
    code: the program.
    inputs: argument texts, one per call.
    outputs: the claimed output of each call, as canonical text.
  """

  code: str
  inputs: tuple[str, ...]
  outputs: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class ProgramConversation:
  """A prompt with the response to train on.

  Attributes:
    prompt: the compact prompt.
    response: the text to train on.
    task_type: deduction, abduction or induction.
    role: propose or solve.
    programs: every program in the prompt, and the reference answer.
    case: the program with its claimed outputs, for the executor to check.
  """

  prompt: str
  response: str
  task_type: str
  role: str
  programs: tuple[str, ...]
  case: ClaimedCase


@dataclasses.dataclass(frozen=True)
class ProgramMix:
  """Draws conversations; `ProgramCorpusSettings` describes the values."""

  chain_of_thought_prob: float
  table_prob: float
  flaw_prob: float
  vague_prob: float
  num_inputs: int
  references: int

  def draw(
    self, rng: np.random.Generator, task_type: str, role: str
  ) -> ProgramConversation:
    """Draws one conversation of a task type and role."""
    if role == PROPOSE:
      if task_type in (DEDUCTION, ABDUCTION):
        return self._propose_triplet(rng, task_type)
      return self._propose_induction(rng)
    if task_type == DEDUCTION:
      return self._solve_deduction(rng)
    if task_type == ABDUCTION:
      return self._solve_abduction(rng)
    return self._solve_induction(rng)

  def _solve_deduction(self, rng: np.random.Generator) -> ProgramConversation:
    program, arguments, triplet = draw_triplet(rng)
    think = DIRECT
    if rng.random() < self.chain_of_thought_prob:
      values = program.trace(arguments)
      assert values is not None
      think = write_trace(program, values)
    return ProgramConversation(
      prompts.solve_deduction_prompt(
        triplet.code, triplet.input, prompts.COMPACT
      ),
      prompts.response(think, prompts.fence("output", triplet.output)),
      DEDUCTION,
      SOLVE,
      (triplet.code,),
      ClaimedCase(triplet.code, (triplet.input,), (triplet.output,)),
    )

  def _solve_abduction(self, rng: np.random.Generator) -> ProgramConversation:
    while True:
      program, _, triplet = draw_triplet(rng)
      values = program.trace(program.draw_arguments(rng))
      traced = None if values is None else program.trace_back(values[-1])
      if values is not None and traced is not None:
        break
    backward_values, arguments = traced
    think = DIRECT
    if rng.random() < self.chain_of_thought_prob:
      steps = [
        f"{program.variable} = {value!r}" for value in backward_values[1:]
      ]
      think = "; ".join([f"return {backward_values[0]!r}", *steps])
    return ProgramConversation(
      prompts.solve_abduction_prompt(
        triplet.code, repr(values[-1]), prompts.COMPACT
      ),
      prompts.response(think, prompts.fence("input", argument_text(arguments))),
      ABDUCTION,
      SOLVE,
      (triplet.code,),
      ClaimedCase(
        triplet.code, (argument_text(arguments),), (repr(values[-1]),)
      ),
    )

  def _solve_induction(self, rng: np.random.Generator) -> ProgramConversation:
    program, task = draw_induction(rng, self.num_inputs, self.vague_prob)
    num_shown = len(task.inputs) // 2
    code = task.code
    if rng.random() < self.chain_of_thought_prob:
      think = ", then ".join(program.phrases())
    else:
      think = DIRECT
      is_long = len(program.chain) > 1
      if is_long and rng.random() < self.table_prob:
        code = _case_table(program, task, num_shown)
    return ProgramConversation(
      prompts.solve_induction_prompt(
        task.inputs[:num_shown],
        task.outputs[:num_shown],
        task.message,
        prompts.COMPACT,
      ),
      prompts.response(think, prompts.fence("python", code)),
      INDUCTION,
      SOLVE,
      (task.code,),
      ClaimedCase(task.code, task.inputs, task.outputs),
    )

  def _propose_triplet(
    self, rng: np.random.Generator, task_type: str
  ) -> ProgramConversation:
    references = [
      draw_triplet(rng)[2]
      for _ in range(int(rng.integers(0, self.references + 1)))
    ]
    program, arguments, triplet = draw_triplet(rng)
    code, input_text = triplet.code, triplet.input
    if rng.random() < self.flaw_prob:
      code, input_text = _with_flaw(rng, code, input_text)
    answer = "\n".join(
      [prompts.fence("python", code), prompts.fence("input", input_text)]
    )
    return ProgramConversation(
      prompts.propose_triplet_prompt(
        task_type, references or [ZERO_TRIPLET], prompts.COMPACT
      ),
      prompts.response(", then ".join(program.phrases()), answer),
      task_type,
      PROPOSE,
      (triplet.code, *(reference.code for reference in references)),
      ClaimedCase(triplet.code, (triplet.input,), (triplet.output,)),
    )

  def _propose_induction(self, rng: np.random.Generator) -> ProgramConversation:
    program, task = draw_induction(rng, self.num_inputs, self.vague_prob)
    inputs = list(task.inputs)
    if rng.random() < self.flaw_prob:
      if rng.random() < 0.5:
        inputs = inputs[:-1]
      else:
        inputs[rng.integers(len(inputs))] = inputs[0]
        inputs[-1] = "None"
    answer = "\n".join(
      [prompts.fence("input", text) for text in inputs]
      + [prompts.fence("message", task.message)]
    )
    return ProgramConversation(
      prompts.propose_induction_prompt(
        task.code, self.num_inputs, prompts.COMPACT
      ),
      prompts.response(", then ".join(program.phrases()), answer),
      INDUCTION,
      PROPOSE,
      (task.code,),
      ClaimedCase(task.code, task.inputs, task.outputs),
    )


def draw_triplet(
  rng: np.random.Generator,
) -> tuple[ProceduralProgram, tuple, Triplet]:
  """Draws a program and arguments; returns them and their triplet."""
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
  rng: np.random.Generator, num_inputs: int, vague_prob: float
) -> tuple[ProceduralProgram, InductionTask]:
  """Draws a program and an induction task about it.

  Args:
    rng: the source of all random draws.
    num_inputs: number of cases, all with different inputs.
    vague_prob: probability that the message omits a step.
  """
  while True:
    program = generator.generate_program(rng)
    cases: dict[str, str] = {}
    for _ in range(_ATTEMPTS_PER_CASE * num_inputs):
      arguments = program.draw_arguments(rng)
      values = program.trace(arguments)
      if values is not None:
        cases[argument_text(arguments)] = repr(values[-1])
      if len(cases) == num_inputs:
        break
    if len(cases) == num_inputs and len(set(cases.values())) > 1:
      phrases = program.phrases()
      if len(phrases) > 1 and rng.random() < vague_prob:
        phrases[rng.integers(len(phrases))] = "something"
      return program, InductionTask(
        code=program.code,
        inputs=tuple(cases),
        outputs=tuple(cases.values()),
        message=", then ".join(phrases),
      )


def write_trace(program: ProceduralProgram, values: list) -> str:
  """Returns the value after each step, as in `x = 8; x = 16; return 17`."""
  steps = [f"{program.variable} = {value!r}" for value in values[:-1]]
  return "; ".join([*steps, f"return {values[-1]!r}"])


def _case_table(
  program: ProceduralProgram, task: InductionTask, num_shown: int
) -> str:
  """Returns a program that is correct for at most the shown cases.

  It maps the first input to the first output and everything else to the last
  shown output.
  """
  parameters = ", ".join(program.opening.parameters)
  value = (
    parameters if len(program.opening.parameters) == 1 else (f"({parameters})")
  )
  first = task.inputs[0] if value == parameters else f"({task.inputs[0]})"
  return (
    f"def f({parameters}):\n  if {value} == {first}:\n"
    f"    return {task.outputs[0]}\n  return {task.outputs[num_shown - 1]}"
  )


def _with_flaw(
  rng: np.random.Generator, code: str, input_text: str
) -> tuple[str, str]:
  """Adds a mistake that real proposals make to the code or the input."""
  flaw = int(rng.integers(4))
  if flaw == 0:
    return code.replace("return ", "", 1), input_text
  if flaw == 1:
    return code.replace("return ", "return z + ", 1), input_text
  if flaw == 2:
    return code, "None"
  return code, input_text.rstrip("])'") + ","
