"""CodeSteer's checker: it writes scripts that check an answer.

A try is a script: the checker is asked until a response has one, and the script
runs. A script that fails, or runs too long, is followed by another try. The
steerer is told what the first script without errors printed, or else what the
last one printed with its errors.
"""

from azr_jax.executor.scripts import ScriptResult
from azr_jax.rollout import code_blocks
from azr_jax.rollout.environment import SequenceId
from azr_jax.systems.code_interpreter.phases import (
  TOO_LONG,
  Conversation,
  Conversations,
  Phases,
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
  conversations: Conversations,
  tries: int,
  generations: int,
  first_phase: int,
) -> None:
  """Sets what the steerer is told of the check of each answer.

  Args:
    phases: samples the checker's responses and runs its scripts.
    conversations: the answers to check.
    tries: most scripts of an answer that run.
    generations: most responses of a try.
    first_phase: the number of the first phase; there are at most
      `tries * generations`.
  """
  texts = {
    name: _ASK.format(
      question=conversation.question, answer=phases.end_of(conversation.answer)
    )
    for name, conversation in conversations.items()
  }
  failed: dict[SequenceId, ScriptResult] = {}
  waiting = list(texts)
  for number in range(tries):
    written = await _write_scripts(
      phases,
      conversations,
      {name: texts[name] for name in waiting},
      generations,
      first_phase + number * generations,
    )
    for name in waiting:
      if name not in written:
        conversations[name].check = NO_SCRIPT
        failed.pop(name, None)
    results = await phases.run(written)
    waiting = []
    for name, result in results.items():
      if result.status == "ok" and not str(result.errors):
        _tell(phases, conversations[name], result)
        failed.pop(name, None)
      else:
        failed[name] = result
        waiting.append(name)
    if not waiting:
      break
  for name, result in failed.items():
    _tell(phases, conversations[name], result)


async def _write_scripts(
  phases: Phases,
  conversations: Conversations,
  texts: dict[SequenceId, str],
  generations: int,
  first_phase: int,
) -> dict[SequenceId, str]:
  """Returns a response with a script for each text that gets one."""
  written: dict[SequenceId, str] = {}
  for generation in range(generations):
    asked = {name: text for name, text in texts.items() if name not in written}
    if not asked:
      break
    responses = await phases.ask(conversations, asked, first_phase + generation)
    written |= {
      name: response.text
      for name, response in responses.items()
      if code_blocks.find_block(response.text) is not None
    }
  return written


def _tell(
  phases: Phases, conversation: Conversation, result: ScriptResult
) -> None:
  """Sets the check of a conversation by its last script's result."""
  text = phases.shown(printed(result))
  conversation.check = NOT_WORKING if text == TOO_LONG else text
