"""A folder of a user's prompts: filling placeholders, and wrong files."""

import codecs

import pytest

from azr_jax.tasks import templates
from azr_jax.tasks.templates import PromptFile

FILES = {
  "ask": PromptFile(("QUESTION",), ("HINT",)),
  "tell": PromptFile(("ANSWER",), default="It is {ANSWER}."),
}


def write(folder, **texts):
  for name, text in texts.items():
    (folder / f"{name}.txt").write_text(text)
  return str(folder)


def test_values_replace_placeholders_once(tmp_path):
  folder = write(tmp_path, ask="{{a}} {QUESTION} {HINT} {QUESTION}\n\n")
  read = templates.read(folder, FILES)
  # A value that looks like a placeholder is not filled.
  text = read.fill("ask", QUESTION="{HINT}?", HINT=1)
  assert text == "{a} {HINT}? 1 {HINT}?\n"
  assert read.fill("tell", ANSWER=2) == "It is 2."
  read.require(FILES)


@pytest.mark.parametrize(
  "texts, error",
  [
    ({}, "expected a folder with files such as ask.txt"),
    ({"ask": "a\n{QUESTON}"}, r"line 2 has {QUESTON}: expected one of"),
    ({"ask": "{HINT}"}, r"ask.txt: expected {QUESTION} in it"),
    ({"ask": "{QUESTION}\n{'a': 2}"}, "line 2 has a single '{': expected it"),
    (
      {"asks": "{QUESTION}"},
      "asks.txt: this command uses no .* only ask.txt, te",
    ),
  ],
)
def test_a_wrong_file_is_named_in_one_line(tmp_path, texts, error):
  with pytest.raises(ValueError, match=error) as raised:
    templates.read(write(tmp_path, **texts), FILES)
  assert "\n" not in str(raised.value)


def test_a_missing_file_is_named_with_its_placeholders(tmp_path):
  read = templates.read(write(tmp_path, tell="{ANSWER}"), FILES)
  for use in (lambda: read.require(FILES), lambda: read.fill("ask")):
    with pytest.raises(ValueError, match="ask.txt: there is .*{QUESTION}"):
      use()


def test_a_file_that_is_no_text_is_named(tmp_path):
  (tmp_path / "ask.txt").write_bytes(b"\xff\xfe")
  with pytest.raises(ValueError, match="ask.txt: expected a prompt as UTF-8"):
    templates.read(str(tmp_path), FILES)


def test_a_byte_order_mark_is_no_part_of_a_prompt(tmp_path):
  plain = templates.read(write(tmp_path, ask="{QUESTION}\r\n"), FILES)
  (tmp_path / "ask.txt").write_bytes(codecs.BOM_UTF8 + b"{QUESTION}\n")
  again = templates.read(str(tmp_path), FILES)
  assert again == plain and again.digest == plain.digest
  write(tmp_path, ask="{QUESTION}.")
  changed = templates.read(str(tmp_path), FILES).digest
  assert templates.changed(changed, plain.digest) == ["ask"]


def test_digests_name_the_prompts_that_differ():
  digest, other = "a=1 b=2", "b=3 c=4"
  assert templates.changed(digest, other) == ["a", "b", "c"]
  assert templates.changed(digest, other, in_both=True) == ["b"]
  assert templates.changed(digest, "") == ["a", "b"]
  assert templates.joined(digest, "c=4") == "a=1 b=2 c=4"
