"""Grades answers about programs: deduction, abduction, induction (AZR).

| task | answer | correct if |
| --- | --- | --- |
| deduction | an output | it has the type and value of the reference output |
| abduction | an input | the program maps it to the reference output |
| induction | a program | it maps every input to its output |
| error deduction | an exception's name | it equals the reference name |

A reference output never enters a process that runs a program. Only text comes
back, and this process compares it. An answer that is an expression rather than
a literal is first evaluated in a process without the program
(`expressions.py`), and its value replaces it. So a solver's text is never
evaluated next to a program, unless a benchmark allows objects as arguments.

A deduction answer must spell its value out. One that leaves the work to the
executor, such as `sum(i * i for i in range(100))`, is `COMPUTED`. That counts
as incorrect unless a benchmark or the published code's rules accept it.

An answer must be shown to be correct. If the program times out on a solver's
input, or a solver's program times out, the outcome is `TIMEOUT`.
"""

from collections.abc import Hashable, Sequence
from concurrent.futures import Future

from azr_jax.executor import Executor, Job, Result, futures
from azr_jax.executor.child.canonical import Unserializable
from azr_jax.grading import expressions, literals, values
from azr_jax.grading.outcome import Explained, Outcome, of_answer
from azr_jax.text import excerpts

MAX_ANSWER_CHARS = 64 * 1024


def is_gradable(answer: str) -> bool:
  """Returns whether an answer is neither blank nor too long."""
  return 0 < len(answer) <= MAX_ANSWER_CHARS and not answer.isspace()


def _of_call(text: str, reference: str, index: int, result: Result) -> str:
  """Returns a sentence about a call whose value is not the reference.

  It is "" if the call's process was lost.

  Args:
    text: the arguments of the call.
    reference: the value that it must return.
    index: the index of the call in its job: the first that is wrong.
    result: the result of the job.
  """
  output, is_ended = result.outputs[index], index < result.finished
  got = "fails"
  if output is not None:
    got = f"returns {excerpts.quoted(output)}"
  elif result.status == "error":
    got = f"fails with {result.error}"
  elif not is_ended and result.status == "timeout":
    got = "does not end in time"
  if result.is_lost and not is_ended:
    return ""
  call, wanted = excerpts.quoted(text), excerpts.quoted(reference)
  return f"f({call}) {got}, but should return {wanted}."


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
  """Starts grading an output by the type and value of the reference output.

  Args:
    executor: evaluates an answer that is not a literal.
    reference: the reference output. If it is not a literal, no answer is
      correct.
    answer: a literal or an expression.
    may_compute: accept an expression that computes its value, as the published
      code and CRUXEval do. If False, an expression with the right value is
      `COMPUTED`, and any other is `INCORRECT`.
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
  # The value of a refused answer only feeds a metric, so one run is enough.
  runs = 1 if is_refused else expressions.RUNS

  def grade(result: Result) -> Outcome:
    outcome = _outcome(result.outputs[0], reference_key, result)
    if not is_refused:
      return outcome
    return Outcome.COMPUTED if outcome else Outcome.INCORRECT

  return futures.then(expressions.submit_value(executor, answer, runs), grade)


def error_correct(reference: str, answer: str) -> bool:
  """Returns whether an answer is the exception's name, maybe with `: text`."""
  return is_gradable(answer) and answer.partition(":")[0].strip() == reference


def submit_abduction(
  executor: Executor,
  code: str,
  reference_output: str,
  answers: Sequence[str | None],
  objects: bool = False,
  forbidden: Sequence[str] = (),
) -> "Future[tuple[Outcome, ...]]":
  """Starts grading several inputs of one program.

  Each distinct input runs as a job in its own process, so inputs cannot affect
  one another. Literal inputs that differ only in layout count as one input.

  Args:
    executor: runs the program and evaluates answers that are not literals.
    code: the program, which defines `f`.
    reference_output: the value that the program must return.
    answers: the argument text of each call, blank for a call without arguments.
      None if there is no answer.
    objects: whether arguments may be objects without a literal, such as a
      `lambda` or a `range`. These are evaluated in the program's process,
      without access to its names.
    forbidden: the rules that applied to the program's validation (see `Job`).
      With the same rules, the program cannot tell grading from validation.

  Returns:
    A future of the outcomes, in the order of the answers.
  """
  explained = explain_abduction(
    executor, code, reference_output, answers, objects, forbidden
  )
  return futures.then(
    explained, lambda found: tuple(one.outcome for one in found)
  )


