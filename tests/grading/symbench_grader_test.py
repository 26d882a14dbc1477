"""SymBench graders accept stored answers and refuse changed ones.

The fixtures are rows of the public files (CodeSteer-v1.0, Apache-2.0).
"""

import ast
import pathlib
import re
import time

import pytest
from typed import stand_in

from azr_jax.executor import Executor
from azr_jax.executor.child.canonical import canonical
from azr_jax.grading import questions
from azr_jax.tasks.questions import catalogue, sources
from azr_jax.tasks.questions.symbench import reader, worlds

FIXTURES = pathlib.Path(__file__).parent / "fixtures" / "symbench"
PUBLIC = pathlib.Path(__file__).parents[3] / "shared" / "data" / "symbench"
JUNK = ("", "zzz", "-7", "[]", "{}", "None", "x" * 50, "((((", "1e999", "\0")
# Tasks where an answer with a changed last character may also be correct.
SEVERAL_ANSWERS = {
  "boxlift",
  "constrained_linear_arrangement",
  "gridworld",
  "logic_puzzle",
}
# Tasks where a changed last digit may be within the tolerance.
ROUNDED = {"gsm", "new_operator", "pooling"}


def graded(task, reference, answer):
  return bool(
    questions.submit(stand_in(Executor), task, reference, answer).result()
  )


def spoiled(name, answer):
  """Yields answers that are malformed or differ by one character."""
  yield answer + ", 7"
  yield answer + " and so on"
  if name == "gridworld":  # Its grader ignores brackets.
    yield answer.rsplit("(", 1)[0]
  elif name == "pooling":
    yield answer.rsplit(",", 1)[0]
  elif name not in ROUNDED:
    yield answer[:-2] if answer[-1] in "\"')]}" else answer[:-1]
  if name in SEVERAL_ANSWERS | ROUNDED:
    return
  signs = list(re.finditer(r"[A-Za-z0-9]", answer))
  if not signs:
    return
  last = signs[-1]
  old = last[0]
  new = str((int(old) + 1) % 10) if old.isdigit() else "bA"[old == "b"]
  yield answer[: last.start()] + new + answer[last.end() :]


def check(rows):
  """Checks the stored answer and wrong answers of all questions."""
  for row in rows:
    name = row.task.removeprefix(reader.PREFIX)
    answer = ast.literal_eval(row.reference)["answer"]
    assert graded(row.task, row.reference, answer), row.id
    if name.startswith("math_"):
      continue  # Other answers need algebra in the executor.
    for wrong in (*JUNK, None):
      # One of these may be the answer of a task whose answer is a number.
      if wrong != answer:
        assert not graded(row.task, row.reference, wrong), (row.id, wrong)
    for wrong in spoiled(name, answer):
      assert not graded(row.task, row.reference, wrong), (row.id, wrong)


def test_stored_answers_are_correct_and_spoiled_ones_are_not():
  rows = reader.read(FIXTURES) + reader.make_gridworld(9, 0)
  wanted = {n for n in catalogue.tasks() if n.startswith(reader.PREFIX)}
  assert {row.task for row in rows} == wanted
  assert len(wanted) == 33
  check(rows)


@pytest.mark.slow
@pytest.mark.skipif(not PUBLIC.is_dir(), reason="the public files are not here")
def test_all_public_files():
  rows = reader.read(PUBLIC)
  # 24 of the 200 logic puzzles have no solution, and one of the 120 worlds of
  # blocks is at its goal from the start.
  assert len(rows) == 16_672
  check(rows)


