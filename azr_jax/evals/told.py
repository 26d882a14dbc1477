"""Tells a model how to begin its responses: a text, or a rule of the user's.

`prefill` is the text, or FILE.py:NAME or PACKAGE.MODULE:NAME of a function. The
function receives the arguments that it names, `id`, `question` and `subset` of
an item, and returns how the item's responses begin, or "".
"""

import re
from collections.abc import Callable

from azr_jax.config import named
from azr_jax.evals.benchmark import Item
from azr_jax.functions import spec as functions

# Returns how the responses to an item begin.
Prefill = Callable[[Item], str]
# A text with a blank, or without a dot before its last colon, is no name.
_NAME = re.compile(r"[^\s:]+\.[^\s:]+:[^\W\d]\w*")


def nothing(item: Item) -> str:
  """Returns "": the model writes its whole response."""
  del item
  return ""


def read(prefill: str) -> Prefill:
  """Returns how the responses to each item begin.

  Raises:
    ValueError: the text names a function that cannot be found or called.
  """
  if not _NAME.fullmatch(prefill):
    return lambda item: prefill
  try:
    function = functions.find(functions.Function(prefill, prefill))
    taken = functions.signature(function)
  except (ValueError, TypeError) as error:
    raise ValueError(f"prefill={prefill!r}: {error}") from error
  known = ("id", "question", "subset")
  lacking = [name for name in taken.required if name not in known]
  if lacking:
    raise ValueError(
      f"prefill={prefill!r} takes {lacking[0]!r}: expected some of {known}"
    )

  def begin(item: Item) -> str:
    arguments = {
      name: getattr(item, name)
      for name in known
      if taken.takes_any or name in taken.parameters
    }
    try:
      text = function(**arguments)
    except Exception as error:
      raise ValueError(
        f"prefill={prefill!r}: item {item.id}: {type(error).__name__}: "
        f"{' '.join(str(error).split())[:200]}{named.last_line(error)}"
      ) from error
    if not isinstance(text, str):
      raise ValueError(
        f"prefill={prefill!r}: item {item.id}: returned {text!r:.80}: expected "
        "a text"
      )
    return text

  return begin
