"""Conversations with code about numbers and words, for a tiny warm start.

The base model learns to write a script and to read its output, but often
answers without one. Reinforcement learning has to discover when code helps.

| solution style | conversation |
| --- | --- |
| `text` | the answer; the running totals precede it for sums |
| `code` | a script, its output, the answer |
| `check` | like `code`, with a second script that verifies the output |
"""

import dataclasses
import pathlib
import re
from collections.abc import Iterable, Iterator

import numpy as np

from azr_jax.config.settings import Settings, setting
from azr_jax.corpora.corpus import Conversation
from azr_jax.models import tokenizer_training
from azr_jax.rollout import code_blocks
from azr_jax.tasks.questions import prompts, sources
from azr_jax.tasks.questions.question import Question

SOLUTION_STYLES = ("text", "code", "check")
VOCAB_SIZE = 384  # The maximum; 256 of it are bytes.
_SYMBOLS = (
  "Solve the following multiplication: ",
  ". Give only the result as your final answer.",
  "State the final answer to the following arithmetic problem: ",
  "Find the Greatest Common Divisor (GCD) of these numbers: ",
  ". Give only the GCD as your final answer.",
  "Find the Least Common Multiple (LCM) of these numbers: ",
  "How many 1 bits are there in the binary representation of the number ",
  "Spell this word backward (example: sun -> nus): ",
  " =\n",
  "?\n",
  "```python\n",
  "\n```",
  code_blocks.OUTPUT_PREFIX,
  code_blocks.OUTPUT_SUFFIX,
  "<<<",
  ">>>",
  "print(",
  "from math import gcd\n",
  "from math import lcm\n",
  "gcd(",
  "lcm(",
  "bin(",
  ').count("1")',
  '"[::-1]',
  " == ",
  "True",
  "text\n",
  "code\n",
)


@dataclasses.dataclass(frozen=True)
class CorpusSettings(Settings):
  """Section `questions` of supervised training: the mix of conversations."""

  seed: int = setting(0, "seed for all random draws", minimum=0)
  count: int = setting(
    8_000, "maximum number of conversations per source", minimum=1
  )
  sources: tuple[str, ...] = setting(
    ("gym:chain_sum",),
    "gym sets, as tasks/questions/sources.py reads them",
    required=True,
  )
  style_weights: tuple[float, ...] = setting(
    (0.6, 0.3, 0.1),
    "weights of text, code and check where the prompt leaves the style open",
    accepts=(
      lambda v: len(v) == 3 and min(v) >= 0 and sum(v) > 0,
      f"a tuple of weights for {SOLUTION_STYLES}",
    ),
  )
  free_prob: float = setting(
    0.6,
    "probability that the prompt leaves the style open",
    minimum=0,
    maximum=1,
  )


def conversations(settings: CorpusSettings) -> Iterator[Conversation]:
  """Yields at most `settings.count` conversations about each task.

  There are fewer if a task repeats its questions.
  """
  rng = np.random.default_rng((settings.seed, 1))
  weights = np.array(settings.style_weights) / sum(settings.style_weights)
  for spec in settings.sources:
    for question in sources.read(spec, settings.count, settings.seed):
      requested_style = "free"
      style = SOLUTION_STYLES[rng.choice(len(SOLUTION_STYLES), p=weights)]
      if rng.random() >= settings.free_prob:
        requested_style = style = ("text", "code")[rng.integers(2)]
      yield Conversation(
        prompts.ask(question.text, requested_style, "compact"),
        write_turns(question, style),
      )


def write_turns(question: Question, solution_style: str) -> tuple[str, ...]:
  """Returns assistant turns and tool outputs that answer a question correctly.

  Args:
    question: a question of one of the tasks in `_solve`.
    solution_style: one of `SOLUTION_STYLES`.

  Raises:
    ValueError: the question is of another task.
  """
  first, expression, steps, answer = _solve(question)
  if solution_style == "text":
    return (f"{steps}<<<{answer}>>>",)
  block = f"```python\n{first}print({expression})\n```"
  turns = (block, _tool_output(answer))
  if solution_style == "check":
    literal = f'"{answer}"' if not answer.lstrip("-").isdigit() else answer
    check = f"```python\n{first}print({expression} == {literal})\n```"
    turns += (check, _tool_output("True"))
  return (*turns, f"<<<{answer}>>>")


def _tool_output(text: str) -> str:
  return f"{code_blocks.OUTPUT_PREFIX}{text}{code_blocks.OUTPUT_SUFFIX}"


def _solve(question: Question) -> tuple[str, str, str, str]:
  """Returns an import line, an expression, its steps in words, its value."""
  text = question.text
  numbers = [int(number) for number in re.findall(r"\d+", text)]
  match question.task:
    case "gym/products":
      value = int(np.prod(numbers, dtype=object))
      return "", "*".join(map(str, numbers)), "", str(value)
    case "gym/chain_sum":
      match = re.search(r"(-?\d+(?: [+-] -?\d+)+) =", text)
      if match is not None:
        return _solve_sum(match[1])
    case "gym/gcd":
      value = int(np.gcd.reduce(numbers))
      return "from math import gcd\n", _call("gcd", numbers), "", str(value)
    case "gym/lcm":
      value = int(np.lcm.reduce(numbers))
      return "from math import lcm\n", _call("lcm", numbers), "", str(value)
    case "gym/count_bits":
      number = numbers[-1]
      return "", f'bin({number}).count("1")', "", str(number.bit_count())
    case "gym/spell_backward":
      word = text.rpartition(": ")[2].strip()
      return "", f'"{word}"[::-1]', "", word[::-1]
  raise ValueError(f"{question.id}: expected a question of another task")


def _call(name: str, numbers: list[int]) -> str:
  return f"{name}({', '.join(map(str, numbers))})"


def _solve_sum(expression: str) -> tuple[str, str, str, str]:
  first, *rest = re.findall(r"(?:^|[+-] )-?\d+", expression)
  total, steps = int(first), ""
  for term in rest:
    sign, number = term.split(" ")
    result = total + int(number) if sign == "+" else total - int(number)
    steps += f"{total}{sign}{number}={result} "
    total = result
  return "", expression.replace(" ", ""), steps, str(total)


def train_tokenizer(texts: Iterable[str], folder: pathlib.Path) -> pathlib.Path:
  """Trains the tokenizer of a tiny model and returns its file's path."""
  return tokenizer_training.train(texts, _SYMBOLS, VOCAB_SIZE, folder)
