"""Exported tokenizers of the embedded models, as transformers reads them."""

import random
import shutil

import pytest
import sentencepiece
import transformers
from typed import present

from azr_jax.models import character_tokenizer, load, tokenizers

# Characters unknown to all embedded models, characters of special tokens, and
# whitespace.
STRANGE = "aé😀\u2581 \t\n\x00<>/s_`:=[]1,"


def texts_of(model, number, seed):
  """Returns texts that mix the model's own pieces with strange characters."""
  pieces = [
    model.id_to_piece(index).replace("\u2581", " ")
    for index in range(len(model))
  ]
  rng = random.Random(seed)
  return [
    "".join(
      rng.choice(pieces)
      if rng.random() < 0.6
      else "".join(rng.choices(STRANGE, k=rng.randint(1, 6)))
      for _ in range(rng.randint(0, 15))
    )
    for _ in range(number)
  ]


@pytest.mark.parametrize("name", load.EMBEDDED)
def test_transformers_gives_an_export_the_same_ids(name, tmp_path):
  source = load.EMBEDDED[name]
  ours = tokenizers.from_folder(source)
  # The model type decides how `transformers` reads tokenizer.model.
  shutil.copy(source / "config.json", tmp_path)
  ours.save(tmp_path)
  theirs = present(transformers.AutoTokenizer.from_pretrained(str(tmp_path)))
  model = sentencepiece.SentencePieceProcessor(str(source / "tokenizer.model"))
  for text in texts_of(model, 300, seed=len(name)):
    ids = ours.encode_prompt(text)
    assert theirs(text)["input_ids"] == ids, text
    assert theirs.decode(ids, skip_special_tokens=True) == ours.decode(ids)
  assert (theirs.eos_token_id, theirs.pad_token_id) == (
    ours.eos_ids[0],
    ours.pad_id,
  )


def test_other_sentencepiece_models_are_not_taken_for_ours(tmp_path):
  sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(["a word and another word"] * 20),
    model_prefix=str(tmp_path / "tokenizer"),
    vocab_size=24,
    hard_vocab_limit=False,
    minloglevel=2,
  )
  path = str(tmp_path / "tokenizer.model")
  model = sentencepiece.SentencePieceProcessor(path)
  assert not character_tokenizer.is_character_level(model)
