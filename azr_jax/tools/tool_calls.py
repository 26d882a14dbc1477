"""Finds the tool calls in a reply, in the formats of common chat models.

| format | models |
| --- | --- |
| `<tool_call>{"name": ..., "arguments": {...}}</tool_call>` | Qwen, Hermes |
| `[TOOL_CALLS] [{"name": ..., "arguments": {...}}]` | Mistral |
| a JSON object alone or in a fence, possibly with `parameters` | Llama 3 |

Every format also accepts OpenAI's form of a call, `{"type": "function",
"function": {...}}`. An object alone or in a fence is a call only if it has a
name and arguments; otherwise it is an answer. Calls inside thoughts are
ignored: as inference servers do, we read only what follows `</think>`.
"""

import dataclasses
import json
import re
from collections.abc import Mapping
from typing import Any

_MARK = re.compile(
  r"<think>|</think>|<tool_call>|\[TOOL_CALLS\]\s*(?=\[)"
  r"|```(?:json|tool_call)\s*\n"
)
_END = "</tool_call>"
_PYTHON_TAG = "<|python_tag|>"
_END_OF_THOUGHT = "</think>"
_TAG_ENDS = re.compile(rf"\s*(?:{_END}|\Z)")
_FENCE_ENDS = re.compile(r"\s*```")
_SPACE = re.compile(r"\s*")
_ARGUMENTS = "arguments", "parameters"
_EXPECTED = 'expected {"name": ..., "arguments": {...}}'
# Raised by the JSON parser; RecursionError for deeply nested brackets.
_NO_JSON = ValueError, RecursionError
_DECODER = json.JSONDecoder()
# Each parser error counts the preceding lines, which is slow in long replies.
# The scan therefore stops after this many marks without a call.
_MAX_UNREAD = 100


@dataclasses.dataclass(frozen=True)
class ToolCall:
  """A tool call as the model wrote it.

  Attributes:
    name: the tool's name; "" if the call is malformed.
    arguments: the arguments by name.
    problem: what is wrong with the call, for the model; "" if nothing is.
  """

  name: str = ""
  arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  problem: str = ""


@dataclasses.dataclass(frozen=True)
class _Found:
  """The calls in one span of a reply.

  Attributes:
    mark: first character of the format's mark.
    calls: the calls, at least one.
    start, end: the span, as slice bounds.
  """

  mark: str
  calls: list[ToolCall]
  start: int
  end: int


def find(reply: str) -> tuple[list[ToolCall], str]:
  """Returns the calls in a reply and the text around them."""
  found = _scan(reply)
  # If a reply mixes formats, the first one in this order wins.
  for mark in "<[`{":
    chosen = [one for one in found if one.mark == mark]
    if chosen:
      break
  else:
    return [], reply
  texts, end = [], 0
  for one in chosen:
    texts.append(reply[end : one.start])
    end = one.end
  around = "".join([*texts, reply[end:]]).strip()
  return [call for one in chosen for call in one.calls], around


def _scan(reply: str) -> list[_Found]:
  """Returns the calls after a reply's thoughts, in order."""
  found: list[_Found] = []
  alone = _alone(reply, 0)
  position, unread = 0, 0
  while alone is None:
    match = _MARK.search(reply, position)
    if match is None or unread > _MAX_UNREAD:
      return found
    unread += 1
    position = match.end()
    if match[0].endswith("think>"):
      if match[0] == "<think>":
        end = reply.find(_END_OF_THOUGHT, position)
        if end < 0:
          return found
        position = end + len(_END_OF_THOUGHT)
      else:  # The prompt opened this thought.
        found.clear()
      alone = _alone(reply, position)
      continue
    one = _read(reply, match)
    if one is not None:
      found.append(one)
      position = one.end
      unread -= not one.calls[0].problem
  return [*found, *alone]


def _alone(reply: str, start: int) -> list[_Found] | None:
  """Returns the call if the rest of a reply is a single JSON object.

  Returns:
    The call; [] if the object is an answer; None if the rest is anything else.
  """
  first = _skip_space(reply, start)
  if reply.startswith(_PYTHON_TAG, first):
    first = _skip_space(reply, first + len(_PYTHON_TAG))
  if not reply.startswith("{", first):
    return None
  try:
    value, end = _DECODER.raw_decode(reply, first)
  except _NO_JSON:
    return None
  if _skip_space(reply, end) < len(reply):
    return None
  call = _maybe(value)
  return [] if call is None else [_Found("{", [call], start, len(reply))]


def _read(reply: str, match: re.Match[str]) -> _Found | None:
  """Returns the calls after a mark; None if a fence holds no call."""
  mark = match[0][0]
  start = match.end() if mark == "[" else _skip_space(reply, match.end())
  try:
    value, end = _DECODER.raw_decode(reply, start)
    problem = ""
  except _NO_JSON as error:
    value, end = None, start
    problem = f"the tool call is not JSON ({error}): {_EXPECTED}"
  if mark == "`":
    closed = _FENCE_ENDS.match(reply, end)
    call = None if problem or not closed else _maybe(value)
    if call is None or closed is None:
      return None
    return _Found(mark, [call], match.start(), closed.end())
  if mark == "[":
    calls = [ToolCall(problem=problem)] if problem else []
    calls += map(_call, value or ())
    return _Found(mark, calls, match.start(), len(reply)) if calls else None
  closed = _TAG_ENDS.match(reply, end)
  if closed is None or problem:
    problem = problem or f"the tool call has text after its JSON: {_EXPECTED}"
    end = reply.find(_END, start)
    end = len(reply) if end < 0 else end + len(_END)
    return _Found(mark, [ToolCall(problem=problem)], match.start(), end)
  return _Found(mark, [_call(value)], match.start(), closed.end())


def _skip_space(text: str, start: int) -> int:
  match = _SPACE.match(text, start)
  return match.end() if match else start


def _maybe(value: Any) -> ToolCall | None:
  """Returns a JSON value as a call; None if it is an answer."""
  inner = _unwrapped(value)
  if not isinstance(inner, dict) or not any(key in inner for key in _ARGUMENTS):
    return None
  call = _call(inner)
  return None if call.problem else call


def _unwrapped(value: Any) -> Any:
  """Returns the object with name and arguments, without OpenAI's wrapper."""
  is_wrapped = isinstance(value, dict) and value.get("type") == "function"
  return value["function"] if is_wrapped and "function" in value else value


def _call(value: Any) -> ToolCall:
  """Returns the call that a JSON value describes."""
  value = _unwrapped(value)
  if not isinstance(value, dict) or not isinstance(value.get("name"), str):
    return ToolCall(problem=f"{json.dumps(value)[:80]}: {_EXPECTED}")
  given = next((value[key] for key in _ARGUMENTS if key in value), {})
  if isinstance(given, str):  # Some models write the arguments as a string.
    try:
      given = json.loads(given)
    except _NO_JSON:
      pass
  if not isinstance(given, dict):
    return ToolCall(problem=f"arguments {given!r:.80}: expected an object")
  return ToolCall(value["name"], given)
