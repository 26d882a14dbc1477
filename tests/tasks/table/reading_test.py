"""User data: files, columns, templates, chats, held-out rows."""

import gzip
import json
import sys

import numpy as np
import pyarrow as pa
import pytest
from letters import Letters
from pyarrow import parquet
from typed import instance_of

from azr_jax.config.settings import Invalid
from azr_jax.tasks.table import reading, sums
from azr_jax.tasks.table.prompts import PromptWriter
from azr_jax.tasks.table.reading import Row, RowReader
from azr_jax.tasks.table.settings import TableSettings

ROWS = [{"question": f"{i} + 1 =", "answer": i + 1} for i in range(6)]
CHAT = [
  {"role": "system", "content": "Be brief."},
  {"role": "user", "content": "Hello"},
  {"role": "assistant", "content": "Hi"},
]
IN_PARTS = [
  {
    "role": "user",
    "content": [
      {"type": "text", "text": "Hel"},
      {"type": "text", "text": "lo"},
    ],
  }
]


class Chatty:
  """A tokenizer with a template like those of chat models."""

  has_chat_template = True

  def apply_chat_template(
    self,
    messages,
    is_answered=False,
    tools=(),
    is_continued=False,
    arguments=None,
  ):
    text = "".join(f"<{m['role']}>{m['content']}" for m in messages)
    return text if is_continued else f"{text}<a>"


def written(folder, kind):
  path = folder / f"rows.{kind}"
  lines = "".join(json.dumps(row) + "\n" for row in ROWS)
  if kind == "jsonl":
    path.write_text(lines)
  elif kind == "jsonl.gz":
    path.write_bytes(gzip.compress(lines.encode()))
  elif kind == "json":
    path.write_text(json.dumps(ROWS))
  elif kind == "csv":
    path.write_text(
      "question,answer\n" + "".join(f"{i} + 1 =,{i + 1}\n" for i in range(6))
    )
  else:
    parquet.write_table(pa.Table.from_pylist(ROWS), path)
  return path


@pytest.mark.parametrize(
  "kind", ["jsonl", "jsonl.gz", "json", "csv", "parquet"]
)
def test_files_of_all_kinds_have_the_same_rows(tmp_path, kind):
  path = written(tmp_path, kind)
  rows = RowReader(prompt_column="question").read(str(path))
  assert [row.prompt for row in rows] == [row["question"] for row in ROWS]
  assert [int(row.columns["answer"]) for row in rows] == [1, 2, 3, 4, 5, 6]


def test_sources_are_joined_and_limited(tmp_path):
  data = f"{written(tmp_path, 'json')}, {written(tmp_path, 'csv')}"
  rows = RowReader(prompt_column="question", limit=4).read(data)
  assert [row.source for row in rows] == [0] * 4 + [1] * 4
  digests = {reading.digest(rows[:count]) for count in range(9)}
  assert len(digests) == 9 and reading.digest(rows[:8]) in digests


@pytest.mark.parametrize(
  "settings, message",
  [
    ({}, "prompt_column='prompt': data, row 1 has no such column: .*'answer'"),
    ({"prompt_column": "questoin"}, "did you mean 'question'?"),
    (
      {"prompt_column": "answer"},
      "column 'answer': 1: expected a text, or mess",
    ),
    ({"prompt_template": "{gold}"}, "cannot be filled .KeyError: 'gold'."),
    ({"prompt_template": "\\boxed{}"}, "double literal braces"),
  ],
)
def test_a_row_without_a_prompt_is_named(settings, message):
  with pytest.raises(ValueError, match=message) as refusal:
    RowReader(**settings).of_records(ROWS)
  assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("value", [[], [{"role": "user"}], [1], CHAT[2:], None])
def test_messages_must_ask_something(value):
  with pytest.raises(ValueError, match="data, row 1"):
    RowReader().of_records([{"prompt": value}])


def test_columns_fill_a_template():
  reader = RowReader(prompt_template="Q: {question}\nA: \\boxed{{")
  [row, *_] = reader.of_records(ROWS)
  assert row.prompt == "Q: 0 + 1 =\nA: \\boxed{"