RULES = {
  "logic_puzzle": {
    "grid": [[1, 2], [3, 1]],
    "count": 2,
    "first": (0, 1),
    "rule": "sum",
    "most": 4,
  },
  "product": {
    "grid": [[-1, 2, 4], [3, -5, 6], [7, 8, 0]],
    "count": 3,
    "first": (0, 2),
    "rule": "product",
    "most": None,
  },
  "eight_queens": {"board": ["1000", "00X0", "0000", "0000"]},
  "small_queens": {"board": ["0100", "0000", "0000", "0000"]},
  "boxlift": {"boxes": [50, 50, 20], "lifters": [30, 25, 40], "steps": 2},
  "blocksworld": {
    "start": {"stack1": ["A", "B"], "stack2": []},
    "goal": {"stack2": ["B", "A"]},
  },
  "boxnet": {
    "cells": {
      "0.5_0.5": ["box_red", "target_blue"],
      "0.5_1.5": ["box_blue", "target_red"],
      "1.5_0.5": [],
    }
  },
  "gridworld": {
    "size": (4, 4),
    "start": ("0.5", "0.5"),
    "visit": [(3, 0, 4, 1), (3, 3, 4, 4)],
    "forbidden": [(1, 0, 2, 2)],
  },
  "elements": {
    "game": "elements",
    "moves": ["D", "C"],
    "results": ["draw", "win"],
  },
  "stick": {
    "game": "stick_game",
    "moves": ["A", "B"],
    "results": ["loss", "win"],
  },
  "animal": {
    "game": "animal",
    "moves": ["A", "C"],
    "results": ["loss", "draw"],
  },
  "logical_equation": {
    "numbers": [1, 3, 4],
    "equations": [
      ("1", "A", "-3.0", "B", "=", "0"),
      ("1", "C", "-1", "A", ">", "0"),
    ],
  },
  "permutation": {
    "items": ["A", "B", "C"],
    "constraints": [
      ("A", "adjacent", "C"),
      ("B", "left", "A"),
      ("C", "not", 2),
    ],
  },
  "combinatorial": {"numbers": [6, 2, 7], "target": 10},
  "game24": {"numbers": [1, 1, 4, 6], "target": 24},
  "letters": {"word": "banana", "letter": "a"},
}
TASKS = {
  "product": "logic_puzzle",
  "small_queens": "eight_queens",
  "elements": "constrained_linear_arrangement",
  "stick": "constrained_linear_arrangement",
  "animal": "constrained_linear_arrangement",
  "permutation": "permutations_and_combinations",
  "combinatorial": "combinatorial_calculation",
}
RED = '{"Agent[0.5, 0.5]": "move(box_red, square[0.5, 1.5])"'
BLUE = '"Agent[0.5, 1.5]": "move(box_blue, square[0.5, 0.5])"}'
TARGETS = (
  '{"Agent[0.5, 0.5]": "move(box_blue, target_blue)", '
  '"Agent[0.5, 1.5]": "move(box_red, target_red)"}'
)


