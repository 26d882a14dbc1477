"""Prompts for questions that code may help with (seed 001, table 1 and 5).

| form | what is asked for |
| --- | --- |
| `free` | reasoning, with code run where it helps (Code Agent) |
| `text` | reasoning in words alone (All Text) |
| `code` | one script that prints the answer (All Code) |
| `text_then_code`, `code_then_text` | the one first, then the other |

`full` explains, for base models and those that learned from it; `chat` puts
the same into a model's chat template; `few_shot` shows three worked
conversations instead, for pretrained models too small to follow instructions;
`compact` is the question and the form's name, for tiny models. The marks are
those of `rollout/code_blocks.py`.
"""

from azr_jax.models.tokenizers import Tokenizer
from azr_jax.rollout import code_blocks

FORMS = ("free", "text", "code", "text_then_code", "code_then_text")
STYLES = ("full", "chat", "few_shot", "compact")

_MARK = (
  "When you are sure, end with the answer between these marks: <<<the answer>>>"
)
_RUN = (
  "A script stands alone: open it with ```python, print what you want to see, "
  "close it with ``` and stop there. It is then run, and its output and errors "
  "are shown to you before you go on."
)
_HEADS = {
  "free": (
    "Reason first, then answer. While you reason you may write Python and see "
    f"what it prints. {_RUN} Do so as often as it helps. {_MARK}"
  ),
  "text": (
    "Reason step by step in words. List what is easily got wrong, and check "
    f"it. Write no code. {_MARK}"
  ),
  "code": (
    "You solve problems by programming. Think about the program in words, then "
    "write it as one script that prints the answer between the marks "
    f"<<<the answer>>>. {_RUN}"
  ),
  "text_then_code": (
    "Reason in words first and come to a provisional answer. Then check it "
    f"with Python, and correct it if the two differ. {_RUN} {_MARK}"
  ),
  "code_then_text": (
    "Begin with Python. Then go through what it printed in words, and correct "
    f"it if it cannot be right. {_RUN} {_MARK}"
  ),
}

# Questions, a step in words, and a script in two parts: what comes first, and
# an expression with its value, the answer.
_WORKED = (
  (
    "What is 3417 * 286?",
    "The product of large numbers is best left to Python.",
    "",
    "3417 * 286",
    "977262",
  ),
  (
    "How many letters of the word bookkeeper are an e?",
    "Go through the letters and count.",
    "word = 'bookkeeper'\n",
    "word.count('e')",
    "3",
  ),
  (
    "Sort these words by their length: pear, fig, banana.",
    "Order the words by how long they are.",
    "words = ['pear', 'fig', 'banana']\n",
    "', '.join(sorted(words, key=len))",
    "fig, pear, banana",
  ),
)


def worked(form: str) -> list[tuple[str, str]]:
  """Questions and right replies to them, results included, in a form."""
  shown = []
  for question, words, first, expression, answer in _WORKED:
    mark = f"<<<{answer}>>>"
    if form == "text":
      reply = f"{words} {mark}"
    elif form == "code":
      last = f"print('<<<', {expression}, '>>>', sep='')"
      reply = f"```python\n# {words}\n{first}{last}\n```"
    else:
      # A small model that begins in words goes on so.
      script = f"```python\n# {words}\n{first}print({expression})\n```"
      result = f"{code_blocks.LABEL}{answer}{code_blocks.AFTER}"
      reply = f"{script}{result}{mark}"
    shown.append((question, reply))
  return shown


def form_of(agent: str) -> str:
  """The prompt form of an agent (systems/code_interpreter/agents.py)."""
  return agent if agent in FORMS else "free"


def framed(text: str, style: str, tokenizer: Tokenizer | None) -> str:
  """What a model is told, in its chat template where the style is `chat`.

  Raises:
    ValueError: it has none.
  """
  if style != "chat":
    return text
  if tokenizer is None:
    raise ValueError("style 'chat': expected a tokenizer")
  return tokenizer.chat(text)


def ask(
  question: str, form: str, style: str, tokenizer: Tokenizer | None = None
) -> str:
  """A prompt.

  Args:
    question: what is asked.
    form: one of `FORMS`.
    style: one of `STYLES`.
    tokenizer: of the model; `chat` needs it.

  Raises:
    ValueError: the style is `chat`, and the model has no template.
  """
  if style == "compact":
    mark = "" if form == "free" else f"{form}\n"
    return f"{question.strip()}\n{mark}"
  head = f"{_HEADS[form]}\n\n"
  if style == "few_shot":
    head = "".join(
      f"Question: {asked}\n\nReply:\n{reply}\n\n"
      for asked, reply in worked(form)
    )
  text = f"{head}Question: {question.strip()}"
  if style == "chat":
    return framed(text, style, tokenizer)
  return f"{text}\n\nReply:\n"
