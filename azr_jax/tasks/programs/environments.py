"""Environments as tasks: programs that make, solve and score instances.

A proposed program defines `generate(seed)`, `solve(instance)` and
`score(instance, answer)`; a message tells the solver what to do. The solver
sees the message and an instance, never the program. Each solution gets a new
instance.

Validation runs the three functions in processes of their own, so that they
share nothing but text, and twice each, with other hash seeds and clocks. An
environment is rejected with one of these reasons:

| reason | the proposal |
| --- | --- |
| `error`, `timeout`, `blocked`, `nondeterministic` | raises, takes too long,
  uses a forbidden module, or changes between runs |
| `no_output` | has an instance or answer that is None |
| `oversize` | has a text that is too long for a prompt |
| `instance` | has an instance or answer that has no literal |
| `constant` | repeats more than a quarter of its instances, or has the same
  answer for half of them |
| `score` | returns a score that is not a number from 0 to 1 |
| `oracle` | does not give full marks to an answer of its own `solve` |
| `lenient` | gives full marks to half of the answers of other instances, or
  for half of the instances to a guess such as None, 0, [] or the instance |

EvoEnv also asks the model to review its environment. Here nobody checks that a
message describes its task. If it does not, the task can only be guessed, so
solve rates no higher than guessing's count as 0 (`submit_guesses`).

Paper: EvoEnv (arXiv 2605.14392). It leaves the numbers above open.
"""

import ast
import collections
import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import TypeVar

from azr_jax.executor import Executor, Job, Result, futures
from azr_jax.grading import literals
from azr_jax.grading import values as values_lib
from azr_jax.grading.outcome import Outcome
from azr_jax.grading.programs import MAX_ANSWER_CHARS
from azr_jax.tasks.programs.task import (
  FORBIDDEN_MODULES,
  EnvironmentTask,
  Instance,
)
from azr_jax.tasks.programs.validation import (
  INDEPENDENT_RUNS,
  MAX_CODE_CHARS,
  MAX_VALUE_CHARS,
  Rejection,
  ValidationFuture,
)
from azr_jax.text import excerpts

GENERATE, SOLVE, SCORE = FUNCTIONS = ("generate", "solve", "score")
# Instances are random, unlike the outputs of other programs.
FORBIDDEN = tuple(name for name in FORBIDDEN_MODULES if name != "random")
# Largest share of instances that repeat another.
_MAX_REPEATED = 0.25
# Distinct instances that say what an environment does, and that fixed guesses
# are tried on.
_COMPARED = 6
# An answer that is right for this share of the instances can be guessed.
_GUESSABLE = 0.5
_GUESSES = (
  *("None", "True", "0", "1", "-1", "1000000"),
  *("''", "'no such answer'", "[]", "[0]", "()", "{}"),
)
# A job has at most this many calls, because they share its time.
CALLS_PER_JOB = 15
# Other instances that each answer of the rollouts is tried on.
_CROSSED = 3
# Seeds are below this number.
MAX_SEED = 1 << 31

_In = TypeVar("_In")
_Out = TypeVar("_Out")
_Texts = tuple[str, ...]
_Outputs = tuple[str | None, ...]
_Scores = tuple[float | None, ...]


def submit(
  executor: Executor, code: str, message: str, count: int, seed: int
) -> ValidationFuture:
  """Starts validating a proposed environment.

  Six instances have the same seeds in all proposals, to detect duplicates. The
  others are new for each `seed`.

  Args:
    executor: the executor that runs the program.
    code: a program that defines the three functions.
    message: the text for the solver.
    count: the number of new instances.
    seed: decides which instances are drawn.

  Returns:
    A future of `count` distinct new instances, or of a `Rejection`.
  """
  if len(code) > MAX_CODE_CHARS or len(message) > MAX_VALUE_CHARS:
    return futures.done(Rejection("oversize"))
  known_seeds = _seeds("", _COMPARED)
  new_seeds = _seeds(f"{seed} ", count)

  def solved(values: Sequence[str]) -> ValidationFuture:
    known = _distinct(values[: len(known_seeds)], _COMPARED)
    new = _distinct(values[len(known_seeds) :], count)
    if len(known) < _COMPARED or len(new) < count:
      return futures.done(Rejection("constant"))
    tried = _distinct(known + new)
    answers = _run(executor, code, SOLVE, tried, _texts)
    return _unless_rejected(answers, lambda a: scored(tried, a, new))

  def scored(
    values: Sequence[str], answers: Sequence[str], new: Sequence[str]
  ) -> ValidationFuture:
    if _most_common(answers) >= _GUESSABLE * len(answers):
      return futures.done(Rejection("constant"))
    verdict = _submit_scores(executor, code, values, answers)
    environment = EnvironmentTask(code, message, _behavior(values, answers))
    answer_of = dict(zip(values, answers, strict=True))
    instances = tuple(
      Instance(environment, value, answer_of[value]) for value in new
    )
    return futures.then(verdict, lambda found: found or instances)

  seeds = known_seeds + new_seeds
  values = _run(executor, code, GENERATE, seeds, _texts)
  return _unless_rejected(values, solved)


