"""Grades the 33 tasks of SymBench (R1-CI, table 6), strictly.

| the public checkers | here |
| --- | --- |
| accept a correct code output or a correct text | only the one answer counts |
| of several tasks evaluate the answer | nothing is evaluated |
| of BoxLift allow a lifter twice and ids below 0, and skip invalid lifts | no |
| of Eight Queens ignore the given queens | the given queens must stay |
| of Logic Puzzle allow a cell twice | no |
| of letter diagrams accept one stored solution | any that keeps the rules |
"""

from collections.abc import Callable
from concurrent.futures import Future

from azr_jax.executor import Executor, futures, literals
from azr_jax.grading.mathematics import grader as mathematics
from azr_jax.grading.outcome import Outcome
from azr_jax.grading.symbench import answer_parsing, plans, puzzles

MAX_ANSWER_CHARS = 20_000


def _listed(reference: puzzles.Reference, answer: str) -> bool:
  """Accepts the stored tokens, in their order."""
  return any(
    answer_parsing.same_tokens(answer_parsing.tokens(stored), answer)
    for stored in (reference["answer"], *reference.get("or", ()))
  )


def _cells(reference: puzzles.Reference, answer: str) -> bool:
  """Accepts the stored cells of one character each, separated or not."""
  return "".join(answer_parsing.tokens(answer)) == "".join(
    answer_parsing.tokens(reference["answer"])
  )


def _word(reference: puzzles.Reference, answer: str) -> bool:
  """Accepts the stored string, in quotes or not."""
  return answer.strip().strip("\"'`").strip() == reference["answer"].strip('"')


def _number(reference: puzzles.Reference, answer: str) -> bool:
  """Accepts the stored number."""
  return answer_parsing.same_number(reference["answer"], answer)


_GRADERS: dict[str, Callable[[puzzles.Reference, str], bool]] = {
  "2048": _listed,
  "blocksworld": plans.blocksworld,
  "boxlift": plans.boxlift,
  "boxnet": plans.boxnet,
  "combinatorial_calculation": puzzles.combinatorial_calculation,
  "constrained_linear_arrangement": puzzles.linear_arrangement,
  "cryptanalysis": _listed,
  "eight_queens": puzzles.eight_queens,
  "game24": puzzles.game24,
  "gridworld": plans.gridworld,
  "gsm": _number,
  "letter_logic_diagram": puzzles.latin_square,
  "letters": plans.letters,
  "light_puzzles": _cells,
  "logic_puzzle": puzzles.logic_puzzle,
  "logical_equation": puzzles.logical_equation,
  "mahjong": _number,
  "matrix_transformation": _cells,
  "new_operator": _number,
  "number_multiplying": _number,
  "pattern_recognition": _listed,
  "permutations_and_combinations": puzzles.permutation,
  "pooling": _listed,
  "reversi": _cells,
  "standard_sudoku": puzzles.sudoku,
  "statistical_counting": _number,
  "string_deletion_and_modification": _word,
  "string_insertion": _word,
  "string_splitting": _listed,
  "string_synthesis": _listed,
  "synthesis_decomposition": _listed,
}
_MATHEMATICS = ("math_counting_and_probability", "math_geometry")


def submit(
  executor: Executor, name: str, reference: str, answer: str | None
) -> "Future[Outcome]":
  """Starts to grade an answer.

  Args:
    executor: runs the algebra of the two tasks of MATH.
    name: the task's name, without its prefix.
    reference: the question's reference, see `tasks/questions/symbench`.
    answer: the answer in a response; None if there is none.

  Returns:
    The future of the answer's outcome.

  Raises:
    ValueError: the task is unknown.
  """
  if name not in _GRADERS and name not in _MATHEMATICS:
    raise ValueError(f"SymBench task {name!r}: expected one with a grader")
  if answer is None or len(answer) > MAX_ANSWER_CHARS:
    return futures.done(Outcome.INCORRECT)
  record = literals.literal_value(reference)
  if name in _MATHEMATICS:
    return mathematics.submit(executor, record["answer"], answer)
  return futures.done(Outcome.of(_GRADERS[name](record, answer)))
