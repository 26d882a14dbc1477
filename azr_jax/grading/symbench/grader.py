"""Grades the 33 tasks of SymBench (R1-CI, table 6), strictly.

| task | public checker | here |
| --- | --- | --- |
| all | accepts a correct code output or text | grades a single answer |
| several | evaluates the answer | evaluates nothing |
| BoxLift | allows reused lifters and ids below 0 | refuses them |
| BoxLift | skips invalid lifts | refuses the answer |
| Eight Queens | ignores the given queens | given queens must stay |
| Logic Puzzle | allows the same cell twice | refuses it |
| letter diagrams | accepts one stored solution | accepts any valid one |
"""

from collections.abc import Callable
from concurrent.futures import Future

from azr_jax.executor import Executor, futures, literals
from azr_jax.grading.mathematics import grader as mathematics
from azr_jax.grading.outcome import Outcome
from azr_jax.grading.symbench import answer_parsing, plans, puzzles

MAX_ANSWER_CHARS = 20_000


def _listed(reference: puzzles.Reference, answer: str) -> bool:
  """Accepts the stored tokens in order."""
  return any(
    answer_parsing.same_tokens(answer_parsing.tokens(stored), answer)
    for stored in (reference["answer"], *reference.get("or", ()))
  )


def _cells(reference: puzzles.Reference, answer: str) -> bool:
  """Accepts the stored one-character cells, with or without separators."""
  return "".join(answer_parsing.tokens(answer)) == "".join(
    answer_parsing.tokens(reference["answer"])
  )


def _word(reference: puzzles.Reference, answer: str) -> bool:
  """Accepts the stored string, with or without quotes."""
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
  """Starts grading an answer.

  Args:
    executor: runs the algebra for the two MATH tasks.
    name: the task's name without its prefix.
    reference: the question's reference (see `tasks/questions/symbench`).
    answer: the answer found in a response, None if there is none.

  Raises:
    ValueError: the task is unknown.
  """
  if name not in _GRADERS and name not in _MATHEMATICS:
    raise ValueError(
      f"SymBench task {name!r}: no grader; expected one of the 33 tasks"
    )
  if answer is None or len(answer) > MAX_ANSWER_CHARS:
    return futures.done(Outcome.INCORRECT)
  record = literals.literal_value(reference)
  if name in _MATHEMATICS:
    return mathematics.submit(executor, record["answer"], answer)
  return futures.done(Outcome.of(_GRADERS[name](record, answer)))
