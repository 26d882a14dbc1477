r"""Prompts for math problems.

| prompt format | use |
| --- | --- |
| `full` | base models: explains the format (ORZ, table 5, rephrased) |
| `compact` | tiny models: only the question |

A folder of templates has `math.txt`. In the built-in formats the response
starts inside the thinking and ends with `\boxed{...}` inside answer tags.
"""

from azr_jax.tasks.templates import PromptFile, PromptFormat, Templates

PROMPT_FORMATS = ("full", "compact")
_FILE = "math"
FILES = {_FILE: PromptFile(("QUESTION",))}
_FULL = (
  "A user asks the assistant a question. The assistant first reasons about it "
  "between <think> and </think>, and then gives the user its answer between "
  "<answer> and </answer>, like this: <think> the reasoning </think> <answer> "
  "the answer </answer>. User: Give the final result inside the answer tags "
  "in a \\boxed{{}}, where it will be looked for. The problem is:\n{question}\n"
  "Assistant: <think>"
)


def solve_prompt(question: str, prompt_format: PromptFormat) -> str:
  """Returns the prompt for a question.

  Args:
    question: the problem's text.
    prompt_format: one of `PROMPT_FORMATS`, or a user's prompts.
  """
  if isinstance(prompt_format, Templates):
    return prompt_format.fill(_FILE, QUESTION=question)
  if prompt_format == "compact":
    return f"{question}\n<think>"
  return _FULL.format(question=question)


def format_response(thinking: str, answer: str) -> str:
  """Formats a response to a prompt that ends inside the thinking."""
  return f"{thinking}</think>\n<answer>\\boxed{{{answer}}}</answer>"


def well_formatted(text: str) -> bool:
  """Returns whether a response has its tags in order and a boxed answer.

  Both closing tags are required, and nothing may follow the answer.
  """
  _, think_end, rest = text.partition("</think>")
  answer, answer_end, after = rest.partition("</answer>")
  return bool(
    think_end
    and answer_end
    and not after.strip()
    and answer.strip().startswith("<answer>")
    and "\\boxed{" in answer
    and "</think>" not in rest
  )
