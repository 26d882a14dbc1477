r"""Grades labelled pairs with this grader and with math-verify alone.

A file of pairs has four tab-separated columns and a header line: kind, label
(`right` for a correct answer, `wrong` for an incorrect one), reference, answer.
"""

import dataclasses
import pathlib
from collections.abc import Iterable, Sequence
from concurrent.futures import Future

from azr_jax.executor import Executor, Job, futures
from azr_jax.grading.mathematics import grader
from azr_jax.grading.outcome import Outcome

COLUMNS = ("kind", "label", "reference", "answer")
LABELS = ("right", "wrong")
# The best case for math-verify: each text is in a box, which it reads first.
_ALONE = r"""
from math_verify import ExprExtractionConfig, LatexExtractionConfig
from math_verify import parse, verify
KINDS = (LatexExtractionConfig(boxed_match_priority=0), ExprExtractionConfig())
def read(text):
  return parse("\\boxed{" + text + "}", KINDS, parsing_timeout=None)
def f(reference, answer):
  return bool(verify(read(reference), read(answer), timeout_seconds=None))
"""


class BadPairsError(ValueError):
  """A file of labelled pairs is malformed. The message says where and how."""


@dataclasses.dataclass(frozen=True)
class Pair:
  """A labelled pair.

  Attributes:
    kind: the kind of reference. It labels a row of the table.
    is_correct: whether the answer is labelled correct.
    reference: the reference answer.
    answer: the answer to grade.
  """

  kind: str
  is_correct: bool
  reference: str
  answer: str


@dataclasses.dataclass(frozen=True)
class PairGrades:
  """The verdicts of both graders on a pair.

  Attributes:
    pair: the graded pair.
    ours: whether this grader accepts the answer.
    alone: whether math-verify alone accepts the answer.
  """

  pair: Pair
  ours: bool
  alone: bool


def read(path: str | pathlib.Path) -> list[Pair]:
  """Reads a file of pairs.

  Raises:
    BadPairsError: the file does not have the expected columns.
    OSError: the file cannot be read.
  """
  lines = pathlib.Path(path).read_text("utf-8-sig").splitlines()
  if not lines or tuple(lines[0].split("\t")) != COLUMNS:
    raise BadPairsError(f"{path}: expected the columns {', '.join(COLUMNS)}")
  pairs = []
  for number, line in enumerate(lines[1:], 2):
    cells = line.split("\t")
    if len(cells) != len(COLUMNS) or cells[1] not in LABELS:
      raise BadPairsError(
        f"{path}, line {number}: expected {len(COLUMNS)} tab-separated columns "
        f"with a label of {LABELS} in the second"
      )
    kind, label, reference, answer = cells
    pairs.append(Pair(kind, label == LABELS[0], reference, answer))
  return pairs


def submit(executor: Executor, pair: Pair) -> "Future[PairGrades]":
  """Starts grading a pair with both graders."""
  reference, answer = (
    text.replace("$", "") for text in (pair.reference, pair.answer)
  )
  job = Job(
    "pair", _ALONE, (f"{reference!a}, {answer!a}",), libraries=(grader.LIBRARY,)
  )
  ours = grader.submit(executor, pair.reference, pair.answer)
  alone = futures.then(
    executor.submit(job),
    lambda result: Outcome.of(result.outputs == ("True",), result),
  )
  return futures.then(
    futures.gather([ours, alone]),
    lambda outcomes: PairGrades(pair, *map(bool, outcomes)),
  )


def table(grades: Sequence[PairGrades]) -> list[str]:
  """Returns the lines of a table that counts incorrect grades by kind."""
  lines = [_row("kind", "pairs", "ours incorrect", "math-verify incorrect")]
  for kind in dict.fromkeys(one.pair.kind for one in grades):
    own = [one for one in grades if one.pair.kind == kind]
    lines.append(_counts(kind, own, (True, False)))
  lines.append(_counts("all", grades, (True, False)))
  lines.append(_counts("incorrect, accepted", grades, (False,)))
  lines.append(_counts("correct, refused", grades, (True,)))
  return lines


def mistakes(grades: Iterable[PairGrades]) -> list[PairGrades]:
  """Returns the pairs that this grader gets wrong."""
  return [one for one in grades if one.ours != one.pair.is_correct]


def _counts(
  name: str, grades: Sequence[PairGrades], labels: tuple[bool, ...]
) -> str:
  own = [one for one in grades if one.pair.is_correct in labels]
  ours = sum(one.ours != one.pair.is_correct for one in own)
  alone = sum(one.alone != one.pair.is_correct for one in own)
  return _row(name, len(own), ours, alone)


def _row(*cells: object) -> str:
  name, *numbers = map(str, cells)
  return f"{name:20}" + "".join(f"{number:>23}" for number in numbers)
