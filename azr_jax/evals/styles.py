"""Names the style of each answer, by a rule.

| rule | style |
| --- | --- |
| `first_word` | the first word of the answer, in lower case |
| FILE.py:NAME, MODULE:NAME | what the function returns, a short text |

A function receives the arguments that it names, of `completion` (the answer,
with its tool outputs and the text that it was told to begin with), `question`,
`subset` and `num_tool_calls`. It runs in a process of its own, with a time
limit, because a model wrote the answer.
"""

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from azr_jax.config import named
from azr_jax.functions.pool import FunctionPool
from azr_jax.functions.spec import Function

FIRST_WORD = "first_word"
# The first word of an answer without words.
EMPTY = "(empty)"
# Returns the style of each answer in a record of `record_files.py`.
StyleRule = Callable[[Mapping[str, Any]], list[str]]
_TIMEOUT_S = 10.0
_MAX_CHARS = 40
_WORD = re.compile(r"\w+")
_KNOWN = ("completion", "question", "subset", "num_tool_calls")


def first_word(completion: str) -> str:
  """Returns an answer's first word in lower case; `EMPTY` if it has none."""
  found = _WORD.search(completion)
  return found.group()[:_MAX_CHARS].lower() if found else EMPTY


def load(name: str) -> Callable[..., Any]:
  """Returns the function MODULE:NAME or FILE.py:NAME.

  Raises:
    ValueError: there is no such function; the message continues "expected".
  """
  return named.choose(name, {}, callable, "a function of an answer")


@contextlib.contextmanager
def open_rule(
  rule: str, on_failure: str | None = None
) -> Iterator[StyleRule | None]:
  """Opens a rule; its process ends with the context.

  Args:
    rule: a rule of the module's table; "" yields None.
    on_failure: the style of an answer for which the function fails or returns
      no short text. None raises an error.

  Raises:
    ValueError: the function cannot be loaded, or takes another argument. The
      rule raises it if the function fails, without `on_failure`.
  """
  if not rule:
    yield None
    return
  if rule == FIRST_WORD:
    yield lambda record: [
      first_word(known["completion"]) for known in _arguments(record)
    ]
    return
  with FunctionPool([Function(rule, rule)], 1, _TIMEOUT_S) as pool:
    taken = pool.signatures[0]
    lacking = [name for name in taken.required if name not in _KNOWN]
    if lacking:
      raise ValueError(
        f"style={rule!r} takes {lacking[0]!r}: expected some of {_KNOWN}"
      )

    def styles_of(record: Mapping[str, Any]) -> list[str]:
      waiting = [
        pool.submit(
          0,
          {
            name: value
            for name, value in known.items()
            if taken.takes_any or name in taken.parameters
          },
        )
        for known in _arguments(record)
      ]
      where = f"style={rule!r}: item {record['id']}"
      styles = []
      for called in waiting:
        answer = called.result()
        try:
          if answer.failure:
            raise ValueError(f"{where}: {answer.message}")
          styles.append(_checked(answer.value, where))
        except ValueError:
          if on_failure is None:
            raise
          styles.append(on_failure)
      return styles

    yield styles_of


def _arguments(record: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
  """Yields what a rule may know about each answer of a record."""
  completions = record.get("conversations", record["responses"])
  calls = record.get("num_tool_calls", [0] * len(completions))
  for completion, count in zip(completions, calls, strict=True):
    yield {
      "completion": completion,
      "question": record["question"],
      "subset": record.get("subset", ""),
      "num_tool_calls": count,
    }


def _checked(style: Any, where: str) -> str:
  is_short = isinstance(style, str) and 0 < len(style) <= _MAX_CHARS
  if not is_short or not style.isprintable():
    raise ValueError(
      f"{where}: returned {style!r:.80}: expected the name of a style, of 1 to "
      f"{_MAX_CHARS} printable characters"
    )
  return style
