"""Conversations with code about numbers and strings, for a tiny warm start.

The base model learns to write a script and to read its output, but often
answers without one. Reinforcement learning has to discover when code helps.
Scripts of a source may be wrong with a given probability, which sets how many
of its questions the warm-started model solves.

| solution style | conversation |
| --- | --- |
| `text` | the answer; the running totals precede it for sums |
| `code` | a script, its output, the answer |
| `check` | like `code`, with a second script that verifies the output |
"""

import dataclasses
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction

import numpy as np

from azr_jax.config.settings import Settings, setting
from azr_jax.corpora.corpus import Conversation
from azr_jax.models import tokenizer_training
from azr_jax.randomness import streams
from azr_jax.randomness.purposes import Purpose
from azr_jax.tasks.questions import prompts
from azr_jax.tasks.questions import sources as sources_lib
from azr_jax.tasks.questions.question import Question
from azr_jax.tools import code_blocks

SOLUTION_STYLES = ("text", "code", "check")
VOCAB_SIZE = 384  # The maximum, of which 256 are bytes.
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
class QuestionCorpusSettings(Settings):
  """Section `questions` of supervised training: the mix of conversations."""

  seed: int = setting(0, "seed for all random draws", minimum=0, expert=True)
  count: int = setting(
    8_000, "maximum number of conversations per source", minimum=1
  )
  sources: tuple[str, ...] = setting(
    ("gym:chain_sum",),
    "gym sets, see tasks/questions/sources.py",
    required=True,
  )
  correct_probs: tuple[float, ...] = setting(
    (),
    "probability that a script is correct, one per source; () means 1",
    accepts=(
      lambda v: all(0 <= p <= 1 for p in v),
      "a tuple of probabilities",
    ),
    expert=True,
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

  def check(self) -> None:
    """Raises an error unless there is one probability per source."""
    count = len(sources_lib.split_all(self.sources))
    if self.correct_probs and len(self.correct_probs) != count:
      raise self.invalid("correct_probs", f"one for each of {count} sources")


def conversations(
  *,
  seed: int,
  count: int,
  sources: Sequence[str],
  correct_probs: Sequence[float],
  style_weights: Sequence[float],
  free_prob: float,
) -> Iterator[Conversation]:
  """Yields at most `count` conversations about each task.

  Tasks that repeat their questions yield fewer. After `seed` and `count`, the
  arguments are the fields of `QuestionCorpusSettings`.
  """
  rng = streams.generator(seed, Purpose.QUESTION_CORPUS)
  weights = np.array(style_weights) / sum(style_weights)
  specs = sources_lib.split_all(sources)
  probs = correct_probs or (1.0,) * len(specs)
  for spec, correct_prob in zip(specs, probs, strict=True):
    for question in sources_lib.read(spec, count, seed):
      requested_style = "free"
      style = SOLUTION_STYLES[rng.choice(len(SOLUTION_STYLES), p=weights)]
      if rng.random() >= free_prob:
        requested_style = style = ("text", "code")[rng.integers(2)]
      # Draw nothing for a source whose scripts are all correct, so that its
      # conversations do not depend on this setting.
      correct = correct_prob == 1 or rng.random() < correct_prob
      yield Conversation(
        prompts.ask(question.text, requested_style, "compact"),
        write_turns(question, style, correct),
      )


def write_turns(
  question: Question, solution_style: str, correct: bool = True
) -> tuple[str, ...]:
  """Returns assistant turns and tool outputs that answer a question.

  Args:
    question: a question of a task in `_SOLVERS`.
    solution_style: one of `SOLUTION_STYLES`.
    correct: whether the script is correct. Otherwise it makes its task's
      mistake, and the conversation answers with the wrong output. The `text`
      style is always correct.

  Raises:
    ValueError: the question's task is not in `_SOLVERS`.
  """
  first, expression, steps, answer = _solve(
    question, correct or solution_style == "text"
  )
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


# (import line, expression, steps in words, value).
Solution = tuple[str, str, str, str]


def _solve(question: Question, correct: bool) -> Solution:
  """Solves a question, correctly or with its task's mistake.

  Raises:
    ValueError: the task is unknown, or the question does not fit it.
  """
  numbers = [int(number) for number in re.findall(r"\d+", question.text)]
  solver = _SOLVERS.get(question.task)
  solution = solver(question.text, numbers, correct) if solver else None
  if solution is None:
    raise ValueError(f"{question.id}: expected a question of a known task")
  return solution


def _solve_product(text: str, numbers: list[int], correct: bool) -> Solution:
  """Multiplies. The mistake adds instead."""
  del text
  value = int(np.prod(numbers, dtype=object)) if correct else sum(numbers)
  return "", ("*" if correct else "+").join(map(str, numbers)), "", str(value)


def _solve_sum(text: str, numbers: list[int], correct: bool) -> Solution | None:
  """Adds up, or returns None without a sum. The mistake drops a term."""
  del numbers
  match = re.search(r"(-?\d+(?: [+-] -?\d+)+) =", text)
  if match is None:
    return None
  expression = match[1] if correct else match[1].rsplit(" ", 2)[0]
  first, *rest = re.findall(r"(?:^|[+-] )-?\d+", expression)
  total, steps = int(first), ""
  for term in rest:
    sign, number = term.split(" ")
    result = total + int(number) if sign == "+" else total - int(number)
    steps += f"{total}{sign}{number}={result} "
    total = result
  return "", expression.replace(" ", ""), steps, str(total)


def _solve_gcd(text: str, numbers: list[int], correct: bool) -> Solution:
  """Finds the greatest divisor. The mistake takes the smallest number."""
  del text
  if not correct:
    return "", _call("min", numbers), "", str(min(numbers))
  value = int(np.gcd.reduce(numbers))
  return "from math import gcd\n", _call("gcd", numbers), "", str(value)


def _solve_lcm(text: str, numbers: list[int], correct: bool) -> Solution:
  """Finds the least multiple. The mistake takes the largest number."""
  del text
  if not correct:
    return "", _call("max", numbers), "", str(max(numbers))
  value = int(np.lcm.reduce(numbers))
  return "from math import lcm\n", _call("lcm", numbers), "", str(value)


def _solve_bits(text: str, numbers: list[int], correct: bool) -> Solution:
  """Counts the ones of the last number. The mistake counts zeros."""
  del text
  number, digit = numbers[-1], "1" if correct else "0"
  value = bin(number).count(digit)
  return "", f'bin({number}).count("{digit}")', "", str(value)


def _solve_primes(text: str, numbers: list[int], correct: bool) -> Solution:
  """Counts primes. The mistake requires only one nonzero remainder."""
  del text
  quantifier = all if correct else any
  span = range(max(min(numbers), 2), max(numbers) + 1)
  value = sum(quantifier(n % d for d in range(2, n)) for n in span)
  expression = (
    f"sum({quantifier.__name__}(n%d for d in range(2,n)) for n in "
    f"range({span.start},{span.stop}))"
  )
  return "", expression, "", str(value)


def _solve_fraction(text: str, numbers: list[int], correct: bool) -> Solution:
  """Simplifies a fraction. The mistake inverts it."""
  del text
  top, bottom = numbers if correct else numbers[::-1]
  expression, value = f"str(Fraction({top},{bottom}))", Fraction(top, bottom)
  return "from fractions import Fraction\n", expression, "", str(value)


def _solve_spelling(text: str, numbers: list[int], correct: bool) -> Solution:
  """Reverses a word. The mistake drops its first letter."""
  del numbers
  word = text.rpartition(": ")[2].strip()
  part, value = ("[::-1]", word[::-1]) if correct else ("[1:]", word[1:])
  return "", f'"{word}"{part}', "", value


def _call(name: str, numbers: list[int]) -> str:
  return f"{name}({', '.join(map(str, numbers))})"


_SOLVERS: dict[str, Callable[[str, list[int], bool], Solution | None]] = {
  "gym/products": _solve_product,
  "gym/chain_sum": _solve_sum,
  "gym/gcd": _solve_gcd,
  "gym/lcm": _solve_lcm,
  "gym/count_bits": _solve_bits,
  "gym/count_primes": _solve_primes,
  "gym/fraction_simplification": _solve_fraction,
  "gym/spell_backward": _solve_spelling,
}


def train_tokenizer(texts: Iterable[str], folder: pathlib.Path) -> pathlib.Path:
  """Trains the tokenizer of a tiny model and returns the path of its file."""
  return tokenizer_training.train(texts, _SYMBOLS, VOCAB_SIZE, folder)