@pytest.mark.parametrize(
  "rules, answer, correct",
  [
    ("logic_puzzle", "0 1, 1 0", True),
    ("logic_puzzle", "[(0, 1), (0, 0)]", True),
    ("logic_puzzle", "0 1, 0 1", False),  # The same cell twice.
    ("logic_puzzle", "0 0, 1 1", False),  # The same number twice.
    ("logic_puzzle", "0 1, 1 0, 0 0", False),  # One cell too many.
    ("logic_puzzle", "0 1, 1 -2", False),
    ("product", "0 2, 1 0, 2 1", True),
    ("product", "0 2, 0 1, 1 1", False),
    ("product", "0 2, 1 0, 2 2", False),  # 0 is not above 0.
    ("small_queens", "0 1, 1 3, 2 0, 3 2", True),
    ("small_queens", "0 2, 1 0, 2 3, 3 1", False),  # The given queen is gone.
    ("eight_queens", "0 0, 1 2, 2 1, 3 3", False),
    (
      "boxlift",
      "Step 1: [(50, [0, 1]), (20, [2])]\nStep 2: [(50, [0, 2])]",
      True,
    ),
    (
      "boxlift",
      "Step 1: [(50, [0, 1]), (20, [1])]\nStep 2: [(50, [0, 2])]",
      False,
    ),
    (
      "boxlift",
      "Step 1: [(50, [2, 2]), (20, [1])]\nStep 2: [(50, [0, 2])]",
      False,
    ),
    (
      "boxlift",
      "Step 1: [(50, [0, -1])]\nStep 2: [(50, [0, 2]), (20, [1])]",
      False,
    ),
    ("boxlift", "Step 1: [(50, [0, 1]), (20, [2])]", False),
    (
      "boxlift",
      "Step 1: [(20, [2])]\nStep 2: [(50, [0, 1])]\nStep 3: [(50, [0, 1])]",
      False,
    ),
    (
      "blocksworld",
      "Move B from stack1 to stack2\nMove A from stack1 to stack2",
      True,
    ),
    ("blocksworld", "Move A from stack1 to stack2", False),  # B is on top of A.
    ("blocksworld", "Move B from stack1 to stack3", False),
    ("blocksworld", "", False),
    ("boxnet", f"[{RED}, {BLUE}, {TARGETS}]", True),
    ("boxnet", f"[{RED}, {BLUE}]", False),
    ("boxnet", f"[{TARGETS}]", False),
    (
      "boxnet",
      '[{"Agent[0.5, 0.5]": "move(box_red, square[1.5, 1.5])"}]',
      False,
    ),
    (
      "boxnet",  # The target has a different colour.
      '[{"Agent[0.5, 0.5]": "move(box_red, target_blue)", '
      '"Agent[0.5, 1.5]": "move(box_blue, target_red)"}]',
      False,
    ),
    (
      "gridworld",
      "[(0.5, 0.5), (0.5, 2.5), (3.5, 2.5), (3.5, 0.5), (3.5, 3.5)]",
      True,
    ),
    ("gridworld", "(0.5, 0.5), (0.9, 2.1), (3, 2.1), (3, 1), (3, 3)", True),
    ("gridworld", "(0.5, 0.5), (1, 2), (3, 2.1), (3, 1), (3, 3)", False),
    # Hits a wall.
    ("gridworld", "[(0.5, 0.5), (3.5, 0.5), (3.5, 3.5)]", False),
    ("gridworld", "[(0.5, 0.5), (0.5, 2.5), (3.5, 3.5), (3.5, 0.5)]", False),
    ("gridworld", "[(0.5, 2.5), (3.5, 2.5), (3.5, 0.5), (3.5, 3.5)]", False),
    (
      "gridworld",
      "[(0.5, 0.5), (0.5, 5), (3.5, 5), (3.5, 1), (3.5, 3.5)]",
      False,
    ),
    ("elements", "D, E", True),
    ("elements", "C, E", True),  # C generates D: a draw.
    ("elements", "E, E", False),
    ("elements", "D, H", False),
    ("stick", "D, C", True),
    ("stick", "B, C", False),
    ("animal", "H, C", True),
    ("animal", "B, C", False),
    ("logical_equation", "[3, 1, 4]", True),
    ("logical_equation", "[3, 1, 5]", False),
    ("logical_equation", "[4, 1, 3]", False),
    ("permutation", '["B", "A", "C"]', True),
    ("permutation", '["B", "C", "A"]', False),
    ("permutation", '["A", "B", "C"]', False),
    ("combinatorial", "[6, /, 2, +, 7]", True),
    ("combinatorial", "[(, 6, /, 2, ), +, 7]", True),
    ("combinatorial", "[6, /, [2, +, 7]]", False),
    ("combinatorial", "[7, +, 6, /, 2]", False),  # Wrong order.
    ("combinatorial", "[6, -, 2, +, 7]", False),
    ("game24", "(1 + 1 - 4) * 6", False),
    ("game24", "4 * 6 * 1 * 1 = 24", True),
    ("game24", "junk </answer><answer>4 * 6 * 1 * 1", False),
    ("game24", "4 * 6", False),
    ("game24", "__import__('os')", False),
    ("letters", "count: 3, positions: [2, 4, 6]", True),
    ("letters", "count: 3, positions: [1, 3, 5]", False),
    ("letters", "count: 2, positions: [2, 4, 6]", False),
  ],
)
def test_rules_are_kept(rules, answer, correct):
  task = reader.PREFIX + TASKS.get(rules, rules)
  assert graded(task, canonical(RULES[rules]), answer) is correct


HOSTILE = (
  "9" * 5000,
  f"Step 1: [({'9' * 5000}, [0])]",
  f"Step 1: [(50, [{'9' * 5000}])]",
  f"count: 1, positions: [{'9' * 5000}]",
  f"count: {'9' * 5000}, positions: [1]",
  f"[{'9' * 5000}, 1]",
  "{" * 20_000,
  "{}" * 9_999,
  "(" * 20_000,
  "[" * 20_000,
  "1," * 9_999,
  "1 1 " * 5_000,
  "A" * 20_000,
  "Move A from a to b\n" * 1_000,
  "0.5, " * 4_000,
  " " * 20_000,
  "\u2028\x85\0",
  "1e999999",
  "=" * 20_000,
  "</answer><answer>1",
)


