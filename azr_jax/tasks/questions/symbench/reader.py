"""Reads the public files of SymBench (CodeSteer-v1.0, Apache-2.0).

`layouts.py` finds the datasets and their rows. 24 of the 33 tasks have a
`question.txt` and a `solution.json`. The others have only a world or a problem
(`worlds.py`), and gridworld has no data (`gridworld.py`). A reference has a
correct `answer` and the data that the grader needs.
"""

import itertools
import json
import pathlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from azr_jax.config import user_files
from azr_jax.executor.child.canonical import canonical
from azr_jax.grading.mathematics.extraction import last_boxed
from azr_jax.grading.symbench import puzzles
from azr_jax.tasks.questions.question import Question
from azr_jax.tasks.questions.symbench import gridworld, layouts, worlds
from azr_jax.tasks.questions.symbench.layouts import Row
from azr_jax.tasks.questions.symbench.worlds import TextAndReference

PREFIX = "symbench/"
GRIDWORLD = "gridworld"
GRIDWORLD_COUNT = 140  # The number of questions in the public task.

_NUM_CELLS = re.compile(r"select (\d+) different numbers")
_FIRST_CELL = re.compile(r"square \((\d+),\s*(\d+)\) as the first")
_MAX_SUM = re.compile(r"less than or equal to (-?\d+)")
_CONSTRAINT = re.compile(
  r"Book (\w) (?:must be (?:to the )?(left|right|adjacent)(?: of| to) book "
  r"(\w)|(must|cannot) be placed in position (\d+))"
)
_LETTERS = re.compile(r"There are \d+ letters .*? the numbers ([\d, ]+)\.")
_EQUATION = re.compile(
  r"^\d+\. ([\d.]*)([A-Z])(?: ([+-]) ([A-Z]))? (=|>) (-?[\d.]*)([A-Z]?)$",
  re.MULTILINE,
)


def _text(row: Row) -> str:
  return row["files"]["question.txt"]


def _solution(row: Row) -> Any:
  return json.loads(row["files"]["solution.json"])


def _search(pattern: re.Pattern[str], text: str) -> tuple[str, ...]:
  """Returns the groups of the first match, or raises ValueError."""
  match = pattern.search(text)
  if match is None:
    raise ValueError(f"expected {pattern.pattern!r}")
  return match.groups()


def _flat(value: Any) -> str:
  """Joins the values of a nested list with commas."""
  if isinstance(value, list):
    return ",".join(map(_flat, value))
  return str(value)


def _stored(*keys: str, **more: str) -> Callable[[Row], TextAndReference]:
  """Returns a reader for rows with a stored solution.

  Args:
    *keys: the keys of the answer in the stored solution.
    **more: additional entries of the reference, as name=key in the solution.
  """

  def read(row: Row) -> TextAndReference:
    solution = _solution(row)
    answer = _flat([solution[key] for key in keys])
    further = {name: solution[key] for name, key in more.items()}
    return _text(row), {"answer": answer, **further}

  return read


def _cards(row: Row) -> TextAndReference:
  text, reference = _stored(
    "solution", moves="player_moves", results="results", game="game_type"
  )(row)
  return text, reference


def _equations(row: Row) -> TextAndReference:
  text = _text(row)
  numbers = [int(part) for part in _search(_LETTERS, text)[0].split(",")]
  equations = []
  for groups in _EQUATION.findall(text):
    factor, letter, sign, second, relation, number, right_letter = groups
    if right_letter:
      equations.append(
        (factor or "1", letter, f"-{number or 1}", right_letter, relation, "0")
      )
    else:
      equations.append(
        (factor or "1", letter, f"{sign}1", second, relation, number)
      )
  if not equations or len(equations) != len(re.findall(r"^\d+\. ", text, re.M)):
    raise ValueError("expected equations like '1. 2A + B = 5'")
  return text, {
    "answer": _flat(_solution(row)),
    "numbers": numbers,
    "equations": equations,
  }


