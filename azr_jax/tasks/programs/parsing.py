"""Reading replies: format check and the fences of the answer part.

A reply is what the model wrote after the prompt's opening `<think>`. Only the
last answer block counts; everything here is plain string search, linear in
the reply's length.
"""

from collections.abc import Iterator

THINK_END = "</think>"
ANSWER_START = "<answer>"
ANSWER_END = "</answer>"
FENCE = "```"


def well_formatted(reply: str) -> bool:
  """Whether the reply is a think part, whitespace, and one answer part."""
  _, closed, rest = reply.partition(THINK_END)
  if not closed:
    return False
  rest = rest.strip()
  return (
    rest.startswith(ANSWER_START)
    and rest.endswith(ANSWER_END)
    and rest.count(ANSWER_START) == rest.count(ANSWER_END) == 1
  )


def answer_text(reply: str) -> str | None:
  """The text of the last complete answer block, or None."""
  start = reply.rfind(ANSWER_START)
  if start < 0:
    return None
  start += len(ANSWER_START)
  end = reply.find(ANSWER_END, start)
  return None if end < 0 else reply[start:end]


def fences(text: str) -> Iterator[tuple[str, str]]:
  """Yields (label, content) of each closed fence in order."""
  place = 0
  while True:
    start = text.find(FENCE, place)
    line_end = text.find("\n", start)
    if start < 0 or line_end < 0:
      return
    end = text.find(FENCE, line_end)
    if end < 0:
      return
    label = text[start + len(FENCE) : line_end].strip()
    yield label, text[line_end + 1 : end].rstrip("\n")
    place = end + len(FENCE)


def _fenced(reply: str, label: str) -> list[str]:
  answer = answer_text(reply)
  if answer is None:
    return []
  return [content for found, content in fences(answer) if found == label]


def _last_fenced(reply: str, label: str) -> str | None:
  contents = _fenced(reply, label)
  return contents[-1].strip() if contents and contents[-1].strip() else None


def parse_triplet_proposal(reply: str) -> tuple[str, str] | None:
  """Returns (code, argument text) of a proposal of a program with an input.

  Fences may come in any order. There must be exactly one program, which
  defines `f`, and exactly one input.
  """
  programs, inputs = _fenced(reply, "python"), _fenced(reply, "input")
  if len(programs) != 1 or len(inputs) != 1:
    return None
  if "def f(" not in programs[0] or not inputs[0].strip():
    return None
  return programs[0], inputs[0].strip()


def parse_induction_proposal(
  reply: str, num_inputs: int
) -> tuple[tuple[str, ...], str] | None:
  """Returns (inputs, message) of an induction proposal.

  There must be exactly `num_inputs` inputs, no two alike, and one message
  that does not contain a program.
  """
  inputs = [text.strip() for text in _fenced(reply, "input")]
  messages = _fenced(reply, "message")
  if len(inputs) != num_inputs or len(set(inputs)) != num_inputs:
    return None
  if len(messages) != 1 or not messages[0].strip() or not all(inputs):
    return None
  if "def f(" in messages[0]:
    return None
  return tuple(inputs), messages[0].strip()


def parse_output_answer(reply: str) -> str | None:
  """The text of the last output fence, or None."""
  return _last_fenced(reply, "output")


def parse_input_answer(reply: str) -> str | None:
  """The text of the last input fence, or None."""
  return _last_fenced(reply, "input")


def parse_program_answer(reply: str) -> str | None:
  """The text of the last python fence, or None."""
  contents = _fenced(reply, "python")
  return contents[-1] if contents and contents[-1].strip() else None
