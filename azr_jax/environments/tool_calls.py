"""Finds the tool calls in a reply, in the formats that chat models write.

| format | models |
| --- | --- |
| `<tool_call>{"name": ..., "arguments": {...}}</tool_call>` | Qwen, Hermes |
| `[TOOL_CALLS] [{"name": ..., "arguments": {...}}]` | Mistral |
| a JSON object alone or in a fence, perhaps with `parameters` | Llama 3 |
"""

import dataclasses
import json
import re
from collections.abc import Mapping
from typing import Any

_TAGGED = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)
_LISTED = re.compile(r"\[TOOL_CALLS\]\s*(\[.*)", re.DOTALL)
_FENCED = re.compile(r"```(?:json|tool_call)\s*\n(.*?)```", re.DOTALL)
_ARGUMENTS = "arguments", "parameters"
_EXPECTED = 'expected {"name": ..., "arguments": {...}}'
# The JSON parser raises these, the second when brackets are nested deeply.
_NO_JSON = ValueError, RecursionError


@dataclasses.dataclass(frozen=True)
class ToolCall:
  """A call that a model has written.

  Attributes:
    name: of the tool; "": the call cannot be read.
    arguments: by name.
    problem: why it cannot be read, for the model; "": it can.
  """

  name: str = ""
  arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  problem: str = ""


def find(reply: str) -> tuple[list[ToolCall], str]:
  """Returns the calls of a reply, and the text around them."""
  if _TAGGED.search(reply):
    calls = [_read(match[1]) for match in _TAGGED.finditer(reply)]
    return calls, _TAGGED.sub("", reply).strip()
  listed = _LISTED.search(reply)
  if listed:
    return _read_list(listed[1]), reply[: listed.start()].strip()
  fenced = [_maybe(match[1]) for match in _FENCED.finditer(reply)]
  found = [call for call in fenced if call is not None]
  if found:
    return found, _FENCED.sub("", reply).strip()
  alone = _maybe(reply.strip().removeprefix("<|python_tag|>"))
  return ([alone], "") if alone is not None else ([], reply)


def _maybe(text: str) -> ToolCall | None:
  """Returns the call that a text is, or None if it is something else."""
  if not text.strip().startswith("{"):
    return None
  call = _read(text)
  return None if call.problem else call


def _read(text: str) -> ToolCall:
  try:
    return _call(json.loads(text))
  except _NO_JSON as error:
    return ToolCall(problem=f"the tool call is no JSON ({error}): {_EXPECTED}")


def _read_list(text: str) -> list[ToolCall]:
  try:
    values, _ = json.JSONDecoder().raw_decode(text)
  except _NO_JSON as error:
    return [ToolCall(problem=f"the calls are no JSON ({error}): {_EXPECTED}")]
  return [_call(value) for value in values]


def _call(value: Any) -> ToolCall:
  """Returns the call that a JSON value describes."""
  if not isinstance(value, dict) or not isinstance(value.get("name"), str):
    return ToolCall(problem=f"{json.dumps(value)[:80]}: {_EXPECTED}")
  given = next((value[key] for key in _ARGUMENTS if key in value), {})
  if isinstance(given, str):  # Some models write the arguments as a text.
    try:
      given = json.loads(given)
    except _NO_JSON:
      pass
  if not isinstance(given, dict):
    return ToolCall(problem=f"arguments {given!r:.80}: expected an object")
  return ToolCall(value["name"], given)
