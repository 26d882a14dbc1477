"""Text to ids and back: Hugging Face and sentencepiece behind one interface."""

import pathlib
from typing import Any, Protocol, runtime_checkable

import sentencepiece
import transformers


@runtime_checkable
class Tokenizer(Protocol):
  """What the rest of the code needs of a tokenizer.

  `encode` adds no special tokens. `token_id` gives the id of a piece of text
  that is exactly one token, else None.
  """

  eos_ids: tuple[int, ...]
  pad_id: int
  vocab_size: int

  def encode(self, text: str) -> list[int]:
    """Returns the ids of a text."""
    ...

  def decode(self, ids: list[int]) -> str:
    """Returns the text of ids; end-of-sequence ids decode to nothing."""
    ...

  def token_id(self, piece: str) -> int | None:
    """Returns the id whose text is exactly `piece`, or None."""
    ...


class SentencePieceTokenizer:
  """A sentencepiece model file, as the embedded model uses it."""

  def __init__(self, path: str | pathlib.Path):
    self._model = sentencepiece.SentencePieceProcessor(model_file=str(path))
    self.eos_ids: tuple[int, ...] = (self._model.eos_id(),)
    self.pad_id: int = self._model.pad_id()
    self.vocab_size: int = self._model.get_piece_size()

  def encode(self, text: str) -> list[int]:
    """Returns the ids of a text."""
    return self._model.encode(text)

  def decode(self, ids: list[int]) -> str:
    """Returns the text of ids."""
    return self._model.decode(list(ids))

  def token_id(self, piece: str) -> int | None:
    """Returns the id whose text is exactly `piece`, or None."""
    ids = self.encode(piece)
    return ids[0] if len(ids) == 1 else None


class HuggingFaceTokenizer:
  """Any tokenizer that `transformers.AutoTokenizer` loads from a folder."""

  def __init__(self, folder: str | pathlib.Path, gguf_file: str | None = None):
    """Loads the tokenizer files of a folder, or those inside a GGUF file."""
    options = {} if gguf_file is None else {"gguf_file": gguf_file}
    from_pretrained: Any = transformers.AutoTokenizer.from_pretrained
    self._tokenizer = from_pretrained(str(folder), **options)
    eos = {self._tokenizer.eos_token_id}
    # Chat models end a turn with a token that is not always "the" EOS.
    for piece in ("<|im_end|>", "<|endoftext|>", "<|eot_id|>"):
      eos.add(self._tokenizer.get_vocab().get(piece))
    self.eos_ids: tuple[int, ...] = tuple(
      sorted(i for i in eos if i is not None)
    )
    pad = self._tokenizer.pad_token_id
    self.pad_id: int = self.eos_ids[0] if pad is None else pad
    self.vocab_size = len(self._tokenizer)

  def encode(self, text: str) -> list[int]:
    """Returns the ids of a text."""
    return self._tokenizer.encode(text, add_special_tokens=False)

  def decode(self, ids: list[int]) -> str:
    """Returns the text of ids."""
    return self._tokenizer.decode(
      ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
    )

  def token_id(self, piece: str) -> int | None:
    """Returns the id whose text is exactly `piece`, or None.

    Tokens may also merge across a piece's borders, so only special tokens
    count as exact; any other stop string is looked for in the text.
    """
    return self._tokenizer.get_added_vocab().get(piece)
