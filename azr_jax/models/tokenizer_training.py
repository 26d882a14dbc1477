"""Trains a sentencepiece tokenizer of declared symbols and characters."""

import pathlib
from collections.abc import Iterable, Sequence

import sentencepiece


def train(
  texts: Iterable[str],
  symbols: Sequence[str],
  vocab_size: int,
  folder: pathlib.Path,
) -> pathlib.Path:
  """Trains on texts and writes `tokenizer.model`.

  Args:
    texts: texts whose characters become tokens; bytes cover other characters.
    symbols: pieces of text that are one token each; longer ones win.
    vocab_size: the largest number of ids. Id 0 is padding, 1 is BOS, 2 is EOS;
      3 means unknown and is never used.
    folder: folder of `tokenizer.model`; created if missing.

  Returns:
    The path of `tokenizer.model`.
  """
  folder.mkdir(parents=True, exist_ok=True)
  sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(texts),
    model_prefix=str(folder / "tokenizer"),
    vocab_size=vocab_size,
    hard_vocab_limit=False,
    model_type="char",
    normalization_rule_name="identity",
    add_dummy_prefix=False,
    remove_extra_whitespaces=False,
    byte_fallback=True,
    character_coverage=1.0,
    # Sentencepiece writes a space as U+2581, also in symbols.
    user_defined_symbols=[s.replace(" ", "\u2581") for s in symbols],
    pad_id=0,
    bos_id=1,
    eos_id=2,
    unk_id=3,
    minloglevel=2,
  )
  (folder / "tokenizer.vocab").unlink()
  return folder / "tokenizer.model"
