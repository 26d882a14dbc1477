"""Prompts of environments, in the formats of `prompts.py`."""

import dataclasses
from collections.abc import Sequence

from azr_jax.tasks.programs import prompts
from azr_jax.tasks.programs.environments import FORBIDDEN
from azr_jax.tasks.programs.prompts import COMPACT, FULL, fence
from azr_jax.tasks.programs.task import EnvironmentTask, Instance


@dataclasses.dataclass(frozen=True)
class EnvironmentExemplar:
  """An environment with the responses of its proposer and a solver.

  Attributes:
    environment: what the proposer answers.
    plan: the proposer's thinking.
    instance: one of its instances, with the answer.
    thinking: the solver's thinking, from the instance to the answer.
  """

  environment: EnvironmentTask
  plan: str
  instance: Instance
  thinking: str


def _exemplar(
  message: str, code: str, plan: str, value: str, answer: str, thinking: str
) -> EnvironmentExemplar:
  environment = EnvironmentTask(code, message, "")
  instance = Instance(environment, value, answer)
  return EnvironmentExemplar(environment, plan, instance, thinking)


EXEMPLARS = (
  _exemplar(
    "Multiply all numbers that are not 0.",
    """import random

def generate(seed):
  rng = random.Random(seed)
  return [rng.randrange(6) for _ in range(4)]

def solve(instance):
  product = 1
  for number in instance:
    product *= number or 1
  return product

def score(instance, answer):
  return answer == solve(instance)""",
    "Draw a few numbers, drop some of them, and combine the others.",
    "[3, 0, 2, 5]",
    "30",
    "0 is dropped. 3 * 2 = 6 and 6 * 5 = 30.",
  ),
  _exemplar(
    "Give a word of four letters that contains all letters of the text.",
    """import random

def generate(seed):
  rng = random.Random(seed)
  return ''.join(rng.sample('abcdefgh', 3))

def solve(instance):
  return instance + instance[0]

def score(instance, answer):
  return int(len(answer) == 4 and set(instance) <= set(answer))""",
    "Draw letters and ask for a text with them; many answers are right.",
    "'gbe'",
    "'gbeg'",
    "The letters are g, b, e. Adding one more letter gives gbeg.",
  ),
)

_RULES = f"""Rules for the program:
- `generate(seed)` returns a new instance for each seed, always the same for \
the same seed. Use `random.Random(seed)`.
- `solve(instance)` returns a right answer, never None.
- `score(instance, answer)` returns 1 for every right answer, such as that of \
`solve`, and less for a wrong one. It must not be fooled.
- Instances and answers are plain values: numbers, texts, tuples, lists, sets \
and dictionaries. Keep them short.
TIME_RULE\
- Only Python's standard library can be imported.
- None of these may be used: {", ".join(FORBIDDEN)}."""


def propose(
  references: Sequence[EnvironmentTask],
  prompt_format: str,
  limit_s: float | None = None,
) -> str:
  """Returns a prompt that asks for an environment.

  Args:
    references: the example environments.
    prompt_format: one of `prompts.PROMPT_FORMATS`.
    limit_s: the limit in CPU seconds per call, for the full format. None leaves
      it out.
  """
  shown = show(references)
  if prompt_format != FULL:

    def exchange(e: EnvironmentExemplar) -> tuple[str, str, str]:
      others = [o.environment for o in EXEMPLARS if o is not e]
      return propose(others, COMPACT), e.plan, show([e.environment])

    return prompts.short_prompt(
      f"New environment.\n{shown}", prompt_format, map(exchange, EXEMPLARS)
    )
  return prompts.wrap(
    f"""Invent a task, and write a Python program that makes instances of it, \
solves them, and scores answers.
A solver will see your message and one instance, never the program, and must \
work out an answer by reasoning alone. The task should be easy for a program \
and hard, but possible, without one. It must differ clearly from the tasks \
below.

{prompts.filled_rules(_RULES, limit_s)}

Plan first how the task will be hard and new. Then answer with two fences, the \
program and the message, which explains what to do with an instance and how \
the answer is written:
{fence("python", "def generate(seed):" + chr(10) + "    ...")}
{fence("message", "...")}

Known tasks:
{shown}""",
    prompt_format,
  )


def show(environments: Sequence[EnvironmentTask]) -> str:
  """Returns programs and messages in labelled fences."""
  return "\n".join(
    f"{fence('python', one.code)}\n{fence('message', one.message)}"
    for one in environments
  )


def solve(instance: Instance, prompt_format: str) -> str:
  """Returns a prompt that asks for an answer to an instance."""
  message = fence("message", instance.environment.message)
  task = f"{message}\n{fence('input', instance.value)}"
  if prompt_format != FULL:

    def exchange(e: EnvironmentExemplar) -> tuple[str, str, str]:
      answer = fence("output", e.instance.answer)
      return solve(e.instance, COMPACT), e.thinking, answer

    return prompts.short_prompt(
      f"Solve the instance.\n{task}", prompt_format, map(exchange, EXEMPLARS)
    )
  return prompts.wrap(
    f"""The message explains a task; the input is one instance of it. Solve \
it step by step.
Answer with one literal in an output fence.
{task}

The answer looks like this:
{fence("output", "{'age': 20, 'city': 'New York'}")}""",
    prompt_format,
  )