def submit_guesses(
  executor: Executor,
  instances: Sequence[Instance],
  answers: Sequence[str | None],
) -> Future[float]:
  """Starts measuring the solve rate that guessing reaches.

  It is the larger of two rates. One is that of always giving the most common
  answer. The other tries each answer on the next three instances, or on all
  others if there are fewer. Missing answers count as wrong.

  Args:
    executor: the executor that runs `score`.
    instances: two or more instances of an environment.
    answers: the texts of answers to the first instances; None: no answer.

  Returns:
    A future of the rate; of 1 if a score takes too long.
  """
  most = _most_common([one.answer for one in instances])
  rate = (most - 1) / (len(instances) - 1)
  crossed = min(_CROSSED, len(instances) - 1)
  calls = [
    f"{instances[(index + step) % len(instances)].value}, {written}"
    for index, written in enumerate(map(literal_answer, answers))
    for step in range(1, crossed + 1)
    if written is not None
  ]
  if not calls:
    return futures.done(rate)

  def read(scores: _Scores | Rejection) -> float:
    if isinstance(scores, Rejection):  # A score takes too long.
      return 1.0
    right = sum(score == 1 for score in scores)
    return max(rate, right / (crossed * len(answers)))

  scores = _run(
    *(executor, instances[0].code, SCORE, calls, _scores),
    runs=1,
    may_raise=True,
  )
  return futures.then(scores, read)


def submit_instance(
  executor: Executor, environment: EnvironmentTask, seed: int
) -> "Future[Instance | None]":
  """Starts drawing an instance; None if the program fails for this seed.

  Args:
    executor: the executor that runs the program.
    environment: a valid environment.
    seed: the argument of `generate`.
  """
  code = environment.code

  def solve(values: Sequence[str]) -> "Future[Instance | Rejection]":
    answers = _run(executor, code, SOLVE, values, _texts, runs=1)
    return _unless_rejected(
      answers,
      lambda found: futures.done(Instance(environment, values[0], found[0])),
    )

  values = _run(executor, code, GENERATE, [str(seed)], _texts, runs=1)
  return futures.then(
    _unless_rejected(values, solve),
    lambda found: None if isinstance(found, Rejection) else found,
  )


def submit_grading(
  executor: Executor, instance: Instance, answer: str | None
) -> Future[Outcome]:
  """Starts scoring an answer; it is correct if it gets full marks.

  Args:
    executor: the executor that runs `score`.
    instance: the instance that the answer solves.
    answer: the text of a literal; None if there is no answer. Expressions that
      compute an answer are incorrect.
  """
  written = literal_answer(answer)
  if written is None:
    return futures.done(Outcome.INCORRECT)
  job = _job(instance.code, SCORE, [f"{instance.value}, {written}"])
  return futures.then(
    executor.submit(job),
    lambda result: Outcome.of(_score(result.outputs[0]) == 1, result),
  )


def literal_answer(answer: str | None) -> str | None:
  """Returns an answer as one argument of a call; None if it is no literal."""
  if answer is None or len(answer) > MAX_ANSWER_CHARS:
    return None
  try:
    literals.typed_key(answer)
    tree = literals.guarded_parse(answer.strip(), "eval")
    assert isinstance(tree, ast.Expression)
    return ast.unparse(tree.body)
  except (ValueError, RecursionError):  # Long numbers, and deep nesting.
    return None


def _submit_scores(
  executor: Executor, code: str, values: Sequence[str], answers: Sequence[str]
) -> "Future[Rejection | None]":
  """Starts scoring right and wrong answers; None if the scores make sense."""
  right = [f"{v}, {a}" for v, a in zip(values, answers, strict=True)]
  swapped = [
    f"{v}, {other}" for v, other in zip(values, _others(answers), strict=True)
  ]
  tried = values[:_COMPARED]
  guessed = [f"{v}, {one}" for one in _GUESSES for v in tried]
  guessed += [f"{v}, {v}" for v in tried]

  wrong = [*swapped, *guessed]

  def read(
    scores: "tuple[_Scores | Rejection, ...]",
  ) -> Rejection | None:
    of_right, of_wrong = scores
    for calls, found in ((right, of_right), (wrong, of_wrong)):
      if isinstance(found, Rejection):
        return found
      if None in found:
        return Rejection("score", _said(SCORE, calls[found.index(None)]))
    assert not isinstance(of_right, Rejection)
    assert not isinstance(of_wrong, Rejection)
    for call, score in zip(right, of_right, strict=True):
      if score != 1:
        return Rejection("oracle", _said(SCORE, call, f"is {score:g}"))
    starts = (0, *range(len(swapped), len(wrong), _COMPARED))
    for start, end in zip(starts, (*starts[1:], len(wrong)), strict=True):
      if _is_guessed(of_wrong[start:end]):
        call = wrong[start + of_wrong[start:end].index(1.0)]
        return Rejection("lenient", _said(SCORE, call, "is 1"))
    return None

  return futures.then(
    futures.gather(
      [
        _run(executor, code, SCORE, right, _scores),
        # A score may raise for an answer of another type.
        _run(executor, code, SCORE, wrong, _scores, may_raise=True),
      ]
    ),
    read,
  )


