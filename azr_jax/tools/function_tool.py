"""User functions as tools: schemas, and calls with checked arguments.

A tool is a function with annotated parameters. Its docstring describes the
tool, and the `Args:` section describes each parameter:

  def lookup(city: str, days: int = 1) -> str:
    '''Returns the weather forecast of a city.

    Args:
      city: the city's name.
      days: how many days ahead.
    '''

Annotations may be str, int, float, bool, list, dict, Literal, and unions of
these; any other annotation accepts any JSON value.
"""

import asyncio
import dataclasses
import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

from azr_jax.tools.tool_calls import ToolCall

_SIMPLE = {
  str: "string",
  int: "integer",
  float: "number",
  bool: "boolean",
  list: "array",
  dict: "object",
  type(None): "null",
}
_SECTION = re.compile(r"^\s*(Args|Arguments|Parameters|Returns|Raises):\s*$")
_PARAMETER = re.compile(r"^\s*\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)$")


@dataclasses.dataclass(frozen=True)
class Tool:
  """A function that a model may call.

  Attributes:
    name: the function's name.
    function: the function; it is called with checked arguments.
    schema: the tool's schema in OpenAI's format.
  """

  name: str
  function: Callable[..., Any]
  schema: Mapping[str, Any]

  def call(self, arguments: Mapping[str, Any]) -> str:
    """Returns the function's output as text.

    Raises:
      Exception: whatever the function raises.
      TypeError: the arguments do not match the schema.
    """
    properties = self.schema["function"]["parameters"]
    _check(arguments, properties)
    value = self.function(**arguments)
    if inspect.iscoroutine(value):
      value = asyncio.run(value)
    return value if isinstance(value, str) else repr(value)


def make(function: Callable[..., Any]) -> Tool:
  """Returns a function as a tool.

  Raises:
    ValueError: a parameter has no annotation or cannot be passed by name.
  """
  name = getattr(function, "__name__", type(function).__name__)
  hints = typing.get_type_hints(function)
  text, described = _docstring(inspect.getdoc(function) or "")
  properties, required = {}, []
  for parameter in inspect.signature(function).parameters.values():
    if parameter.kind not in (1, 3) or parameter.name not in hints:
      raise ValueError(
        f"tool {name}: parameter {parameter.name!r}: expected a keyword "
        "parameter with an annotation, such as city: str"
      )
    schema = _schema(hints[parameter.name])
    if parameter.name in described:
      schema["description"] = described[parameter.name]
    properties[parameter.name] = schema
    if parameter.default is parameter.empty:
      required.append(parameter.name)
  parameters = {
    "type": "object",
    "properties": properties,
    "required": required,
  }
  function_schema = {
    "name": name,
    "description": text,
    "parameters": parameters,
  }
  return Tool(name, function, {"type": "function", "function": function_schema})


def run(tools: Mapping[str, Tool], call: ToolCall) -> tuple[str, bool]:
  """Returns a call's output and whether it is an error.

  Whatever a tool raises becomes its output, so that the model can correct
  itself.
  """
  if call.problem:
    return f"Error: {call.problem}", True
  if call.name not in tools:
    return f"Error: no tool {call.name!r}: expected {sorted(tools)}", True
  try:
    return tools[call.name].call(call.arguments), False
  except Exception as error:  # noqa: BLE001 - shown to the model.
    text = " ".join(str(error).split())[:300]
    return f"Error: {type(error).__name__}: {text}", True


def _schema(annotation: Any) -> dict[str, Any]:
  """Returns the JSON schema of an annotation; {} accepts any value."""
  origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
  if annotation in _SIMPLE:
    return {"type": _SIMPLE[annotation]}
  if origin is typing.Literal:
    return {"enum": list(inner)}
  if origin in (typing.Union, types.UnionType):
    return {"anyOf": [_schema(one) for one in inner]}
  if origin is list:
    return {"type": "array", "items": _schema(inner[0])}
  if origin is dict:
    return {"type": "object", "additionalProperties": _schema(inner[1])}
  return {}


def _check(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> None:
  """Raises TypeError if the arguments do not match a tool's schema."""
  properties = schema["properties"]
  for name in schema["required"]:
    if name not in arguments:
      raise TypeError(f"argument {name!r} is missing")
  for name, value in arguments.items():
    if name not in properties:
      raise TypeError(f"argument {name!r}: expected one of {list(properties)}")
    if not _fits(value, properties[name]):
      wanted = {k: v for k, v in properties[name].items() if k != "description"}
      raise TypeError(f"argument {name!r} is {value!r:.60}: expected {wanted}")


def _fits(value: Any, schema: Mapping[str, Any]) -> bool:
  """Returns whether a JSON value matches a schema."""
  if "anyOf" in schema:
    return any(_fits(value, one) for one in schema["anyOf"])
  if "enum" in schema:
    return value in schema["enum"]
  kind = schema.get("type")
  if kind in ("integer", "number") and isinstance(value, bool):
    return False
  if kind == "number":
    return isinstance(value, int | float)
  expected = [one for one, name in _SIMPLE.items() if name == kind]
  if expected and not isinstance(value, expected[0]):
    return False
  if isinstance(value, list):
    return all(_fits(item, schema.get("items", {})) for item in value)
  if isinstance(value, dict):
    inner = schema.get("additionalProperties", {})
    return all(_fits(item, inner) for item in value.values())
  return True


def _docstring(text: str) -> tuple[str, dict[str, str]]:
  """Returns a docstring's description and its parameter descriptions."""
  about: list[str] = []
  parameters: dict[str, str] = {}
  section, last, margin = "", "", None
  for line in text.splitlines():
    heading = _SECTION.match(line)
    if heading:
      section, last, margin = heading[1], "", None
    elif not section:
      about.append(line)
    elif section in ("Args", "Arguments", "Parameters") and line.strip():
      indent = len(line) - len(line.lstrip())
      margin = indent if margin is None else margin
      found = _PARAMETER.match(line)
      if found and indent == margin:
        last = found[1]
        parameters[last] = found[2].strip()
      elif last:
        parameters[last] += f" {line.strip()}"
  return "\n".join(about).strip(), parameters
