"""A user's conversations: prompts with completions, and chats."""

import json

import pytest
from typed import stand_in

from azr_jax.corpora import registry
from azr_jax.corpora.registry import Resources
from azr_jax.corpora.rows import RowCorpusSettings

USER, BOT, END = "user", "assistant", 0
CHAT = [
  {"role": USER, "content": "a"},
  {"role": BOT, "content": "bc"},
  {"role": USER, "content": "d"},
  {"role": BOT, "content": "e"},
]
IN_PARTS = [{"role": USER, "content": [{"type": "text", "text": "a"}]}]


class Plain:
  """A tokenizer with one token per letter; a tilde ends a turn."""

  eos_ids = (END,)
  has_chat_template = False

  def encode(self, text):
    return [END if letter == "~" else ord(letter) for letter in text]

  def encode_prompt(self, text):
    return [1, *self.encode(text)]


class Chatty(Plain):
  has_chat_template = True

  def apply_chat_template(
    self,
    messages,
    is_answered=False,
    tools=(),
    is_continued=False,
    arguments=None,
  ):
    marks = {USER: "U", BOT: "B", "system": "S"}
    text = "".join(f"{marks[m['role']]}{m['content']}~" for m in messages)
    if is_continued:
      return text.removesuffix("~")
    return f"{text}B{(arguments or {}).get('mode', '')}"


def tokens(tmp_path, record, tokenizer, **settings):
  """Returns the trained text and the whole text of a one-row file."""
  path = tmp_path / "rows.jsonl"
  path.write_text(json.dumps(record) + "\n")
  settings = RowCorpusSettings(data=str(path), **settings)
  corpus = registry.KINDS["rows"].build(settings, stand_in(Resources))
  ids, mask = corpus.conversations[0].tokens(tokenizer)
  letters = ["~" if i == END else "^" if i == 1 else chr(i) for i in ids]
  trained = [x for x, own in zip(letters, mask, strict=True) if own]
  return "".join(letters), "".join(trained)


@pytest.mark.parametrize(
  "record, tokenizer, settings, expected",
  [
    ({"prompt": "q=", "completion": "7"}, Plain(), {}, ("^q=7~", "7~")),
    (
      {"prompt": "q=", "completion": "7"},
      Plain(),
      {"system_prompt": "s"},
      ("^s\n\nq=7~", "7~"),
    ),
    ({"prompt": "q", "completion": "7"}, Chatty(), {}, ("^Uq~B7~", "7~")),
    (
      {"prompt": "q", "completion": "7"},
      Chatty(),
      {"chat": "off"},
      ("^q7~", "7~"),
    ),
    (
      {"messages": CHAT},
      Chatty(),
      {"prompt_column": "messages", "system_prompt": "s"},
      ("^Ss~Ua~Bbc~Ud~Be~", "bc~e~"),
    ),
    (
      {"prompt": CHAT[:1], "completion": CHAT[1:2]},
      Chatty(),
      {},
      ("^Ua~Bbc~", "bc~"),
    ),
    (
      {"prompt": IN_PARTS, "completion": CHAT[1:2]},
      Chatty(),
      {"chat_template_kwargs": '{"mode": "x"}'},
      ("^Ua~Bxbc~", "bc~"),
    ),
    (
      {"prompt": CHAT[:2], "completion": "7"},
      Chatty(),
      {"continue_final_message": True},
      ("^Ua~Bbc7~", "7~"),
    ),
    (
      {"messages": CHAT},
      Chatty(),
      {"prompt_column": "messages", "prefill": "b"},
      ("^Ua~Bbc~Ud~Bbe~", "c~e~"),
    ),
    (
      {"prompt": "q=", "completion": "7"},
      Plain(),
      {"prefill": "7"},
      ("^q=7~", "~"),
    ),
  ],
)
def test_what_the_assistant_writes_is_trained_on(
  tmp_path, record, tokenizer, settings, expected
):
  assert tokens(tmp_path, record, tokenizer, **settings) == expected


@pytest.mark.parametrize(
  "record, settings, message",
  [
    ({"prompt": "q"}, {}, "row 1: expected a text in column 'completion'"),
    ({"messages": CHAT[:1]}, {"prompt_column": "messages"}, "or messages that"),
    (
      {"prompt": CHAT[:2]},
      {"continue_final_message": True},
      "row 1: expected a text in column 'completion'",
    ),
    (
      {
        "prompt": "q",
        "completion": [{"role": BOT, "content": [{"type": "audio"}]}],
      },
      {},
      "row 1, column 'completion': content part of type 'audio'",
    ),
  ],
)
def test_a_row_without_an_answer_is_named(tmp_path, record, settings, message):
  with pytest.raises(ValueError, match=message):
    tokens(tmp_path, record, Plain(), **settings)


def test_data_must_be_named():
  with pytest.raises(ValueError, match="config.rows.data='': expected a file"):
    registry.KINDS["rows"].build(RowCorpusSettings(), stand_in(Resources))


class NoSystem(Chatty):
  def apply_chat_template(self, messages, *args, **kwargs):
    others = [m for m in messages if m["role"] != "system"]
    return super().apply_chat_template(others, *args, **kwargs)


@pytest.mark.parametrize(
  "tokenizer, system_prompt, count",
  [(NoSystem(), "s", 1), (NoSystem(), "", 0), (Chatty(), "s", 0)],
)
def test_a_corpus_says_that_templates_have_no_system_role(
  tmp_path, tokenizer, system_prompt, count
):
  path = tmp_path / "rows.jsonl"
  path.write_text(json.dumps({"prompt": "q", "completion": "7"}) + "\n")
  settings = RowCorpusSettings(data=str(path), system_prompt=system_prompt)
  said = []
  corpus = registry.KINDS["rows"].build(settings, stand_in(Resources))
  corpus.check(tokenizer, said.append)
  assert len(said) == count
  assert all("no system role" in text for text in said)
