"""CodeSteer's checker, which writes scripts that check an answer.

In each try, the checker responds until a response contains a script, and the
script runs. If it fails or times out, another try follows. The guidance model
sees the output of the first script without errors, or else the output and
errors of the last script.
"""

from azr_jax.executor.scripts import ScriptResult
from azr_jax.systems.code_interpreter.phases import (
  TOO_LONG,
  Phases,
  SteeredConversation,
  printed,
)

_ASK = (
  "Write one Python script that checks the answer below, by other means than "
  "those it was found by if there are any, and prints whether it is right and "
  "why. Open it with ```python and close it with ```.\n\n"
  "Question: {question}\n\nAnswer: {answer}\n\nReply:\n"
)
NO_SCRIPT = "(the checker wrote no script)"
NOT_WORKING = "(the check does not work for this answer)"


async def check(
  phases: Phases,
  conversation: SteeredConversation,
  tries: int,
  generations: int,
  first_phase: int,
) -> str:
  """Checks an answer and returns the report for the guidance model.

  Args:
    phases: samples the checker's responses and runs its scripts.
    conversation: the conversation whose answer to check.
    tries: the maximum number of scripts to run.
    generations: the maximum number of responses per try.
    first_phase: the index of the first phase. The check uses at most
      `tries * generations` phases.
  """
  text = _ASK.format(
    question=conversation.question, answer=phases.end_of(conversation.answer)
  )
  result: ScriptResult | None = None
  for number in range(tries):
    result = await _run_script(
      phases,
      conversation,
      text,
      generations,
      first_phase + number * generations,
    )
    if result is None:
      return NO_SCRIPT
    if result.status == "ok" and not str(result.errors):
      break
  assert result is not None  # There is at least one try.
  told = phases.shown(printed(result))
  return NOT_WORKING if told == TOO_LONG else told


async def _run_script(
  phases: Phases,
  conversation: SteeredConversation,
  text: str,
  generations: int,
  first_phase: int,
) -> ScriptResult | None:
  """Samples until a response has a script; returns its result, or None."""
  for generation in range(generations):
    response = await phases.ask(conversation, text, first_phase + generation)
    if response is not None:
      result = await phases.run(response.text)
      if result is not None:
        return result
  return None