def explain_abduction(
  executor: Executor,
  code: str,
  reference_output: str,
  answers: Sequence[str | None],
  objects: bool = False,
  forbidden: Sequence[str] = (),
) -> "Future[tuple[Explained, ...]]":
  """Starts grading like `submit_abduction`, with what each input leads to."""
  try:
    reference_key = literals.typed_key(reference_output)
  except literals.ParseError:
    return futures.done((Explained(Outcome.INCORRECT),) * len(answers))
  distinct = [answer for answer in dict.fromkeys(answers) if answer is not None]
  inputs = futures.gather(
    [_submit_input(executor, answer, objects) for answer in distinct]
  )

  def run(text: str) -> "Future[Explained]":
    job = Job("abduction", code, (text,), forbidden=tuple(forbidden))

    def explain(result: Result) -> Explained:
      outcome = _outcome(result.outputs[0], reference_key, result)
      if outcome:
        return Explained(outcome)
      said = _of_call(text, reference_output, 0, result)
      return Explained(outcome, said)

    return futures.then(executor.submit(job), explain)

  def grade(
    inputs: "Sequence[str | Outcome]",
  ) -> "Future[tuple[Explained, ...]]":
    graded = {
      text: run(text) for text in dict.fromkeys(inputs) if isinstance(text, str)
    }
    explained: dict[str | None, Future[Explained]] = {
      answer: graded[text]
      if isinstance(text, str)
      else futures.done(of_answer(text, answer))
      for answer, text in zip(distinct, inputs, strict=True)
    }
    explained[None] = futures.done(of_answer(Outcome.INCORRECT, None))
    return futures.gather([explained[answer] for answer in answers])

  return futures.then(inputs, grade)


def _submit_input(
  executor: Executor, answer: str, objects: bool
) -> "Future[str | Outcome]":
  """Starts reading an answer as the input of a program.

  Returns:
    A future of literal arguments, or of an expression that evaluates to
    objects. If the answer is neither, the future holds its outcome.
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
  """Starts grading one input of a program; see `submit_abduction`."""
  graded = submit_abduction(executor, code, reference_output, [answer], objects)
  return futures.then(graded, lambda outcomes: outcomes[0])


def submit_induction(
  executor: Executor,
  answer_code: str,
  inputs: Sequence[str],
  outputs: Sequence[str],
) -> "Future[Outcome]":
  """Starts grading a program, which must map every input to its output.

  The calls are independent (`executor/README.md`). Without inputs, every
  program is incorrect. A program that returns a wrong value and hits a limit
  later is also incorrect.

  Args:
    executor: runs the program.
    answer_code: the program, which defines `f`.
    inputs: the argument text of each call.
    outputs: the text of the value that each call must return.

  Raises:
    ValueError: the numbers of inputs and outputs differ.
  """
  explained = explain_induction(executor, answer_code, inputs, outputs)
  return futures.then(explained, lambda found: found.outcome)


def explain_induction(
  executor: Executor,
  answer_code: str,
  inputs: Sequence[str],
  outputs: Sequence[str],
) -> "Future[Explained]":
  """Starts grading like `submit_induction`, with the first failing case."""
  if len(inputs) != len(outputs):
    raise ValueError(
      f"{len(inputs)} inputs and {len(outputs)} outputs; expected one output "
      "per input"
    )
  if not inputs or not is_gradable(answer_code):
    return futures.done(Explained(Outcome.INCORRECT))
  texts, references = tuple(inputs), tuple(outputs)

  def grade(result: Result) -> Explained:
    # Calls that did not finish have no value to compare, so they are left out.
    for index, output in enumerate(result.outputs[: result.finished]):
      if output is None or not values.values_equal(references[index], output):
        return explained(Outcome.INCORRECT, index, result)
    outcome = Outcome.of(result.status == "ok", result)
    is_cut = not outcome and result.finished < len(texts)
    return (
      explained(outcome, result.finished, result)
      if is_cut
      else Explained(outcome)
    )

  def explained(outcome: Outcome, index: int, result: Result) -> Explained:
    said = _of_call(texts[index], references[index], index, result)
    return Explained(outcome, said)

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
