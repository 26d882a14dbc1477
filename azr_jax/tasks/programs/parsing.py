"""Parses responses: checks their format and reads the fences of the answer.

A response is the text after the opening `<think>` of the prompt. Only its last
answer block counts. An answer stands

| answer format | where |
| --- | --- |
| `fenced` | in a fence of its label, as figures 37 to 39 ask |
| `published_code` | otherwise after `# Input:` or `# Output:`, else it is the
  whole block; a program is in a fence of any label |

The published code also accepts text after the block. Its further fallbacks (a
call `input(...)`, "the input is") and repairs of proposals are left out. All
functions take time linear in the length of the response.
`azr_jax/text/fences.py` has how fences may be written.
"""

import re

from azr_jax.text import fences

THINK_END = "</think>"
ANSWER_START = "<answer>"
ANSWER_END = "</answer>"
# Where the think part ends and the answer begins. A response may quote the tags
# while it thinks, so the last place counts.
ANSWER_BEGINS = rf"{THINK_END}\s*{ANSWER_START}"
_ANSWER_BEGINS = re.compile(ANSWER_BEGINS)
FENCED, PUBLISHED_CODE = ANSWER_FORMATS = ("fenced", "published_code")
# A program must define `f`; a message must not.
_ENTRY = re.compile(r"def[ \t]+f[ \t]*\(")


def well_formatted(response: str, answer_format: str = FENCED) -> bool:
  """Returns whether a response is a think part and then one answer part.

  Only whitespace may stand between them, and at the end unless the published
  code's answers are read. Tags in the think part are text like any other.
  """
  if answer_format == PUBLISHED_CODE:
    begins = _ANSWER_BEGINS.search(response)
    return begins is not None and ANSWER_END in response[begins.end() :]
  ends = [match.end() for match in _ANSWER_BEGINS.finditer(response)]
  if not ends:
    return False
  rest = response[ends[-1] :].rstrip()
  return (
    rest.endswith(ANSWER_END)
    and rest.count(ANSWER_END) == 1
    and ANSWER_START not in rest
  )


def answer_text(response: str) -> str | None:
  """Returns the text of the last answer block, or None if it is not closed."""
  start = response.rfind(ANSWER_START)
  if start < 0:
    return None
  start += len(ANSWER_START)
  end = response.find(ANSWER_END, start)
  return None if end < 0 else response[start:end]


def _fenced(response: str, *labels: str | None) -> list[list[str]]:
  """Returns the contents of closed fences in the answer.

  Args:
    response: the response.
    labels: of the fences; None: of any label.

  Returns:
    Those of each label, in order.
  """
  answer = answer_text(response)
  closed = [f for f in fences.read(answer or "") if f.is_closed]
  return [
    [fence.content for fence in closed if label in (None, fence.label)]
    for label in labels
  ]


def parse_triplet_proposal(response: str) -> tuple[str, str] | None:
  """Returns (code, argument text) of a proposal of a program with an input.

  It returns None unless there are exactly one program, which defines `f`, and
  exactly one input, in any order. A blank input is a call without arguments.
  """
  programs, inputs = _fenced(response, "python", "input")
  if len(programs) != 1 or len(inputs) != 1:
    return None
  if not _ENTRY.search(programs[0]):
    return None
  return programs[0], inputs[0].strip()


def parse_induction_proposal(
  response: str, num_inputs: int
) -> tuple[tuple[str, ...], str] | None:
  """Returns (inputs, message) of an induction proposal.

  It returns None unless there are exactly `num_inputs` distinct inputs and one
  message that does not contain a program.
  """
  inputs, messages = _fenced(response, "input", "message")
  inputs = [text.strip() for text in inputs]
  if len(inputs) != num_inputs or len(set(inputs)) != num_inputs:
    return None
  if len(messages) != 1 or not messages[0].strip():
    return None
  if _ENTRY.search(messages[0]):
    return None
  return tuple(inputs), messages[0].strip()


def parse_output_answer(
  response: str, answer_format: str = FENCED
) -> str | None:
  """Returns the text of the last output fence, or None if it is blank."""
  return _value(response, "output", answer_format) or None


def parse_input_answer(
  response: str, answer_format: str = FENCED
) -> str | None:
  """Returns the text of the last input fence, or None.

  A blank text is a call without arguments.
  """
  return _value(response, "input", answer_format)


def _value(response: str, label: str, answer_format: str) -> str | None:
  [contents] = _fenced(response, label)
  if contents:
    return contents[-1].strip()
  answer = answer_text(response)
  if answer_format == FENCED or answer is None:
    return None
  _, _, after = answer.rpartition(f"# {label.capitalize()}:")
  return after.strip() or None


def parse_program_answer(
  response: str, answer_format: str = FENCED
) -> str | None:
  """Returns the text of the last python fence, or None."""
  label = "python" if answer_format == FENCED else None
  [contents] = _fenced(response, label)
  return contents[-1] if contents and contents[-1].strip() else None
