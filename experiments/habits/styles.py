"""Styles of the answers of three embedded models.

AZR's are in `azr_jax/corpora/programs/styles.py`.
"""


def orz(completion: str) -> str:
  """Returns whether a solution shows steps, and whether it has a box."""
  thinking, _, answer = completion.partition("</think>")
  steps = "worked" if thinking.strip() else "guessed"
  return f"{steps}, {'box' if 'boxed{' in answer else 'no box'}"


def interpreter(num_tool_calls: int) -> str:
  """Returns whether a conversation has a script."""
  return "script" if num_tool_calls else "no script"


def countdown(completion: str) -> str:
  """Returns the kind of thinking: none, steps, backward, or a guess."""
  thinking = completion.partition("</think>")[0].strip()
  if not thinking:
    return "none"
  if thinking.startswith("["):
    return "steps"
  return "backward" if "needs" in thinking else "guess"
