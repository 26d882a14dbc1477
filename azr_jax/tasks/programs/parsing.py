"""Parses responses: checks their format and reads the fences of the answer.

A response is the text after the prompt's opening `<think>`. Only its last
answer block counts. The answer format decides where the answer is:

| answer format | the answer |
| --- | --- |
| `fenced` | is in a fence with its label (figures 37 to 39) |
| `published_code` | may also follow `# Input:` or `# Output:`, or be the whole
  block; a program may be in a fence with any label |

The published code also accepts text after the block. We do not reproduce its
other fallbacks (a call `input(...)`, "the input is") and its repairs of
proposals. All functions take time linear in the length of the response.
`azr_jax/text/fences.py` defines the syntax of fences.
"""

import re

from azr_jax.text import fences

THINK_END = "</think>"
ANSWER_START = "<answer>"
ANSWER_END = "</answer>"
# Where the think part ends and the answer starts. A response may quote the tags
# while thinking, so the last match counts.
ANSWER_BEGINS = rf"{THINK_END}\s*{ANSWER_START}"
_ANSWER_BEGINS = re.compile(ANSWER_BEGINS)
FENCED, PUBLISHED_CODE = ANSWER_FORMATS = ("fenced", "published_code")
# Programs must define `f`, messages must not.
_ENTRY = re.compile(r"def[ \t]+f[ \t]*\(")
_FUNCTIONS = re.compile(r"def[ \t]+(generate|solve|score)[ \t]*\(")


def well_formatted(response: str, answer_format: str = FENCED) -> bool:
  """Returns whether a response is a think part followed by one answer part.

  Only whitespace may separate the parts. Only whitespace may follow the answer,
  except in the format `published_code`. Tags in the think part are plain text.
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
  """Returns the contents of the answer's closed fences.

  Args:
    labels: the labels to look for. None matches any label.

  Returns:
    For each of `labels`, the contents of its fences in order.
  """
  answer = answer_text(response)
  closed = [f for f in fences.read(answer or "") if f.is_closed]
  return [
    [fence.content for fence in closed if label in (None, fence.label)]
    for label in labels
  ]


def parse_triplet_proposal(response: str) -> tuple[str, str] | None:
  """Returns (code, argument text) of a proposed program with an input.

  Returns None unless there is exactly one program, which defines `f`, and
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

  Returns None unless there are exactly `num_inputs` distinct inputs and one
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


def parse_environment_proposal(response: str) -> tuple[str, str] | None:
  """Returns (program, message) of a proposed environment.

  Returns None unless there is exactly one program, which defines `generate`,
  `solve` and `score`, and exactly one message, which defines none of them.
  """
  programs, messages = _fenced(response, "python", "message")
  if len(programs) != 1 or len(messages) != 1 or not messages[0].strip():
    return None
  if set(_FUNCTIONS.findall(programs[0])) != {"generate", "solve", "score"}:
    return None
  if _FUNCTIONS.search(messages[0]):
    return None
  return programs[0], messages[0].strip()


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
