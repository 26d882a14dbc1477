"""Parsing of tool calls."""

import json

import hypothesis
import pytest
from hypothesis import strategies

from azr_jax.tools import tool_calls

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
    (f"<think>it is</think> {CALL}", ["add"], "<think>it is</think>"),
    (f'[{{"a": 1}}] ```json\n{CALL}\n``` end', ["add"], '[{"a": 1}]  end'),
  ],
)
def test_every_format_is_read(reply, names, around):
  calls, text = tool_calls.find(reply)
  assert ([call.name for call in calls], text) == (names, around)
  assert all(call.arguments == {"a": 1} for call in calls)


THOUGHT = (
  f"I may write <tool_call>{CALL}</tool_call>, or\n```json\n{CALL}\n```\n"
)
ANSWERS = [
  '{"name": "Ada", "age": 36}',
  '{"name": "Ada"}',
  'So\n```json\n{"name": "Ada", "age": 36}\n```',
  '{"name": "Ada", "parameters": [1, 2]}',
  '{"type": "function", "function": "sine"}',
]


@pytest.mark.parametrize("reply", ANSWERS)
@pytest.mark.parametrize("thought", ["", "<think>so</think>\n", "so</think>"])
def test_json_without_arguments_is_an_answer(reply, thought):
  assert tool_calls.find(thought + reply) == ([], thought + reply)


@pytest.mark.parametrize(
  "thought",
  [
    f"<think>{THOUGHT}</think>",
    f"{THOUGHT}</think>",
    f"<think>{THOUGHT}</think> so <think>{THOUGHT}</think>",
    f"{CALL}\n</think>",
  ],
)
def test_thoughts_call_nothing(thought):
  assert tool_calls.find(f"{thought} It is 5.") == ([], f"{thought} It is 5.")
  [call], text = tool_calls.find(f"{thought} <tool_call>{CALL}</tool_call>")
  assert (call.name, text) == ("add", thought)
  unclosed = thought.removesuffix("</think>")
  if "<think>" in thought:
    assert tool_calls.find(unclosed) == ([], unclosed)


FRAMES = [
  "<tool_call>\n{}\n</tool_call>",
  "I call.<tool_call>{}",
  "<think>{{}}</think><tool_call>{}</tool_call>",
  "[TOOL_CALLS] [{}]",
  "so\n```json\n{}\n```",
  "{}",
  "so</think>\n{}",
]
JSON = strategies.recursive(
  strategies.none()
  | strategies.booleans()
  | strategies.integers()
  | strategies.floats(allow_nan=False)
  | strategies.text(strategies.characters(exclude_categories=["Cs"]))
  | strategies.sampled_from(
    ["</tool_call>", "<tool_call>{}", "</think>", "<think>", "```json\n{}\n```"]
  ),
  lambda inner: (
    strategies.lists(inner, max_size=3)
    | strategies.dictionaries(strategies.text(max_size=4), inner, max_size=3)
  ),
  max_leaves=6,
)


@hypothesis.settings(max_examples=15)
@hypothesis.given(
  arguments=strategies.dictionaries(strategies.text(max_size=4), JSON),
  is_ascii=strategies.booleans(),
  is_wrapped=strategies.booleans(),
)
def test_all_arguments_are_read_as_they_were_written(
  arguments, is_ascii, is_wrapped
):
  value = {"name": "add", "arguments": arguments}
  if is_wrapped:
    value = {"type": "function", "function": value}
  body = json.dumps(value, ensure_ascii=is_ascii)
  for frame in FRAMES:
    before, _, after = frame.rpartition("{}")
    calls, _ = tool_calls.find(f"{before}{body}{after}")
    assert calls == [tool_calls.ToolCall("add", arguments)], frame


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
