"""Grades answers about programs: deduction, abduction, induction (AZR).

| task | the answer is | correct if |
| --- | --- | --- |
| deduction | the output | its value has the reference output's type and value |
| abduction | the input | the program maps it to the reference output |
| induction | the program | it maps every input to its output |
| error deduction | an exception's name | it is the reference's name |

A reference output never enters a process that runs a program. Only text comes
back, and it is compared here. An answer that is no literal but an expression is
evaluated first, in a process without the program (`expressions.py`); its value
takes its place. So no text of a solver is evaluated beside a program, unless a
benchmark asks for arguments that are objects.

A deduction answer must write its value out. One that leaves the work to the
executor, such as `sum(i * i for i in range(100))`, is `COMPUTED`, which is not
correct, unless a benchmark or the published code's rules accept it.

An answer is right only if it is seen to be: a program that reaches a limit of
time on a solver's input, or a solver's program that does, gives `TIMEOUT`.
"""

from collections.abc import Hashable, Sequence
from concurrent.futures import Future

from azr_jax.executor import Executor, Job, Result, futures
from azr_jax.executor.child.canonical import Unserializable
from azr_jax.grading import expressions, literals, values
from azr_jax.grading.outcome import Outcome

MAX_ANSWER_CHARS = 64 * 1024


def is_gradable(answer: str) -> bool:
  """Returns whether an answer is not blank and not too long."""
  return 0 < len(answer) <= MAX_ANSWER_CHARS and not answer.isspace()


def is_computed(answer: str) -> bool:
  """Returns whether an output is an expression that computes its value."""
  try:
    literals.typed_key(answer)
  except literals.ParseError:
    return expressions.is_value(answer) and not expressions.is_written_out(
      answer
    )
  return False


def submit_deduction(
  executor: Executor,
  reference: str,
  answer: str,
  may_compute: bool = False,
) -> "Future[Outcome]":
  """Starts to grade an output, by the reference output's type and value.

  Args:
    executor: evaluates an answer that is no literal.
    reference: text of the value. If it is not a literal, no answer is correct.
    answer: text of a value, or an expression.
    may_compute: accept an expression that computes its value, as the published
      code and CRUXEval do. If False, an expression with the right value is
      `COMPUTED`, and any other is `INCORRECT`.

  Returns:
    The future of the outcome.
  """
  try:
    reference_key = literals.typed_key(reference)
  except literals.ParseError:
    return futures.done(Outcome.INCORRECT)
  if not is_gradable(answer):
    return futures.done(Outcome.INCORRECT)
  try:
    key = literals.typed_key(answer)
  except literals.ParseError:
    key = None
  if key is not None and (
    key == reference_key or not values.may_drop_items(key)
  ):
    return futures.done(Outcome.of(key == reference_key))
  if not expressions.is_value(answer):
    return futures.done(Outcome.INCORRECT)

  is_refused = not may_compute and is_computed(answer)
  # Nothing but a metric depends on the value of a refused answer.
  runs = 1 if is_refused else expressions.RUNS

  def grade(result: Result) -> Outcome:
    outcome = _outcome(result.outputs[0], reference_key, result)
    if not is_refused:
      return outcome
    return Outcome.COMPUTED if outcome else Outcome.INCORRECT

  return futures.then(expressions.submit_value(executor, answer, runs), grade)


def error_correct(reference: str, answer: str) -> bool:
  """Returns whether the answer names an exception; `:` and text may follow."""
  return is_gradable(answer) and answer.partition(":")[0].strip() == reference


