"""Grading answers about programs: deduction, abduction, induction.

| task | the answer is | correct when |
| --- | --- | --- |
| deduction | the output | it is the gold's typed value |
| abduction | the input | the program maps it to the gold's typed value |
| induction | the program | it maps every input to its output |
| error deduction | an exception's name | it is the gold's |

The gold never enters a process that runs a program. Only text comes back, and
it is compared here. An abduction answer must be literal arguments of one
call, so it carries no code of its own.
"""

from collections.abc import Hashable, Sequence
from concurrent.futures import Future

from azr_jax.executor import Executor, Job, Result, futures
from azr_jax.grading import literals, values

MAX_ANSWER_CHARS = 64 * 1024
# Verdicts on a whole child, which may be the doing of one of its inputs.
_CHILD_LOST = (
  "NoReport",
  "MalformedReport",
  "OutputTooLarge",
  "WorkerDied",
)


def is_gradable(answer: str) -> bool:
  """Whether there is an answer, of a size to look at."""
  return 0 < len(answer) <= MAX_ANSWER_CHARS and not answer.isspace()


def deduction_correct(gold: str, answer: str) -> bool:
  """Whether the answer is the gold output's typed value."""
  return is_gradable(answer) and values.values_equal(gold, answer)


def error_correct(gold: str, answer: str) -> bool:
  """Whether the answer names the gold exception; a message may follow `:`."""
  return is_gradable(answer) and answer.partition(":")[0].strip() == gold


def submit_abduction(
  executor: Executor, code: str, gold_output: str, answers: Sequence[str]
) -> "Future[tuple[bool, ...]]":
  """Grades several inputs of one program; verdicts in order.

  Distinct answers share one child. If one of them ends it, by running out of
  time, crashing or saying too much, the others are tried alone, so that a bad
  answer fails only itself.
  """
  try:
    gold = literals.typed_key(gold_output)
  except literals.ParseError:
    return futures.done((False,) * len(answers))
  asked = [
    answer
    for answer in dict.fromkeys(answers)
    if is_gradable(answer) and literals.are_literal_arguments(answer)
  ]
  if not asked:
    return futures.done((False,) * len(answers))

  def run(inputs: Sequence[str]) -> "Future[Result]":
    return executor.submit(Job(id="abduction", code=code, inputs=tuple(inputs)))

  def judge(result: Result) -> "dict[str, bool] | Future[dict[str, bool]]":
    known = _verdicts(asked, result.outputs, gold)
    left = _not_tried(asked, result)
    if not left or len(asked) == 1:
      return known
    alone = futures.gather([run([answer]) for answer in left])
    return futures.then(
      alone,
      lambda results: (
        known | _verdicts(left, [r.outputs[0] for r in results], gold)
      ),
    )

  return futures.then(
    futures.then(run(asked), judge),
    lambda correct: tuple(correct.get(answer, False) for answer in answers),
  )


def submit_abduction_answer(
  executor: Executor, code: str, gold_output: str, answer: str
) -> "Future[bool]":
  """Grades one input of a program."""
  verdicts = submit_abduction(executor, code, gold_output, [answer])
  return futures.then(verdicts, lambda correct: correct[0])


def submit_induction(
  executor: Executor,
  answer_code: str,
  inputs: Sequence[str],
  outputs: Sequence[str],
) -> "Future[bool]":
  """Grades a program: every input must give its output.

  No cases at all is wrong: nothing was shown.
  """
  if len(inputs) != len(outputs):
    raise ValueError(
      f"{len(inputs)} inputs and {len(outputs)} outputs; expected as many"
    )
  if not inputs or not is_gradable(answer_code):
    return futures.done(False)
  golds = tuple(outputs)

  def judge(result: Result) -> bool:
    return result.status == "ok" and all(
      output is not None and values.values_equal(gold, output)
      for gold, output in zip(golds, result.outputs, strict=True)
    )

  job = Job(id="induction", code=answer_code, inputs=tuple(inputs))
  return futures.then(executor.submit(job), judge)


def _not_tried(answers: Sequence[str], result: Result) -> Sequence[str]:
  """Returns the answers of which a child's end says nothing."""
  error = result.error or ""
  if result.status == "timeout":
    return answers[result.finished + 1 :]
  lost = error in _CHILD_LOST or error.startswith("Signal")
  return answers if result.status == "error" and lost else ()


def _verdicts(
  answers: Sequence[str], outputs: Sequence[str | None], gold: Hashable
) -> dict[str, bool]:
  return {
    answer: output is not None and _has_key(output, gold)
    for answer, output in zip(answers, outputs, strict=True)
  }


def _has_key(text: str, key: Hashable) -> bool:
  try:
    return literals.typed_key(text) == key
  except literals.ParseError:
    return False
