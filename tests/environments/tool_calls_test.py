"""Tests of the readers of tool calls."""

import pytest

from azr_jax.environments import tool_calls

CALL = '{"name": "add", "arguments": {"a": 1}}'
NESTED = '{"name": "add", "arguments": ' + '{"a": ' * 20_000


@pytest.mark.parametrize(
  "reply, names, around",
  [
    (f"so <tool_call>{CALL}</tool_call> then", ["add"], "so  then"),
    (f"<tool_call>{CALL}</tool_call><tool_call>{CALL}", ["add", "add"], ""),
    (f"first [TOOL_CALLS] [{CALL}, {CALL}]", ["add", "add"], "first"),
    (f"so\n```json\n{CALL}\n```", ["add"], "so"),
    (f"<|python_tag|>{CALL.replace('arguments', 'parameters')}", ["add"], ""),
    ('{"a": 1}', [], '{"a": 1}'),
    ("the sum is 3", [], "the sum is 3"),
  ],
)
def test_every_format_is_read(reply, names, around):
  calls, text = tool_calls.find(reply)
  assert ([call.name for call in calls], text) == (names, around)
  assert all(call.arguments == {"a": 1} for call in calls)


@pytest.mark.parametrize(
  "inside", ["add(1)", "[]", '{"arguments": {}}', CALL[:-9] + "[1]}", NESTED]
)
@pytest.mark.parametrize(
  "frame", ["<tool_call>{}</tool_call>", "[TOOL_CALLS] [{}]"]
)
def test_a_call_that_cannot_be_read_says_so(inside, frame):
  [call], _ = tool_calls.find(frame.replace("{}", inside))
  assert not call.name and "expected" in call.problem


def test_arguments_may_be_a_text():
  [call], _ = tool_calls.find(CALL.replace('{"a": 1}', r'"{\"a\": 1}"'))
  assert call == tool_calls.ToolCall("add", {"a": 1})