def submit_abduction(
  executor: Executor,
  code: str,
  reference_output: str,
  answers: Sequence[str | None],
  objects: bool = False,
  forbidden: Sequence[str] = (),
) -> "Future[tuple[Outcome, ...]]":
  """Starts to grade several inputs of one program.

  Each distinct input is a job with its own process, so inputs cannot affect one
  another. Literal inputs that differ only in layout are one input.

  Args:
    executor: runs the program, and evaluates answers that are no literals.
    code: the program, which defines `f`.
    reference_output: the text of the value that an answer must lead to.
    answers: texts of a call's arguments, blank for a call without any; None: no
      answer.
    objects: whether arguments may be objects without a literal, such as a
      `lambda` or a `range`. These are evaluated in the program's process,
      without its names.
    forbidden: the rules of the program's validation (see `Job`), so that they
      do not tell grading from validation.

  Returns:
    The future of each answer's outcome, in order.
  """
  try:
    reference_key = literals.typed_key(reference_output)
  except literals.ParseError:
    return futures.done((Outcome.INCORRECT,) * len(answers))
  distinct = [answer for answer in dict.fromkeys(answers) if answer is not None]
  inputs = futures.gather(
    [_submit_input(executor, answer, objects) for answer in distinct]
  )

  def run(text: str) -> "Future[Outcome]":
    job = Job("abduction", code, (text,), forbidden=tuple(forbidden))
    return futures.then(
      executor.submit(job),
      lambda result: _outcome(result.outputs[0], reference_key, result),
    )

  def grade(
    inputs: "Sequence[str | Outcome]",
  ) -> "Future[tuple[Outcome, ...]]":
    graded = {
      text: run(text) if isinstance(text, str) else futures.done(text)
      for text in dict.fromkeys(inputs)
    }
    outcomes: dict[str | None, Future[Outcome]] = {
      answer: graded[text]
      for answer, text in zip(distinct, inputs, strict=True)
    }
    outcomes[None] = futures.done(Outcome.INCORRECT)
    return futures.gather([outcomes[answer] for answer in answers])

  return futures.then(inputs, grade)


def _submit_input(
  executor: Executor, answer: str, objects: bool
) -> "Future[str | Outcome]":
  """Starts to read an answer as an input of a program.

  Returns:
    The future of literal arguments, or of an expression that gives objects; if
    it is neither, of the answer's outcome.
  """
  if len(answer) > MAX_ANSWER_CHARS:
    return futures.done(Outcome.INCORRECT)
  if literals.are_literal_arguments(answer):
    return futures.done(literals.without_layout(answer))
  if not expressions.are_arguments(answer):
    return futures.done(Outcome.INCORRECT)

  def read(result: Result) -> str | Outcome:
    if objects and result.error == Unserializable.__name__:
      return answer
    value = result.outputs[0]
    if result.status == "ok" and value is not None:
      return value
    return Outcome.of(False, result)

  return futures.then(expressions.submit_arguments(executor, [answer]), read)


def submit_abduction_answer(
  executor: Executor,
  code: str,
  reference_output: str,
  answer: str | None,
  objects: bool = False,
) -> "Future[Outcome]":
  """Starts to grade one input of a program, as `submit_abduction`."""
  graded = submit_abduction(executor, code, reference_output, [answer], objects)
  return futures.then(graded, lambda outcomes: outcomes[0])


def submit_induction(
  executor: Executor,
  answer_code: str,
  inputs: Sequence[str],
  outputs: Sequence[str],
) -> "Future[Outcome]":
  """Starts to grade a program, which must map every input to its output.

  No call depends on another (`executor/README.md`). Without any inputs, an
  answer is wrong. If a limit ends it after a call that gave another value, it
  is wrong too.

  Args:
    executor: runs the answer.
    answer_code: the answer, which defines `f`.
    inputs: texts of a call's arguments.
    outputs: texts of the value that each call must return.

  Returns:
    The future of the answer's outcome.

  Raises:
    ValueError: the numbers of inputs and outputs differ.
  """
  if len(inputs) != len(outputs):
    raise ValueError(
      f"{len(inputs)} inputs and {len(outputs)} outputs; expected as many"
    )
  if not inputs or not is_gradable(answer_code):
    return futures.done(Outcome.INCORRECT)
  references = tuple(outputs)

  def grade(result: Result) -> Outcome:
    # A call that did not end has no value, but is no evidence either.
    ended = zip(references, result.outputs[: result.finished], strict=False)
    if any(
      output is None or not values.values_equal(reference, output)
      for reference, output in ended
    ):
      return Outcome.INCORRECT
    return Outcome.of(result.status == "ok", result)

  job = Job(id="induction", code=answer_code, inputs=tuple(inputs))
  return futures.then(executor.submit(job), grade)


def _outcome(
  output: str | None, reference_key: Hashable, *results: Result
) -> Outcome:
  correct = output is not None and _has_key(output, reference_key)
  return Outcome.of(correct, *results)


def _has_key(text: str, key: Hashable) -> bool:
  try:
    return literals.typed_key(text) == key
  except literals.ParseError:
    return False
