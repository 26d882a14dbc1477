"""Property: the text that a task was made from is a correct answer to it.

Generated arguments (`generated_values.py`) are validated as proposals. Answers
to the resulting tasks are graded as in training.
"""

import cmath
import collections
import decimal
import fractions
import functools
import itertools
import math
import string

import pytest

from azr_jax.executor import futures
from azr_jax.executor.child import canonical
from azr_jax.tasks.programs import prompts, solving, validation
from azr_jax.tasks.programs.task import (
  ABDUCTION,
  DEDUCTION,
  ERROR_DEDUCTION,
  INDUCTION,
  Triplet,
)
from azr_jax.tasks.programs.validation import Rejection
from tests.tasks.programs.generated_values import Texts

BATCH = 250
FIRST = "def f(*values, **named):\n  return [*values, *named.values(), 0][0]"
PROGRAMS = (
  FIRST,
  "def f(*values, **named):\n  return [values, named]",
  "def f(*values, **named):\n  return len(values), sorted(named)",
  "float = set = list = math = None\ndef f(*a, **k):\n  return a, k",
  "def f(*a, **k):\n  def g(x):\n    return x, [*map(type(x), [])]\n"
  "  return [[v, k] for v in a]",
  "def f(*a, **k):\n  a[0].append(1)\n  return a",
  "def f(a, b=None):\n  return a == b, a",
)
RAISES = "def f(*values, **named):\n  return values[0] + named['x'] / 0"
# Acceptable reasons to reject a generated text.
REASONS = {"input", "error", "nondeterministic", "oversize", "no_output"}
NAMES = {
  "cmath": cmath,
  "collections": collections,
  "fractions": fractions,
  "functools": functools,
  "itertools": itertools,
  "math": math,
  "string": string,
  "Counter": collections.Counter,
  "Decimal": decimal.Decimal,
  "deque": collections.deque,
  "Fraction": fractions.Fraction,
  "OrderedDict": collections.OrderedDict,
}


def arguments(text):
  """Returns the canonical text of the arguments, evaluated by Python."""
  collect = NAMES | {"f": lambda *values, **named: [values, named]}
  return canonical.canonical(eval(f"f({text})", collect))


def propose(executor, kind, text, other):
  """Starts validating a generated proposal of one of four kinds."""
  if kind == INDUCTION:
    code = PROGRAMS[1]
    return validation.submit_induction_task(executor, code, (text, other), "m")
  if kind == ERROR_DEDUCTION:
    return validation.submit_error_triplet(executor, RAISES, text)
  code = FIRST if kind == DEDUCTION else PROGRAMS[hash(len(text)) % 7]
  return validation.submit_triplet(executor, code, text)


def answers(kind, task, text):
  """Returns correct answers, followed by a wrong one."""
  if kind == INDUCTION:
    return "python", [task.code, task.code + "  # again", "def f(*a): return 7"]
  if kind == ERROR_DEDUCTION:
    return "output", [task.output, task.output + ": why", "Exception"]
  if kind == ABDUCTION:
    return "input", [text, task.input, "lambda: 1"]
  return "output", [task.output, f"( {task.output} )", f"[{task.output}]"]


def check(executor, count, seed):
  """Checks `count` tasks and counts the rejected proposals by reason.

  A rejected proposal is replaced by another.
  """
  texts = Texts(seed)
  refused = collections.Counter()
  kinds = itertools.cycle((ABDUCTION, ABDUCTION, DEDUCTION, INDUCTION))
  valid = 0
  while valid < count:
    drawn = [
      (next(kinds), texts.arguments(), texts.arguments())
      for _ in range(min(BATCH, count))
    ]
    drawn += [
      (ERROR_DEDUCTION, text, "") for _, text, _ in drawn[: BATCH // 10]
    ]
    tasks = futures.gather([propose(executor, *row) for row in drawn])
    graded = []
    for (kind, text, _), task in zip(drawn, tasks.result(600), strict=True):
      if isinstance(task, Rejection):
        assert task.reason in REASONS, (kind, text, task)
        refused[task.reason] += 1
        continue
      if isinstance(task, Triplet):
        assert arguments(task.input) == arguments(text), (text, task)
      label, given = answers(kind, task, text)
      responses = [
        prompts.response("so", prompts.fence(label, answer)) for answer in given
      ]
      graded.append(
        (
          kind,
          text,
          task,
          solving.submit_grading(executor, kind, task, responses),
        )
      )
    for kind, text, task, grades in graded:
      correct = tuple(map(bool, grades.result(600)))
      assert correct == (True, True, False), (kind, text, task)
    valid += len(graded)
  return refused


def test_the_text_that_made_a_task_is_a_right_answer(executor):
  refused = check(executor, 100, seed=0)
  assert set(refused) >= {"input", "nondeterministic"}
  assert sum(refused.values()) < 100


@pytest.mark.slow
def test_the_text_that_made_a_task_is_a_right_answer_10000(executor):
  check(executor, 10_000, seed=1)
