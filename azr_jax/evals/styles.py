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
import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from azr_jax.config import named
from azr_jax.functions import spec
from azr_jax.functions.pool import WRONG_TYPE, CallResult, FunctionPool
from azr_jax.functions.spec import Function

FIRST_WORD = "first_word"
# The first word of an answer without words.
EMPTY = "(empty)"
# Returns the style of each answer in a record of `record_files.py`.
StyleRule = Callable[[Mapping[str, Any]], list[str]]
# Gives the style of an answer for which the function fails.
OnFailure = Callable[[CallResult], str]
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
    ValueError: there is no such function, or it takes another argument; the
      message continues "expected".
  """
  found = named.choose(name, {}, callable, "a function of an answer")
  lacking = _unknown(spec.signature(found))
  if lacking:
    raise ValueError(f"some of {_KNOWN} as arguments, not {lacking!r}")
  return found


def _unknown(taken: spec.Signature) -> str:
  """Returns an argument that no answer has; "" without one."""
  return next((name for name in taken.required if name not in _KNOWN), "")


@contextlib.contextmanager
def open_rule(
  rule: str,
  on_failure: OnFailure | None = None,
  timeout_s: float = _TIMEOUT_S,
) -> Iterator[StyleRule | None]:
  """Opens a rule; its process ends with the context.

  Args:
    rule: a rule of the module's table; "" yields None.
    on_failure: gives the style of an answer for which the function fails. None
      raises an error instead.
    timeout_s: time limit for an answer, seconds.

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
  with FunctionPool([Function(rule, rule)], 1, timeout_s) as pool:
    taken = pool.signatures[0]
    if lacking := _unknown(taken):
      raise ValueError(
        f"style={rule!r} takes {lacking!r}: expected some of {_KNOWN}"
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
      styles = []
      for called in waiting:
        answer = _checked(called.result())
        if not answer.failure:
          styles.append(answer.value)
        elif on_failure is not None:
          styles.append(on_failure(answer))
        else:
          raise ValueError(
            f"style={rule!r}: item {record['id']}: {answer.message}"
          )
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


def _checked(answer: CallResult) -> CallResult:
  """Returns an answer, as a failure if it is no name of a style."""
  style = answer.value
  if answer.failure:
    return answer
  is_short = isinstance(style, str) and 0 < len(style) <= _MAX_CHARS
  if is_short and style.isprintable():
    return answer
  message = (
    f"returned {style!r:.80}: expected the name of a style, of 1 to "
    f"{_MAX_CHARS} printable characters"
  )
  return dataclasses.replace(answer, failure=WRONG_TYPE, message=message)