@pytest.mark.parametrize(
  "prompt, settings, tokenizer, text",
  [
    ("2+2=", {}, Letters, "2+2="),
    ("2+2=", {"system_prompt": "Add."}, Letters, "Add.\n\n2+2="),
    ("2+2=", {}, Chatty, "<user>2+2=<a>"),
    ("2+2=", {"chat": "off"}, Chatty, "2+2="),
    ("2+2=", {"system_prompt": "Add."}, Chatty, "<system>Add.<user>2+2=<a>"),
    (
      CHAT,
      {"system_prompt": "Add."},
      Chatty,
      "<system>Be brief.<user>Hello<a>",
    ),
    (CHAT[1:], {"system_prompt": "X"}, Chatty, "<system>X<user>Hello<a>"),
    (
      CHAT[1:],
      {"continue_final_message": True},
      Chatty,
      "<user>Hello<assistant>Hi",
    ),
    (
      CHAT[1:],
      {"continue_final_message": True, "prefill": "!"},
      Chatty,
      "<user>Hello<assistant>Hi!",
    ),
    ("2+2=", {"prefill": "It"}, Chatty, "<user>2+2=<assistant>It"),
    ("2+2=", {"prefill": "It", "system_prompt": "A"}, Letters, "A\n\n2+2=It"),
    (IN_PARTS, {}, Chatty, "<user>Hello<a>"),
    (np.array(IN_PARTS), {}, Chatty, "<user>Hello<a>"),
  ],
)
def test_a_prompt_is_a_text_or_a_chat(prompt, settings, tokenizer, text):
  settings = TableSettings(**settings)
  [row] = settings.reader.of_records([{"prompt": prompt}])
  assert settings.writer.text(row, tokenizer()) == text


def test_parts_that_are_no_texts_are_named():
  image = {"type": "image_url", "image_url": {"url": "x"}}
  for content in ([image], [*IN_PARTS[0]["content"], image]):
    record = {"prompt": [{"role": "user", "content": content}]}
    with pytest.raises(ValueError, match="row 1, column 'prompt': .*image_url"):
      RowReader().of_records([record])


def test_answers_that_prompts_leave_out_are_counted():
  records = [{"prompt": CHAT}, {"prompt": CHAT[:2]}, {"prompt": "2+2="}]
  for continues, count in ((False, 1), (True, 0)):
    reader = RowReader(continue_final_message=continues)
    rows = reader.of_records(records)
    assert reader.answers_left_out(rows) == count
    assert [row.prefill for row in rows] == ["Hi" * continues, "", ""]


def test_a_beginning_is_part_of_the_data():
  rows = [
    RowReader(prefill=prefill).of_records([{"prompt": CHAT}])
    for prefill in ("", "<think>")
  ]
  assert reading.digest(rows[0]) != reading.digest(rows[1])


def test_arguments_of_a_template_need_chats():
  settings = TableSettings(chat_template_kwargs='{"a": 1}')
  with pytest.raises(Invalid, match="chat_template_kwargs='{\"a\": 1}': expec"):
    settings.writer.text(Row("a", {}), Letters())


def test_a_chat_needs_a_template():
  row = Row(tuple(CHAT[:2]), {})
  with pytest.raises(ValueError, match="need a model with a chat template"):
    PromptWriter().text(row, Letters())
  with pytest.raises(ValueError, match="chat='on': the model has no chat"):
    PromptWriter(chat="on").text(Row("a", {}), Letters())


def test_held_out_rows_are_the_same_in_each_process():
  rows = RowReader(prompt_column="question").of_records(ROWS)
  kept, held = reading.hold_out(rows, 0.34, seed=0)
  assert (kept, held) == reading.hold_out(rows, 0.34, seed=0)
  assert len(kept) == 4 and len(held) == 2
  assert {row.prompt for row in kept + held} == {row.prompt for row in rows}
  assert reading.hold_out(rows, 0.0, seed=0) == (rows, [])
  others = [reading.hold_out(rows, 0.34, seed=s)[1] for s in range(1, 9)]
  assert any(other != held for other in others)


def test_the_embedded_sums_are_right():
  rows = RowReader(limit=50).read("embedded:sums")
  for row in rows:
    [expression] = [
      line.removeprefix(sums._TASK).removesuffix(" =")
      for line in instance_of(str, row.prompt).splitlines()[:1]
    ]
    assert str(eval(expression)) == row.columns["answer"]
  with pytest.raises(ValueError, match="one of .'sums',."):
    RowReader().read("embedded:sum")


def test_a_missing_package_says_what_to_install(monkeypatch):
  monkeypatch.setitem(sys.modules, "datasets", None)
  with pytest.raises(ValueError, match=r"pip install 'azr_jax\[eval\]'"):
    RowReader().read("hf:OWNER/NAME")


def test_unknown_columns_are_the_user_s_fault():
  with pytest.raises(Invalid):
    RowReader().of_records([{"text": "a"}])