def _said(entry: str, call: str, verb: str = "is not from 0 to 1") -> str:
  """Returns a sentence about a call."""
  return f"{entry}({excerpts.quoted(call)}) {verb}."


def _is_guessed(scores: _Scores) -> bool:
  """Returns whether a way to guess gets full marks too often."""
  return sum(score == 1 for score in scores) >= _GUESSABLE * len(scores)


def _others(answers: Sequence[str]) -> list[str]:
  """Returns, for each answer, the next one that differs from it."""
  count = len(answers)
  return [
    next(
      answers[(start + step) % count]
      for step in range(1, count)
      if answers[(start + step) % count] != answers[start]
    )
    for start in range(count)
  ]


def _run(
  executor: Executor,
  code: str,
  entry: str,
  arguments: Sequence[str],
  read: Callable[[_Outputs], _Out | Rejection],
  runs: int = INDEPENDENT_RUNS,
  may_raise: bool = False,
) -> "Future[_Out | Rejection]":
  """Starts calling one of the functions, and reads the outputs.

  The first job that fails is the last one.

  Args:
    executor: the executor that runs the function.
    code: the program.
    entry: one of `FUNCTIONS`.
    arguments: the arguments of each call.
    read: reads the outputs of all calls.
    runs: number of independent runs.
    may_raise: whether outputs are read although a call raised.
  """

  def after(outputs: _Outputs) -> "Future[_Out | Rejection]":
    part = arguments[len(outputs) :][:CALLS_PER_JOB]
    if not part:
      return futures.done(read(outputs))

    def judged(result: Result) -> "Future[_Out | Rejection]":
      if result.status == "ok" or (may_raise and result.status == "error"):
        return after(outputs + result.outputs)
      return futures.done(Rejection.of(part, result, entry))

    return futures.then(executor.submit(_job(code, entry, part, runs)), judged)

  return after(())


def full_job() -> Job:
  """Returns a job of validation that has as many calls as one may have."""
  return _job("", SCORE, CALLS_PER_JOB * [""], INDEPENDENT_RUNS)


def _job(code: str, entry: str, arguments: Sequence[str], runs: int = 1) -> Job:
  return Job(
    entry,
    code,
    tuple(arguments),
    entry=entry,
    runs=runs,
    forbidden=FORBIDDEN,
    validation=runs > 1,
  )


def _unless_rejected(
  source: "Future[_In | Rejection]",
  function: "Callable[[_In], Future[_Out | Rejection]]",
) -> "Future[_Out | Rejection]":
  """Returns the future of `function`, or that of a rejection."""

  def apply(found: _In | Rejection) -> "Future[_Out | Rejection]":
    if isinstance(found, Rejection):
      return futures.done(found)
    return function(found)

  return futures.then(source, apply)


def _texts(outputs: _Outputs) -> _Texts | Rejection:
  """Returns the values of all calls, which must be literals for a prompt."""
  texts = tuple(map(str, outputs))
  if "None" in texts:
    return Rejection("no_output")
  if max(map(len, texts)) > MAX_VALUE_CHARS:
    return Rejection("oversize")
  if not all(map(literals.are_literal_arguments, texts)):
    return Rejection("instance")
  return texts


def _scores(outputs: _Outputs) -> _Scores:
  """Returns the scores of all calls; 0 for a call that raised."""
  return tuple(0.0 if one is None else _score(one) for one in outputs)


def _score(text: str | None) -> float | None:
  """Returns a score; None if it is no number from 0 to 1."""
  try:
    value = values_lib.plain_value(literals.typed_key(text or ""))
  except literals.ParseError:
    return None
  if isinstance(value, bool | int | float) and 0 <= value <= 1:
    return float(value)
  return None


def _seeds(prefix: str, count: int) -> list[str]:
  """Returns seeds for `count` distinct instances, with spares for repeats.

  They are large and have no pattern.
  """
  return [
    str(int(_digest(f"{prefix}{number}"), 16) % MAX_SEED)
    for number in range(math.ceil(count / (1 - _MAX_REPEATED)))
  ]


def _distinct(values: Iterable[str], count: int | None = None) -> _Texts:
  """Returns the first `count` distinct values."""
  return tuple(dict.fromkeys(values))[:count]


def _most_common(answers: Sequence[str]) -> int:
  """Returns how often the most common answer occurs."""
  return max(collections.Counter(answers).values())


def _behavior(values: Sequence[str], answers: Sequence[str]) -> str:
  return _digest(*values[:_COMPARED], *answers[:_COMPARED])


def _digest(*texts: str) -> str:
  joined = "\0".join(texts).encode("utf-8", "surrogatepass")
  return hashlib.blake2b(joined, digest_size=16).hexdigest()
