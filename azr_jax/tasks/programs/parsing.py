"""Parses responses: checks their format and reads the fences of the answer.

A response is the text after the opening `<think>` of the prompt. Only its last
answer block counts. All functions take time linear in the length of the
response.
"""

import re
from collections.abc import Iterator

THINK_END = "</think>"
ANSWER_START = "<answer>"
ANSWER_END = "</answer>"
FENCE = "```"
# Backticks that end their line close a fence, so a value may have backticks.
_CLOSING = re.compile(r"```[ \t\r]*+$", re.MULTILINE)


def well_formatted(response: str) -> bool:
  """Returns whether a response is a think part and then one answer part.

  Only whitespace may stand between them and at the end.
  """
  _, think_end, rest = response.partition(THINK_END)
  if not think_end:
    return False
  rest = rest.strip()
  return (
    rest.startswith(ANSWER_START)
    and rest.endswith(ANSWER_END)
    and rest.count(ANSWER_START) == rest.count(ANSWER_END) == 1
  )


def answer_text(response: str) -> str | None:
  """Returns the text of the last answer block, or None if it is not closed."""
  start = response.rfind(ANSWER_START)
  if start < 0:
    return None
  start += len(ANSWER_START)
  end = response.find(ANSWER_END, start)
  return None if end < 0 else response[start:end]


def fences(text: str) -> Iterator[tuple[str, str]]:
  """Yields (label, content) of each closed fence in order.

  A fence closes at the next backticks that end their line; if no such backticks
  are left in the text, at the next ones.
  """
  position = 0
  any_closing = True
  while True:
    start = text.find(FENCE, position)
    line_end = text.find("\n", start)
    if start < 0 or line_end < 0:
      return
    closing = _CLOSING.search(text, line_end) if any_closing else None
    any_closing = closing is not None
    end = closing.start() if closing else text.find(FENCE, line_end)
    if end < 0:
      return
    label = text[start + len(FENCE) : line_end].strip()
    yield label, text[line_end + 1 : end].rstrip("\n")
    position = end + len(FENCE)


def _fenced(response: str, label: str) -> list[str]:
  """Returns the contents of all fences of a label in the answer."""
  answer = answer_text(response)
  if answer is None:
    return []
  return [
    content for fence_label, content in fences(answer) if fence_label == label
  ]


def parse_triplet_proposal(response: str) -> tuple[str, str] | None:
  """Returns (code, argument text) of a proposal of a program with an input.

  It returns None unless there are exactly one program, which defines `f`, and
  exactly one input, in any order. A blank input is a call without arguments.
  """
  programs, inputs = _fenced(response, "python"), _fenced(response, "input")
  if len(programs) != 1 or len(inputs) != 1:
    return None
  if "def f(" not in programs[0]:
    return None
  return programs[0], inputs[0].strip()


def parse_induction_proposal(
  response: str, num_inputs: int
) -> tuple[tuple[str, ...], str] | None:
  """Returns (inputs, message) of an induction proposal.

  It returns None unless there are exactly `num_inputs` distinct inputs and one
  message that does not contain a program.
  """
  inputs = [text.strip() for text in _fenced(response, "input")]
  messages = _fenced(response, "message")
  if len(inputs) != num_inputs or len(set(inputs)) != num_inputs:
    return None
  if len(messages) != 1 or not messages[0].strip():
    return None
  if "def f(" in messages[0]:
    return None
  return tuple(inputs), messages[0].strip()


def parse_output_answer(response: str) -> str | None:
  """Returns the text of the last output fence, or None if it is blank."""
  contents = _fenced(response, "output")
  return contents[-1].strip() or None if contents else None


def parse_input_answer(response: str) -> str | None:
  """Returns the text of the last input fence, or None.

  A blank text is a call without arguments.
  """
  contents = _fenced(response, "input")
  return contents[-1].strip() if contents else None


def parse_program_answer(response: str) -> str | None:
  """Returns the text of the last python fence, or None."""
  contents = _fenced(response, "python")
  return contents[-1] if contents and contents[-1].strip() else None