@pytest.mark.parametrize("answer", HOSTILE, ids=range(len(HOSTILE)))
def test_no_answer_raises_or_takes_long(answer):
  found = sources.read(f"symbench:{FIXTURES}", 1, 0)
  start = time.process_time()
  for one in found:
    if not one.task.startswith("symbench/math_"):
      assert graded(one.task, one.reference, answer) is False, one.id
  assert time.process_time() - start < 3


def test_a_folder_gives_some_of_each_task():
  found = sources.read(f"symbench:{FIXTURES}", 1, 0)
  assert len(found) == len({one.task for one in found}) == 33
  joined = "gym:gcd+symbench:gridworld+gym:products(min_digits=1, max_digits=2)"
  assert sources.split(joined) == [
    "gym:gcd",
    "symbench:gridworld",
    "gym:products(min_digits=1, max_digits=2)",
  ]


@pytest.mark.parametrize(
  "stored, answer, correct",
  [
    ("3.5,1.0,12.0", "3.5, 1, 12", True),
    ("3.5,9.222222222222221,12.0", "3.5, 9.22, 12", True),
    ("3.5,9.222222222222221,12.0", "3.5, 9.3, 12", False),
    ("3.5,1.0,12.0", "3.5, 1, 12.01", False),
    ("3.5,1.0,12.0", "3.5, 1", False),
    ("5,3,F,A", '["5", "3", "F", "A"]', True),
    ("5,3,F,A", '["5", "3", "f", "A"]', False),
  ],
)
def test_lists(stored, answer, correct):
  task = reader.PREFIX + "pooling"
  assert graded(task, canonical({"answer": stored}), answer) is correct


@pytest.mark.parametrize(
  "stored, answer, correct",
  [
    ("3244047.0999999996", "3244047.1", True),
    ("3244047.0999999996", "3244050", False),
    ("100000.5", "100100", False),
    ("5", "$5", True),
    ("1.8333333333333333", "1.833", True),
    ("1.8333333333333333", "11/6", False),
    ("1.8333333333333333", "1.85", False),
    ("90.0", "90", True),
    ("90.0", "90.01", False),
    ("-171229311", "-171,229,311", True),
    ("2.0107e-06", "0.0000020107", True),
    ("5", "[5]", True),
    ("5", "1e9999999", False),
  ],
)
def test_numbers(stored, answer, correct):
  task = reader.PREFIX + "new_operator"
  assert graded(task, canonical({"answer": stored}), answer) is correct


def test_sources_name_their_tasks(tmp_path):
  made = sources.read("symbench:gridworld", 3, 5)
  assert len(made) == 3
  assert made == sources.read("symbench:gridworld", 4, 5)[:3]
  assert made != sources.read("symbench:gridworld", 3, 6)
  one = FIXTURES / "reversi_dataset.jsonl"
  assert len(sources.read(f"symbench:{one}", 1, 0)) == 1
  broken = tmp_path / "reversi_dataset.jsonl"
  broken.write_text('{"sample": 1}\n')
  with pytest.raises(ValueError, match="row 0.*expected a sample of reversi"):
    sources.read(f"symbench:{broken}", 1, 0)
  with pytest.raises(ValueError, match="expected one of"):
    sources.read("symbench:/nowhere.jsonl", 1, 0)
  with pytest.raises(ValueError, match="no grader; expected"):
    graded("symbench/chess", "{}", "1")


@pytest.mark.parametrize(
  "world, message",
  [
    (lambda: worlds.boxlift([9], [1, 2]), "lift the heaviest"),
    (lambda: worlds.boxnet({"0.5_0.5": ["box_red"]}), "a target for box_red"),
    (lambda: worlds.boxnet({"0.5_0.5": ["target_red"]}), "as many targets"),
    (
      lambda: worlds.blocksworld("stack1: A\nGoal State:\nstack1: B\n"),
      "the same blocks",
    ),
  ],
)
def test_worlds_without_an_answer_are_refused(world, message):
  with pytest.raises(ValueError, match=message):
    world()


def test_a_game_without_a_solution_is_left_out():
  assert worlds.game24([1, 1, 1, 1]) is None