def _logic_puzzle(row: Row) -> TextAndReference | None:
  """Reads a puzzle, or returns None if it has no solution.

  27 of the 200 stored solutions break the rule of their puzzle, and 24 puzzles
  have no solution. So stored solutions are checked, and wrong ones replaced.
  """
  text, solution = _text(row), _solution(row)
  first_cell = _search(_FIRST_CELL, text)
  max_sum = _MAX_SUM.search(text)
  reference = {
    "grid": solution["grid"],
    "count": int(_search(_NUM_CELLS, text)[0]),
    "first": tuple(map(int, first_cell)),
    "rule": "sum" if max_sum else "product",
    "most": int(max_sum[1]) if max_sum else None,
  }
  answers = itertools.chain(
    [_flat(solution["solution"])], _selections(reference)
  )
  for answer in answers:
    if puzzles.logic_puzzle(reference, answer):
      return text, {"answer": answer, **reference}
  return None


def _selections(reference: Mapping[str, Any]) -> Iterator[str]:
  """Yields every selection of `count` cells, formatted as an answer."""
  size = len(reference["grid"])
  cells = itertools.product(range(size), repeat=2)
  for chosen in itertools.combinations(cells, reference["count"]):
    yield ", ".join(f"{r} {c}" for r, c in chosen)


def _arrangement(row: Row) -> TextAndReference:
  solution = _solution(row)
  lines = solution["constraints_text"].splitlines()
  constraints = []
  for item, relation, other, must, position in _CONSTRAINT.findall(
    solution["constraints_text"]
  ):
    if relation:
      constraints.append((item, relation, other))
    else:
      kind = "at" if must == "must" else "not"
      constraints.append((item, kind, int(position)))
  if len(constraints) != len(lines):
    raise ValueError(
      "expected constraints like 'Book A must be placed in position 1'"
    )
  return _text(row), {
    "answer": _flat(solution["correct_solution"]),
    "items": solution["items"],
    "constraints": constraints,
  }


def _decomposition(row: Row) -> TextAndReference:
  """Reads a question that asks for the initial crops and X.

  The stored answer also contains Y. Answers with and without Y are correct.
  """
  solution = _solution(row)
  stored = solution["solution"]["answer"]
  crops = len(solution["initial_state"])
  answer = _flat([*stored[:crops], stored[3]])
  return _text(row), {"answer": answer, "or": [_flat(stored)]}


def _multiplying(row: Row) -> TextAndReference:
  files = row["files"]
  return files["input_prompt_1.txt"], {"answer": files["target_answer.txt"]}


def _gsm(row: Row) -> TextAndReference:
  return row["input"], {"answer": str(row["target"])}


def _math(row: Row) -> TextAndReference:
  answer = last_boxed(row["solution"])
  if answer is None:
    raise ValueError("expected a boxed answer")
  return row["problem"], {"answer": answer}


def _only_file(row: Row) -> str:
  """Returns the text of the only file of a sample."""
  (text,) = row["files"].values()
  return text


def _letters(row: Row) -> TextAndReference:
  letter = row["sample"].rsplit("/", 1)[1].split("_")[0]
  return worlds.letters(json.loads(_only_file(row)), letter)


def _boxlift(row: Row) -> TextAndReference:
  world = json.loads(_only_file(row))
  return worlds.boxlift(world["boxes"], world["lifters"])


def _game24(row: Row) -> TextAndReference | None:
  return worlds.game24([int(part) for part in row["Puzzles"].split()])


