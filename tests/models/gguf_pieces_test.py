"""Vocabularies of GGUF files split texts as sentencepiece does."""

import io

import pytest
import sentencepiece
from hypothesis import example, given
from hypothesis import strategies as st

from azr_jax.models import character_tokenizer, gguf_tokenizer, load

SPACE = character_tokenizer.SPACE
SYMBOLS = ["\n", "\n\n", "\n\n\n", "  ", "   ", "<b>"]
CORPUS = (
  "The cat sat on the mat, and the other cat thought that it was that cat. "
  "aaaa aaaaaaa abababab naïve 東京 x = x + 1 # 10 100 1000 "
)


def make_model():
  """Returns a small BPE model of sentencepiece, made as Gemma's."""
  out = io.BytesIO()
  sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter([CORPUS] * 4),
    model_writer=out,
    model_type="bpe",
    vocab_size=400,
    byte_fallback=True,
    split_digits=True,
    add_dummy_prefix=False,
    remove_extra_whitespaces=False,
    normalization_rule_name="identity",
    user_defined_symbols=[s.replace(" ", SPACE) for s in SYMBOLS],
    pad_id=0,
    eos_id=1,
    bos_id=2,
    unk_id=3,
    hard_vocab_limit=False,
    num_threads=1,
    minloglevel=2,
  )
  return sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())


MODEL = make_model()


def kind_of(index):
  """Returns a piece's `tokenizer.ggml.token_type`."""
  if MODEL.is_control(index):
    return 3
  if MODEL.is_unknown(index):
    return 2
  if MODEL.is_byte(index):
    return 6
  return 4 if MODEL.id_to_piece(index).replace(SPACE, " ") in SYMBOLS else 1


def metadata_of_model():
  """Returns the metadata that llama.cpp's converter writes for the model."""
  types = [kind_of(index) for index in range(len(MODEL))]
  pieces = [MODEL.id_to_piece(index) for index in range(len(MODEL))]
  return {
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.pre": "default",
    "tokenizer.ggml.tokens": [
      piece.replace(SPACE, " ") if kind == 4 else piece
      for piece, kind in zip(pieces, types, strict=True)
    ],
    "tokenizer.ggml.scores": [MODEL.get_score(i) for i in range(len(MODEL))],
    "tokenizer.ggml.token_type": types,
    "tokenizer.ggml.bos_token_id": 2,
    "tokenizer.ggml.eos_token_id": 1,
    "tokenizer.ggml.padding_token_id": 0,
    "tokenizer.ggml.unknown_token_id": 3,
    "tokenizer.ggml.add_space_prefix": False,
  }


METADATA = metadata_of_model()
OURS = gguf_tokenizer.from_metadata(METADATA)
# Sentencepiece cannot tell its own character for a space from one.
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters=SPACE))
WORDS = st.lists(st.sampled_from([*"aab \n\t1", *CORPUS.split(), *SYMBOLS]))


@given(TEXTS | WORDS.map("".join))
@example("the cat  sat\n\n\n\nthat\r\n\t 1000   aaaaaaaaaaa")
@example(" the 東京 \0 🙂<b>é</b>")
def test_ids_are_those_of_sentencepiece_and_decode_to_the_text(text):
  # Control tokens are found in texts, which sentencepiece leaves to others.
  if any(token in text for token in ("<s>", "</s>", "<pad>", "<unk>")):
    return
  ids = OURS.encode(text)
  assert ids == MODEL.encode(text)
  assert OURS.decode(ids) == text


def test_bos_starts_a_prompt_and_control_tokens_are_found():
  assert OURS.encode_prompt("the") == [2, *MODEL.encode("the")]
  assert OURS.encode("a</s>") == [*MODEL.encode("a"), 1]
  assert OURS.eos_ids == (1,) and OURS.pad_id == 0
  without = METADATA | {"tokenizer.ggml.add_bos_token": False}
  assert gguf_tokenizer.from_metadata(without).encode_prompt("") == []


@pytest.mark.parametrize(
  "key, value",
  [
    ("add_space_prefix", None),
    ("add_space_prefix", True),
    ("remove_extra_whitespaces", True),
    ("precompiled_charsmap", [1, 2]),
  ],
)
def test_changes_of_texts_are_refused(key, value):
  changed = METADATA | {f"tokenizer.ggml.{key}": value}
  if value is None:
    del changed[f"tokenizer.ggml.{key}"]
  with pytest.raises(ValueError, match=f"tokenizer.ggml.{key}=.*: expected"):
    gguf_tokenizer.from_metadata(changed)


def test_what_is_read_is_written():
  written = gguf_tokenizer.metadata(OURS, len(MODEL) + 2)
  name = "tokenizer.ggml.tokens"
  assert written[name][:-2] == METADATA[name]
  assert written[name][-1] == f"[PAD{len(MODEL) + 1}]"
  again = gguf_tokenizer.from_metadata(written)
  for text in (CORPUS, "aaaaaaab\n\n\n  <b>🙂", ""):
    assert again.encode_prompt(text) == OURS.encode_prompt(text)
  assert again.eos_ids == OURS.eos_ids and again.pad_id == OURS.pad_id


def test_embedded_tokenizers_are_read_back():
  theirs = load.resolve("embedded:azr-tiny", "").tokenizer
  written = gguf_tokenizer.metadata(theirs, theirs.vocab_size)
  ours = gguf_tokenizer.from_metadata(written)
  for text in ("def f(x):\n  return x  # é 😀\n\t<think>", " a", ""):
    assert ours.encode(text) == theirs.encode(text)
    assert ours.decode(ours.encode(text)) == text
