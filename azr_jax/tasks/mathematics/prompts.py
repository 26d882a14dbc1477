r"""Prompts of mathematical problems.

`full` explains the form of a reply, for base models (seed 002, table 5, in
other words); `compact` is the question alone, for tiny ones. In both the reply
begins inside the thinking and ends with `\boxed{...}` inside answer tags.
"""

STYLES = ("full", "compact")
_FULL = (
  "A user asks the assistant a question. The assistant first reasons about it "
  "between <think> and </think>, and then gives the user its answer between "
  "<answer> and </answer>, like this: <think> the reasoning </think> <answer> "
  "the answer </answer>. User: Give the final result inside the answer tags "
  "in a \\boxed{{}}, where it will be looked for. The problem is:\n{question}\n"
  "Assistant: <think>"
)


def solve_prompt(question: str, style: str) -> str:
  """Asks a question in one of `STYLES`."""
  if style == "compact":
    return f"{question}\n<think>"
  return _FULL.format(question=question)


def reply(thinking: str, answer: str) -> str:
  """A reply to a prompt that ends inside the thinking."""
  return f"{thinking}</think>\n<answer>\\boxed{{{answer}}}</answer>"


def well_formatted(text: str) -> bool:
  """Whether a reply has each closing mark once and in order, and a box."""
  _, thought, rest = text.partition("</think>")
  told, closed, after = rest.partition("</answer>")
  return bool(
    thought
    and closed
    and not after.strip()
    and told.strip().startswith("<answer>")
    and "\\boxed{" in told
    and "</think>" not in rest
  )
