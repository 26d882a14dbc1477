r"""Frames around a benchmark's requests, and finding answers in replies.

| style | frame |
| --- | --- |
| `full` | the trained systems' own: thinking and answer between tags |
| `chat` | the model's chat template |
| `plain` | question and answer, for base models |

| form | the answer is |
| --- | --- |
| `code` | the last closed python fence, or unlabelled one, that defines what is
  asked for |
| `math` | the last box; without one, the last number |
| `value` | a Python value: in a box, a fence, or on the last line |
| `arguments` | a call's arguments, likewise |
| `choice` | a letter: in a box, after "answer is", or alone |
| `words` | what stands after "answer is", a box, or the last line |

In a reply with answer tags only the last closed one is looked at; in one with
`</think>`, what comes after it.
"""

import re
from collections.abc import Sequence

from azr_jax.grading import answer_tags
from azr_jax.grading.mathematics import extraction
from azr_jax.models.tokenizers import Tokenizer

STYLES = ("full", "chat", "plain")
FORMS = {
  "code": "Give the whole program in a ```python fence.",
  "math": "Give the final result in \\boxed{}.",
  "value": "Give the value as a Python literal in \\boxed{}.",
  "arguments": "Give the arguments, as Python literals, in \\boxed{}.",
  "choice": "Give the letter of the right choice in \\boxed{}.",
  # In a box, brackets of an answer might not balance.
  "words": "End with a line that says: The answer is ...",
}
_FULL = (
  "A user asks the assistant a question. The assistant first reasons about it "
  "between <think> and </think>, and then gives the user its answer between "
  "<answer> and </answer>.\nUser: {request}\n{form}\nAssistant: <think>"
)
_PLAIN = "Question: {request}\n{form}\n\nAnswer:"
_FENCE = re.compile(r"```(\w*)[^\n]*\n(.*?)```", re.DOTALL)
_OPEN_FENCE = re.compile(r"```python[^\n]*\n(.*)\Z", re.DOTALL)
_NUMBER = re.compile(r"-?\$?\d[\d,]*(?:\.\d+)?(?:/\d+)?")
_PROGRAMS = ("python", "py", "python3")
_MARKUP = re.compile(r"\\(?:text|math)\w*\s*\{([^{}]*)\}|[*$`]")
_ANSWER_IS = re.compile(
  r"(?:final answer|answer)(?: is)?\s*[:=]?\s*(.+)", re.IGNORECASE
)


def prompt(request: str, form: str, style: str, tokenizer: Tokenizer) -> str:
  """Puts a frame of one of `STYLES` around a request.

  Raises:
    ValueError: the style is unknown, or `chat` and the model has no chat
      template.
  """
  if style not in STYLES:
    raise ValueError(f"style {style!r}: expected one of {STYLES}")
  told = FORMS[form]
  if style == "chat":
    return tokenizer.chat(f"{request}\n\n{told}")
  frame = _FULL if style == "full" else _PLAIN
  return frame.format(request=request, form=told)


def answer_part(reply: str) -> str:
  """The part of a reply that answers."""
  tagged = answer_tags.last_answer(reply)
  if tagged is not None:
    return tagged
  _, thought, rest = reply.rpartition("</think>")
  return rest if thought else reply


def code(reply: str, names: Sequence[str] = ()) -> str | None:
  """The last fenced program of a reply, or None.

  Args:
    reply: what the model wrote.
    names: functions or classes; a program that defines one of them counts
      before others, such as an example of its use.
  """
  told = answer_part(reply)
  fences = _FENCE.findall(told)
  found = [body for label, body in fences if label in _PROGRAMS]
  found = found or [body for label, body in fences if not label]
  defining = [body for body in found if defines(body, names)]
  if found:
    return (defining or found)[-1]
  cut_off = _OPEN_FENCE.search(told)
  return cut_off[1] if cut_off else None


def defines(program: str, names: Sequence[str]) -> bool:
  """Whether a program's text defines one of some functions or classes."""
  return any(
    re.search(rf"\b(?:def|class)\s+{re.escape(name)}\b", program)
    for name in names
  )


def fenced(reply: str, label: str) -> str | None:
  """The last fence of a label, or None."""
  found = [b for own, b in _FENCE.findall(answer_part(reply)) if own == label]
  return found[-1].strip() if found else None


def math(reply: str) -> str | None:
  """The last box of a reply, else its last number."""
  told = answer_part(reply)
  box = extraction.last_boxed(told)
  if box is not None:
    return box
  numbers = _NUMBER.findall(told)
  return numbers[-1].rstrip(",") if numbers else None


def short(reply: str, label: str = "output") -> str | None:
  """A box, a fence, what an "answer is", or the last line that is not empty."""
  told = answer_part(reply)
  fences = [body for own, body in _FENCE.findall(told) if own != label]
  boxed, labelled = extraction.last_boxed(told), fenced(told, label)
  for found in (boxed, labelled, fences[-1].strip() if fences else None):
    if found is not None:
      return found
  return last_words(reply)


def last_words(reply: str) -> str | None:
  """What an "answer is", or the last line that is not empty."""
  told = answer_part(reply)
  named = _ANSWER_IS.findall(told)
  lines = [line.strip() for line in told.splitlines() if line.strip()]
  text = named[-1] if named else lines[-1] if lines else None
  return None if text is None else text.strip().rstrip(".").strip("`").strip()


def choice(reply: str, letters: str = "ABCDEFGHIJ") -> str | None:
  """The letter that a reply chooses, or None.

  In this order: in a box; after "answer is" or "answer:", the last time; in
  brackets, the last time; alone on a line; at the beginning of the one line
  that begins like a choice.

  Args:
    reply: what the model wrote.
    letters: those to choose from.
  """
  told = answer_part(reply)
  box = extraction.last_boxed(told)
  if box is not None:
    found = re.match(rf"\W*([{letters}])\b", _plain(box))
    return found[1] if found else None
  told = _plain(told)
  # A and I are words, too, if small letters follow.
  letter = rf"((?![AI])[{letters}]\b|(?=[{letters}])[AI]\b(?!\s+[a-z]))"
  for pattern in (
    rf"(?i:answer(?:\s+is)?\s*:?\s*(?:option|choice|letter)?)\s*\(?{letter}",
    rf"\(([{letters}])\)",
    rf"^\W*([{letters}])\W*$",
  ):
    found = re.findall(pattern, told, re.MULTILINE)
    if found:
      return found[-1]
  found = re.findall(rf"^\W*([{letters}])[.):]", told, re.MULTILINE)
  return found[0] if len(found) == 1 else None


def _plain(text: str) -> str:
  """Text without the markup of Markdown and LaTeX around words."""
  return _MARKUP.sub(r"\1", _MARKUP.sub(r"\1", text))
