"""Hugging Face files for a sentencepiece model of characters and symbols.

`tokenizer_training.py` makes such models. `transformers` reads their
`tokenizer.model` as if it were Llama 2's: it adds a BOS token and does not know
the symbols. With the files written here it gives the same ids as sentencepiece.
Other sentencepiece models (BPE, unigram) are deliberately not supported.
"""

import json
import pathlib

import sentencepiece
import tokenizers
from tokenizers import decoders, models, normalizers

from azr_jax.config import user_files

FILES = ("tokenizer.json", "tokenizer_config.json")
# A key in tokenizer_config.json that other programs ignore.
_COPY_OF = "copy_of"
# Sentencepiece's character for a space.
SPACE = "\u2581"


def is_character_level(model: sentencepiece.SentencePieceProcessor) -> bool:
  """Returns whether each piece is a character, a byte or a declared symbol.

  Declared symbols have score 0; learned longer pieces do not.
  """
  return all(model.get_score(index) == 0 for index in _long_pieces(model))


def save(
  model: sentencepiece.SentencePieceProcessor, folder: pathlib.Path
) -> None:
  """Writes `FILES`, with which `transformers` gives the same ids.

  Only invalid UTF-8 decodes differently: `transformers` writes a replacement
  character for each byte of a run that contains an invalid one.

  Args:
    model: a model for which `is_character_level` holds.
    folder: an existing folder.
  """
  pieces = [model.id_to_piece(index) for index in range(len(model))]
  backend = tokenizers.Tokenizer(
    models.BPE(
      vocab={piece: index for index, piece in enumerate(pieces)},
      merges=[],  # Without merges, a text splits into its characters.
      unk_token=pieces[model.unk_id()],
      byte_fallback=True,
    )
  )
  backend.normalizer = normalizers.Replace(" ", SPACE)
  backend.decoder = decoders.Sequence(
    [
      decoders.Replace(SPACE, " "),
      decoders.ByteFallback(),
      decoders.Fuse(),
    ]
  )
  backend.add_special_tokens(
    [
      tokenizers.AddedToken(pieces[index], normalized=False, special=True)
      for index in range(len(model))
      if model.is_control(index)
    ]
  )
  backend.add_tokens(
    [
      tokenizers.AddedToken(pieces[index], normalized=True)
      for index in _long_pieces(model)
    ]
  )
  backend.save(str(folder / FILES[0]))
  pad = model.pad_id() if model.pad_id() >= 0 else model.eos_id()
  described = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "eos_token": pieces[model.eos_id()],
    "pad_token": pieces[pad],
    # Text that spells a special token stays text.
    "split_special_tokens": True,
    "clean_up_tokenization_spaces": False,
    _COPY_OF: "tokenizer.model",
  }
  text = json.dumps(described, indent=2)
  (folder / FILES[1]).write_text(text + "\n", encoding="utf-8")


def is_copy(folder: pathlib.Path) -> bool:
  """Returns whether a folder's `FILES` are copies of its `tokenizer.model`."""
  path = folder / FILES[1]
  return path.exists() and _COPY_OF in user_files.read_object(path)


def _long_pieces(model: sentencepiece.SentencePieceProcessor) -> list[int]:
  """Returns the ids of text pieces with several characters."""
  return [
    index
    for index in range(len(model))
    if len(model.id_to_piece(index)) > 1
    and not model.is_control(index)
    and not model.is_byte(index)
    and not model.is_unknown(index)
  ]
