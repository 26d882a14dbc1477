"""Text released while tokens arrive, compared with the whole text."""

import pathlib

import hypothesis
import pytest
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from azr_jax.models import load
from azr_jax.models.tokenizers import (
  HuggingFaceTokenizer,
  SentencePieceTokenizer,
)
from azr_jax.serving.text import Detokenizer, StopFilter


def byte_level():
  """A byte-level BPE, in which non-ASCII characters are several tokens."""
  backend = Tokenizer(models.BPE())
  backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
  backend.decoder = decoders.ByteLevel()
  trainer = trainers.BpeTrainer(
    vocab_size=300,
    initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    special_tokens=["<e>"],
    show_progress=False,
  )
  backend.train_from_iterator(["the cat, the hat, the end"], trainer)
  wrapped = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<e>")
  return HuggingFaceTokenizer(wrapped, [wrapped.eos_token_id])


def sentencepiece():
  folder: pathlib.Path = load.EMBEDDED["azr-tiny"]
  return SentencePieceTokenizer(folder / "tokenizer.model")


TOKENIZERS = {"byte level": byte_level(), "sentencepiece": sentencepiece()}
TEXT = st.text(st.sampled_from("a the\n \u00e9\u4e2d\U0001f642\ufffd<e>"))


def in_parts(tokenizer, ids, sizes):
  detokenizer, parts = Detokenizer(tokenizer), []
  while ids:
    size = next(sizes)
    parts.append(detokenizer.add(ids[:size]))
    ids = ids[size:]
  return [*parts, detokenizer.finish()]


@pytest.mark.parametrize("name", TOKENIZERS)
@hypothesis.given(data=st.data())
def test_parts_are_the_whole_text(name, data):
  tokenizer = TOKENIZERS[name]
  # Encoded texts, and token sequences that are not valid text.
  ids = data.draw(
    TEXT.map(tokenizer.encode)
    | st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=30)
  )
  sizes = iter(data.draw(st.lists(st.integers(1, 4), min_size=200)))
  parts = in_parts(tokenizer, ids, sizes)
  assert "".join(parts) == tokenizer.decode(ids)


def test_a_character_comes_with_its_last_byte():
  tokenizer = TOKENIZERS["byte level"]
  ids = tokenizer.encode("a\U0001f642b")
  assert len(ids) == 6
  parts = in_parts(tokenizer, ids, iter([1] * 6))
  assert parts == ["a", "", "", "", "\U0001f642", "b", ""]


@hypothesis.given(
  parts=st.lists(st.text("abc", max_size=4), max_size=10),
  stops=st.lists(st.text("abc", min_size=1, max_size=4), max_size=3),
)
@hypothesis.example(parts=["bc", "a"], stops=["c", "bca"])
@hypothesis.example(parts=["bca"], stops=["c", "bca"])
def test_a_text_ends_before_the_stop_string_that_is_complete_first(
  parts, stops
):
  found, whole = StopFilter(stops), "".join(parts)
  given = [found.add(part) for part in parts]
  complete = (whole[:end] for end in range(len(whole) + 1))
  first = next((t for t in complete if t.endswith(tuple(stops))), None)
  wanted = whole
  if first is not None:
    longest = max(len(s) for s in stops if first.endswith(s))
    wanted = first[: len(first) - longest]
  assert wanted.startswith("".join(given))
  assert "".join(given) + found.finish() == wanted


def test_only_what_may_begin_a_stop_string_is_held_back():
  found = StopFilter(["###"])
  assert [found.add(part) for part in ("a#", "#b", "#", "#", "#c")] == [
    "a",
    "##b",
    "",
    "",
    "",
  ]
  assert found.finish() == ""
