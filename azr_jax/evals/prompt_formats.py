r"""Prompt formats: the text around a benchmark's question.

| prompt format | text around the question |
| --- | --- |
| `full` | the format of training: thinking and answer between tags |
| `chat` | the model's chat template |
| `plain` | "Question: ... Answer:", for base models |

Every prompt also contains a sentence that says how to write the answer:

| answer format | the answer is |
| --- | --- |
| `code` | a program in a python fence |
| `math` | the final result in a box, `\boxed{...}` |
| `value` | a Python value in a box |
| `arguments` | the arguments of a call in a box |
| `choice` | a letter in a box |
| `words` | the text after "The answer is" |

`answer_extraction.py` finds the answers in responses.
"""

from azr_jax.tasks.chats import Chat
from azr_jax.tasks.templates import PromptFile, PromptFormat, Templates

PROMPT_FORMATS = ("full", "chat", "plain")
ANSWER_FORMATS = {
  "code": "Give the whole program in a ```python fence.",
  "math": "Give the final result in \\boxed{}.",
  "value": "Give the value as a Python literal in \\boxed{}.",
  "arguments": "Give the arguments, as Python literals, in \\boxed{}.",
  "choice": "Give the letter of the right choice in \\boxed{}.",
  # No box, because such an answer may contain unbalanced brackets.
  "words": "End with a line that says: The answer is ...",
}
# A file of a template folder; `template_folder.py` says which one is used.
FILE = PromptFile(("QUESTION",), ("INSTRUCTION",))
_FULL = (
  "A user asks the assistant a question. The assistant first reasons about it "
  "between <think> and </think>, and then gives the user its answer between "
  "<answer> and </answer>.\nUser: {question}\n{instruction}\nAssistant: <think>"
)
_PLAIN = "Question: {question}\n{instruction}\n\nAnswer:"


def file_of(answer_format: str) -> str:
  """Returns the name of an answer format's prompt in a template folder."""
  return f"benchmark_{answer_format}"


def prompt(
  question: str,
  answer_format: str,
  prompt_format: PromptFormat,
  chat: Chat,
  benchmark: str = "",
) -> str:
  """Returns the prompt for a question.

  Args:
    question: its text, without the instruction of the answer format.
    answer_format: a key of `ANSWER_FORMATS`.
    prompt_format: one of `PROMPT_FORMATS`, or a user's prompts.
    chat: the model's chat template, for format `chat`.
    benchmark: name of the benchmark, for a prompt of its own.

  Raises:
    ValueError: the prompt format is unknown, it is `chat` and the model has no
      chat template, or the user's prompts lack one for this benchmark.
  """
  if isinstance(prompt_format, Templates):
    return prompt_format.fill(
      benchmark if benchmark in prompt_format else file_of(answer_format),
      QUESTION=question,
      INSTRUCTION=ANSWER_FORMATS[answer_format],
    )
  if prompt_format not in PROMPT_FORMATS:
    raise ValueError(
      f"prompt_format {prompt_format!r}: expected one of {PROMPT_FORMATS}"
    )
  instruction = ANSWER_FORMATS[answer_format]
  if prompt_format == "chat":
    return chat.prompt(f"{question}\n\n{instruction}")
  template = _FULL if prompt_format == "full" else _PLAIN
  return template.format(question=question, instruction=instruction)
