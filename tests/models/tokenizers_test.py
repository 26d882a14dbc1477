"""Both tokenizers behind the interface, with and without torch."""

import json
import subprocess
import sys

import pytest
import transformers
from tokenizer_files import EOS, TEXT, save_tokenizer
from typed import instance_of, present

from azr_jax.models import load, tokenizers
from azr_jax.models.tokenizers import HuggingFaceTokenizer


@pytest.fixture
def folder(tmp_path):
  """Saves a small byte-level tokenizer in Hugging Face format."""
  save_tokenizer(tmp_path)
  return tmp_path


def sentencepiece():
  return tokenizers.SentencePieceTokenizer(
    load.EMBEDDED["azr-tiny"] / "tokenizer.model"
  )


def test_huggingface_interface(folder):
  tokenizer = tokenizers.from_folder(folder)
  assert isinstance(tokenizer, tokenizers.HuggingFaceTokenizer)
  assert isinstance(tokenizer, tokenizers.Tokenizer)
  ids = tokenizer.encode(TEXT)
  assert tokenizer.decode(ids) == TEXT
  assert tokenizer.decode([*ids, *tokenizer.eos_ids]) == TEXT
  assert tokenizer.eos_ids == (tokenizer.token_id(EOS),)
  assert tokenizer.pad_id in tokenizer.eos_ids
  assert tokenizer.token_id("</answer>") is None


def test_sentencepiece_interface():
  tokenizer = sentencepiece()
  assert isinstance(tokenizer, tokenizers.Tokenizer)
  ids = tokenizer.encode(TEXT)
  assert tokenizer.decode([*ids, *tokenizer.eos_ids]) == TEXT
  assert 0 <= tokenizer.pad_id < tokenizer.vocab_size
  tag = present(tokenizer.token_id("</answer>"))
  assert tokenizer.decode([tag]) == "</answer>"
  assert tokenizer.token_id("</answer>\n\n") is None


@pytest.mark.parametrize(
  "files, want",
  [
    ({"generation_config.json": [7, 3, 5], "config.json": 3}, (0, 3, 7, 5)),
    ({"generation_config.json": None, "config.json": 3}, (0, 3)),
    ({"generation_config.json": [0, 7]}, (0, 7)),
    ({"config.json": None}, (0,)),
    ({"config.json": -1, "generation_config.json": [99999, 7]}, (0, 7)),
    ({}, (0,)),
  ],
)
def test_where_generation_ends(folder, files, want):
  for name, ids in files.items():
    described = {"model_type": "llama", "eos_token_id": ids}
    (folder / name).write_text(json.dumps(described))
  tokenizer = tokenizers.from_folder(folder)
  assert tokenizer.eos_ids == want
  (folder / "again").mkdir()
  tokenizer.save(folder / "again")
  assert tokenizers.from_folder(folder / "again").eos_ids == want


def test_it_says_which_file_names_an_end(folder):
  generation = {"eos_token_id": [7, 0]}
  (folder / "generation_config.json").write_text(json.dumps(generation))
  loaded = tokenizers.from_folder(folder)
  assert instance_of(HuggingFaceTokenizer, loaded).end_tokens == (
    "'<|endoftext|>' (0, from the tokenizer and generation_config.json), "
    '"\'" (7, from generation_config.json)'
  )


def test_it_says_which_ends_the_vocabulary_lacks(folder):
  for name, ids in {
    "config.json": -1,
    "generation_config.json": [0, 99999],
  }.items():
    (folder / name).write_text(json.dumps({"eos_token_id": ids}))
  loaded = tokenizers.from_folder(folder)
  assert instance_of(HuggingFaceTokenizer, loaded).end_tokens == (
    "'<|endoftext|>' (0, from the tokenizer and generation_config.json); "
    "ignored, not in the vocabulary: -1 (from config.json), 99999 (from "
    "generation_config.json)"
  )


