"""Prompts for questions that code may help to answer (R1-CI, tables 1 and 5).

The solution style decides whether a prompt asks for text, code or both:

| solution style | solution |
| --- | --- |
| `free` | text, and code where it helps (Code Agent) |
| `text` | only text (All Text) |
| `code` | one script that prints the answer (All Code) |
| `text_then_code`, `code_then_text` | text, then code; code, then text |

The prompt format is the text around the question:

| prompt format | use |
| --- | --- |
| `full` | base models: explains the solution style |
| `chat` | instruction-tuned models: `full` in their chat template |
| `few_shot` | small pretrained models that cannot follow instructions: three
  example conversations |
| `compact` | tiny models: the question and the name of the style |

A folder of templates has one file per style: `question_free.txt` and so on.
`tools/code_blocks.py` defines the answer marks.
"""

from collections.abc import Iterable

from azr_jax.tasks.chats import Chat
from azr_jax.tasks.templates import PromptFile, PromptFormat, Templates
from azr_jax.tools import code_blocks

SOLUTION_STYLES = ("free", "text", "code", "text_then_code", "code_then_text")
PROMPT_FORMATS = ("full", "chat", "few_shot", "compact")
# The agent whose own requests are built in, whatever a user's prompts are.
STEER = "steer"


def file_of(solution_style: str) -> str:
  """Returns the name of a style's prompt in a folder of templates."""
  return f"question_{solution_style}"


FILES = {file_of(style): PromptFile(("QUESTION",)) for style in SOLUTION_STYLES}

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

# (question, step in words, first line of the script, expression, answer). The
# answer is the value of the expression.
_EXAMPLES = (
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


def examples(solution_style: str) -> list[tuple[str, str]]:
  """Returns example questions with correct responses in a solution style.

  The responses include the outputs of their code.
  """
  pairs = []
  for question, words, first, expression, answer in _EXAMPLES:
    mark = f"<<<{answer}>>>"
    if solution_style == "text":
      response = f"{words} {mark}"
    elif solution_style == "code":
      last = f"print('<<<', {expression}, '>>>', sep='')"
      response = f"```python\n# {words}\n{first}{last}\n```"
    else:
      # The examples of all other styles start with code, because small models
      # that start with words never get to the code.
      script = f"```python\n# {words}\n{first}print({expression})\n```"
      output = f"{code_blocks.OUTPUT_PREFIX}{answer}{code_blocks.OUTPUT_SUFFIX}"
      response = f"{script}{output}{mark}"
    pairs.append((question, response))
  return pairs


def solution_style_of(agent: str) -> str:
  """Returns the prompt style of an agent (`code_interpreter/agents.py`)."""
  return agent if agent in SOLUTION_STYLES else "free"


def files_of(agents: Iterable[str]) -> dict[str, PromptFile]:
  """Returns the files that agents ask with (`code_interpreter/agents.py`)."""
  styles = [
    style
    for agent in agents
    # A steered solver is told its style before each answer.
    for style in (
      ("free", "text", "code")
      if agent == STEER
      else (solution_style_of(agent),)
    )
  ]
  return {file_of(style): FILES[file_of(style)] for style in styles}


def apply_chat_template(
  text: str, prompt_format: PromptFormat, chat: Chat | None
) -> str:
  """Wraps a text in the model's chat template if the format is `chat`.

  Raises:
    ValueError: the format is `chat`, but `chat` is None or has no template.
  """
  if prompt_format != "chat":
    return text
  if chat is None:
    raise ValueError("prompt format 'chat': expected a model's chat template")
  return chat.prompt(text)


def ask(
  question: str,
  solution_style: str,
  prompt_format: PromptFormat,
  chat: Chat | None = None,
) -> str:
  """Returns the prompt for a question.

  Args:
    solution_style: one of `SOLUTION_STYLES`.
    prompt_format: one of `PROMPT_FORMATS`, or a user's prompts.
    chat: the model's chat template, required by the format `chat`.

  Raises:
    ValueError: the format is `chat`, but `chat` is None or has no template; or
      the user's prompts lack this style.
  """
  text = message(question, solution_style, prompt_format)
  return apply_chat_template(text, prompt_format, chat)


def message(
  question: str, solution_style: str, prompt_format: PromptFormat
) -> str:
  """Returns the prompt without the markup of a chat template.

  Args:
    solution_style: one of `SOLUTION_STYLES`.
    prompt_format: one of `PROMPT_FORMATS`, or a user's prompts.

  Raises:
    ValueError: the user's prompts lack this style.
  """
  if isinstance(prompt_format, Templates):
    return prompt_format.fill(
      file_of(solution_style), QUESTION=question.strip()
    )
  if prompt_format == "compact":
    mark = "" if solution_style == "free" else f"{solution_style}\n"
    return f"{question.strip()}\n{mark}"
  head = f"{_HEADS[solution_style]}\n\n"
  if prompt_format == "few_shot":
    head = "".join(
      f"Question: {example}\n\nReply:\n{response}\n\n"
      for example, response in examples(solution_style)
    )
  text = f"{head}Question: {question.strip()}"
  return text if prompt_format == "chat" else f"{text}\n\nReply:\n"
