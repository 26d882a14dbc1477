"""CodeSteer's checker: it writes scripts that check an answer.

A try is a script: the checker is asked until a response has one, and the script
runs. A script that fails, or runs too long, is followed by another try. The
guidance model is told what the first script without errors printed, or else
what the last one printed with its errors.
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
  """Returns what the guidance model is told of the check of an answer.

  Args:
    phases: samples the checker's responses and runs its scripts.
    conversation: its answer is checked.
    tries: most scripts that run.
    generations: most responses of a try.
    first_phase: the number of the first phase; there are at most
      `tries * generations`.
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
  """Returns the result of the first response with a script, if any has one."""
  for generation in range(generations):
    response = await phases.ask(conversation, text, first_phase + generation)
    if response is not None:
      result = await phases.run(response.text)
      if result is not None:
        return result
  return None