def test_tags_that_are_special_tokens_are_decoded(folder):
  loaded = present(transformers.AutoTokenizer.from_pretrained(str(folder)))
  loaded.add_special_tokens(
    {
      "bos_token": "<s>",
      "pad_token": "<pad>",
      "additional_special_tokens": ["<think>", "[TOOL_CALLS]"],
    }
  )
  tokenizer = tokenizers.HuggingFaceTokenizer(loaded, [0])
  text = "<s><think>f</think>[TOOL_CALLS]<|endoftext|><pad>"
  ids = tokenizer.encode(text)
  assert tokenizer.decode(ids) == "<think>f</think>[TOOL_CALLS]"
  assert tokenizer.decode(ids, skip_special=True) == "f</think>"


def test_an_end_that_is_no_special_token_is_text(folder):
  loaded = present(transformers.AutoTokenizer.from_pretrained(str(folder)))
  loaded.add_tokens(["<turn>"])
  turn = instance_of(int, loaded.convert_tokens_to_ids("<turn>"))
  tokenizer = tokenizers.HuggingFaceTokenizer(loaded, [0, turn, 7])
  assert tokenizer.decode([7, turn, 0]) == "'<turn>"


def test_ids_may_have_gaps(folder):
  path = folder / "tokenizer.json"
  described = json.loads(path.read_text())
  described["model"]["vocab"]["far"] = 1000
  path.write_text(json.dumps(described))
  assert tokenizers.from_folder(folder).vocab_size == 1001


def test_a_normalizer_that_makes_gigabytes_of_a_letter_is_refused(folder):
  path = folder / "tokenizer.json"
  described = json.loads(path.read_text())
  replace = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 40}
  for count, message in (
    (1, ""),
    (5, "1e\\+08 times as long: expected at most"),
  ):
    parts = {"type": "Sequence", "normalizers": [replace] * count}
    path.write_text(json.dumps(described | {"normalizer": parts}))
    if not message:
      assert tokenizers.from_folder(folder)
      continue
    with pytest.raises(ValueError, match=message):
      tokenizers.from_folder(folder)


def test_code_of_a_tokenizer_is_never_run(folder, tmp_path):
  code = f"open({str(tmp_path / 'ran')!r}, 'w')"
  (folder / "own.py").write_text(code)
  path = folder / "tokenizer_config.json"
  described = json.loads(path.read_text())
  described["auto_map"] = {"AutoTokenizer": [None, "own.Own"]}
  path.write_text(json.dumps(described))
  with pytest.raises(ValueError, match="^.*auto_map.*: expected.*$"):
    tokenizers.from_folder(folder)
  assert not (tmp_path / "ran").exists()


def test_saved_tokenizers_load_again(folder, tmp_path):
  for name, tokenizer in (
    ("huggingface", tokenizers.from_folder(folder)),
    ("sentencepiece", sentencepiece()),
  ):
    saved = tmp_path / name
    saved.mkdir()
    tokenizer.save(saved)
    again = tokenizers.from_folder(saved)
    assert type(again) is type(tokenizer)
    assert again.encode(TEXT) == tokenizer.encode(TEXT)
    assert (again.eos_ids, again.pad_id) == (
      tokenizer.eos_ids,
      tokenizer.pad_id,
    )


# Users may lack torch, so this program blocks its import.
WITHOUT_TORCH = """
import importlib.metadata, importlib.util, sys

class Absent:
  def find_spec(self, name, path=None, target=None):
    if name.partition(".")[0] in ("torch", "accelerate"):
      raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Absent())
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: (
  None if name.partition(".")[0] == "torch" else real(name, package))

import pathlib
from azr_jax.models import gguf_tokenizer, load, tokenizers
assert "torch" not in sys.modules
tokenizer = tokenizers.from_folder(pathlib.Path(sys.argv[1]))
assert tokenizer.decode(tokenizer.encode("a b")) == "a b"
tokens = ["a", "b", "ab", "<e>"]
tokenizer = gguf_tokenizer.from_metadata({
  "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm",
  "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.merges": ["a b"],
  "tokenizer.ggml.token_type": [1, 1, 1, 3],
  "tokenizer.ggml.eos_token_id": 3})
assert tokenizer.encode("aab<e>") == [0, 2, 3]
"""


def test_nothing_needs_torch(folder):
  done = subprocess.run(
    [sys.executable, "-c", WITHOUT_TORCH, str(folder)],
    capture_output=True,
    text=True,
    timeout=120,
    check=False,
  )
  assert done.returncode == 0, done.stderr