_QUEENS = _stored("solution", board="initial_board")
_COMBINATORIAL = _stored("solution", numbers="numbers", target="target")
# Maps the name of a dataset to its task and the reader of its rows.
_FILES: dict[str, tuple[str, Callable[[Row], TextAndReference | None]]] = {
  "2048_dataset": ("2048", _stored("solution")),
  "Blocksworld_dataset": (
    "blocksworld",
    lambda row: worlds.blocksworld(_only_file(row)),
  ),
  "BoxLift_dataset": ("boxlift", _boxlift),
  "BoxLift_dataset_SFT": ("boxlift", _boxlift),
  "BoxNet1_dataset": (
    "boxnet",
    lambda row: worlds.boxnet(json.loads(_only_file(row))),
  ),
  "BoxNet1_dataset_SFT": (
    "boxnet",
    lambda row: worlds.boxnet(json.loads(_only_file(row))),
  ),
  "combinatorial_calculation": ("combinatorial_calculation", _COMBINATORIAL),
  "combinatorial_calculation_varied_complexity": (
    "combinatorial_calculation",
    _COMBINATORIAL,
  ),
  "constrained_linear_arrangement": ("constrained_linear_arrangement", _cards),
  "cryptanalysis": ("cryptanalysis", _stored("answer")),
  "eight_queens_dataset": ("eight_queens", _QUEENS),
  "eight_queens_dataset_2": ("eight_queens", _QUEENS),
  "eight_queens_dataset_hard": ("eight_queens", _QUEENS),
  "eight_queens_dataset_varied_complexity": ("eight_queens", _QUEENS),
  "24__24": ("game24", _game24),
  "gsmhardv2": ("gsm", _gsm),
  "letter_logic_diagram": (
    "letter_logic_diagram",
    _stored("solution", grid="grid"),
  ),
  "Letters": ("letters", _letters),
  "light_puzzles_dataset": ("light_puzzles", _stored("solution")),
  "logic_puzzle_dataset": ("logic_puzzle", _logic_puzzle),
  "logical_equation": ("logical_equation", _equations),
  "mahjong_pattern_dataset": ("mahjong", _stored("solution")),
  "MATH_train_counting_and_probability": (
    "math_counting_and_probability",
    _math,
  ),
  "MATH_train_geometry": ("math_geometry", _math),
  "matrix_transformation_dataset": (
    "matrix_transformation",
    _stored("formatted_solution"),
  ),
  "new_operator_dataset": ("new_operator", _stored("solution")),
  "number_multiply": ("number_multiplying", _multiplying),
  "number_multiply_varied_complexity": ("number_multiplying", _multiplying),
  "pattern_recognition": ("pattern_recognition", _stored("row", "column")),
  "permutations_and_combinations": (
    "permutations_and_combinations",
    _arrangement,
  ),
  "pooling_dataset": ("pooling", _stored("solution")),
  "reversi_dataset": ("reversi", _stored("solution")),
  "standard_sudoku": ("standard_sudoku", _stored("solution", grid="puzzle")),
  "statistical_counting_dataset": ("statistical_counting", _stored("solution")),
  "string_deletion_and_modification": (
    "string_deletion_and_modification",
    _stored("final_string"),
  ),
  "string_insertion": ("string_insertion", _stored("modified_string")),
  "string_splitting": ("string_splitting", _stored("expected_answer")),
  "string_synthesis": ("string_synthesis", _stored("final_counts")),
  "synthesis_decomposition_dataset": (
    "synthesis_decomposition",
    _decomposition,
  ),
}


def make_gridworld(count: int, seed: int) -> list[Question]:
  """Generates gridworld questions, because there is no public data."""
  task = PREFIX + GRIDWORLD
  generated = [gridworld.make(seed, index) for index in range(count)]
  return [
    Question(f"{task}/{seed}/{index}", task, text, canonical(reference))
    for index, (text, reference) in enumerate(generated)
  ]


def read(path: pathlib.Path) -> list[Question]:
  """Reads a dataset, or all datasets of a folder in either layout.

  Raises:
    ValueError: a file is unknown, missing or malformed, or a folder has no
      SymBench datasets.
  """
  if path.stem in _FILES:
    return _read_data_set(path.stem, path)
  if not path.is_dir():
    raise ValueError(f"{path}: expected one of {sorted(_FILES)}")
  found = {name: layouts.find(path, name) for name in sorted(_FILES)}
  if not any(found.values()):
    raise ValueError(f"{path}: expected a folder of SymBench's files")
  return [
    question
    for name, place in found.items()
    if place is not None
    for question in _read_data_set(name, place)
  ]


def _read_data_set(name: str, path: pathlib.Path) -> list[Question]:
  task, read_row = _FILES[name]
  questions = []
  with user_files.reading(path, "SymBench's file"):
    rows = layouts.rows(path)
  for number, row in enumerate(rows):
    with user_files.reading(f"{path}: row {number}", f"a sample of {task}"):
      parsed = read_row(row)
    if parsed is not None:
      text, reference = parsed
      questions.append(
        Question(
          f"{PREFIX}{task}/{name}/{number}",
          PREFIX + task,
          text,
          canonical(reference),
        )
      )
  return questions
