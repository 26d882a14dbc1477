r"""Finds answers in responses, by the answer formats of `prompt_formats.py`.

| function | the answer is |
| --- | --- |
| `code` | the last closed python fence, or else the last unlabelled one; fences
  that define a requested name take precedence |
| `math` | the last box, `\boxed{...}`, or else the last number |
| `short_answer` | a box, a fence, what follows "answer is", or the last line |
| `last_words` | the text after "answer is", or else the last line |
| `choice` | a letter: in a box, after "answer is", in brackets, or alone |

All functions skip the thinking. They read the last closed answer tags, or
without tags the text after the last `</think>`.
"""

import re
from collections.abc import Sequence

from azr_jax.grading import answer_tags
from azr_jax.grading.mathematics import extraction
from azr_jax.text import fences

_LABEL = re.compile(r"\w*")
_NUMBER = re.compile(r"-?\$?\d[\d,]*(?:\.\d+)?(?:/\d+)?")
_MARKUP = re.compile(r"\\(?:text|math)\w*\s*\{([^{}]*)\}|[*$`]")
_ANSWER_IS = re.compile(
  r"(?:final answer|answer)(?: is)?\s*+(?:[:=]\s*+)?(.+)", re.IGNORECASE
)


def answer_part(response: str) -> str:
  """Returns the answer part of a response, without the thinking."""
  tagged = answer_tags.last_answer(response)
  if tagged is not None:
    return tagged
  _, think_end, rest = response.rpartition("</think>")
  return rest if think_end else response


def code(response: str, names: Sequence[str] = ()) -> str | None:
  """Returns the last fenced program of a response, or None.

  Args:
    names: functions or classes. A program that defines one of them takes
      precedence over other fences, such as a usage example.
  """
  found = _fences(answer_part(response))
  programs = _programs(found, fences.PYTHON) or _programs(found, "")
  defining = [program for program in programs if defines(program, names)]
  if programs:
    return (defining or programs)[-1]
  # A truncated response may end inside its program.
  cut_off = [f for label, f in found if label == fences.PYTHON]
  return cut_off[-1].content if cut_off else None


def _programs(found: list[tuple[str, fences.Fence]], wanted: str) -> list[str]:
  return [
    f"{fence.content}\n"
    for label, fence in found
    if label == wanted and fence.is_closed and (wanted or not fence.is_inline)
  ]


def _fences(text: str) -> list[tuple[str, fences.Fence]]:
  """Returns (first word of the label, fence) for the fences of a text."""
  return [
    (fences.normalized(match[0] if (match := _LABEL.match(f.label)) else ""), f)
    for f in fences.read(text)
  ]


def defines(program: str, names: Sequence[str]) -> bool:
  """Returns whether a program defines a function or class of these names."""
  return any(
    re.search(rf"\b(?:def|class)\s+{re.escape(name)}\b", program)
    for name in names
  )


def fenced(response: str, label: str) -> str | None:
  """Returns the content of the last fence with this label, or None."""
  found = _fences(answer_part(response))
  contents = [f.content for own, f in found if own == label and f.is_closed]
  return contents[-1].strip() if contents else None


def math(response: str) -> str | None:
  """Returns the last box of a response, or its last number, or None."""
  answer = answer_part(response)
  box = extraction.last_boxed(answer)
  if box is not None:
    return box
  numbers = _NUMBER.findall(answer)
  return numbers[-1].rstrip(",") if numbers else None


def short_answer(response: str, label: str = "output") -> str | None:
  """Returns a value or the arguments of a call as text, or None.

  Looks for these, in order: the last box; the last fence with the label; the
  last other fence; the result of `last_words`.
  """
  answer = answer_part(response)
  others = [
    fence.content.strip()
    for own, fence in _fences(answer)
    if own != label and fence.is_closed
  ]
  for candidate in (
    extraction.last_boxed(answer),
    fenced(answer, label),
    others[-1] if others else None,
  ):
    if candidate is not None:
      return candidate
  return last_words(response)


def last_words(response: str) -> str | None:
  """Returns the text after the last "answer is", or the last nonblank line."""
  answer = answer_part(response)
  named = _ANSWER_IS.findall(answer.rstrip())
  lines = [line.strip() for line in answer.splitlines() if line.strip()]
  text = named[-1] if named else lines[-1] if lines else None
  return None if text is None else text.strip().rstrip(".").strip("`").strip()


def choice(response: str, letters: str = "ABCDEFGHIJ") -> str | None:
  """Returns the letter that a response chooses, or None.

  Looks for a letter, in order: in the last box; after the last "answer is" or
  "answer:"; in the last brackets; on the last line that holds nothing else; at
  the start of a line, if exactly one line starts like a choice.

  Args:
    letters: the letters to choose from.
  """
  answer = answer_part(response)
  box = extraction.last_boxed(answer)
  if box is not None:
    match = re.match(rf"\W*([{letters}])\b", _without_markup(box))
    return match[1] if match else None
  answer = _without_markup(answer)
  # Before lower-case text, "A" and "I" are English words instead of choices.
  letter = rf"((?![AI])[{letters}]\b|(?=[{letters}])[AI]\b(?!\s+[a-z]))"
  word = r"(?i:(?:option|choice|letter)\s*+)?"
  for pattern in (
    rf"(?i:answer(?:\s++is)?)\s*+(?::\s*+)?{word}\(?{letter}",
    rf"\(([{letters}])\)",
  ):
    matches = re.findall(pattern, answer)
    if matches:
      return matches[-1]
  # Matching line by line avoids quadratic time: a pattern that starts with
  # `\W*` would scan a run of empty lines again from each of its lines.
  lines = answer.split("\n")
  alone = re.compile(rf"\W*([{letters}])\W*")
  matches = [match[1] for match in map(alone.fullmatch, lines) if match]
  if matches:
    return matches[-1]
  first = re.compile(rf"\W*([{letters}])[.):]")
  matches = [match[1] for match in map(first.match, lines) if match]
  return matches[0] if len(matches) == 1 else None


def _without_markup(text: str) -> str:
  """Removes Markdown and LaTeX markup around words."""
  return _MARKUP.sub(r"\1", _MARKUP.sub(r"\1", text))
