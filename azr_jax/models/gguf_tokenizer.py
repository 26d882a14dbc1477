"""Builds the tokenizer of a GGUF file: byte-level BPE from its metadata.

`transformers` can read GGUF files only where torch is installed, and it splits
numbers differently from SmolLM2's training. GGUF's sentencepiece vocabularies
(Llama 2) are not supported.
"""

from collections.abc import Mapping
from typing import Any

import tokenizers
import transformers
from tokenizers import (
  decoders,
  models,
  normalizers,
  pre_tokenizers,
  processors,
)

from azr_jax.config import user_files
from azr_jax.models.tokenizers import HuggingFaceTokenizer

# Values of `tokenizer.ggml.token_type`.
_CONTROL, _USER_DEFINED = 3, 4
# Keys of tokens that end a response, the main one first.
END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")
# Few files have all keys, but a model may end its turn with any of these.
EOS_TOKENS = (
  "<|endoftext|>",
  "<|im_end|>",
  "<|end_of_text|>",
  "<|eot_id|>",
  "<|eom_id|>",
)
# Splits text into words with contractions and runs of digits, symbols or
# spaces; model families differ in the digits of a piece.
_SPLIT = (
  r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}DIGITS"
  r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _split_by(digits: str) -> pre_tokenizers.PreTokenizer:
  """Returns the pre-tokenizer of `_SPLIT`.

  Args:
    digits: how often `\\p{N}` may repeat, as a quantifier of the expression.
  """
  pattern = tokenizers.Regex(_SPLIT.replace("DIGITS", digits))
  return pre_tokenizers.Sequence(
    [
      pre_tokenizers.Split(pattern, behavior="isolated"),
      pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ]
  )


def _split_digits() -> pre_tokenizers.PreTokenizer:
  """Returns the pre-tokenizer of GPT-2, with every digit a piece of its own."""
  return pre_tokenizers.Sequence(
    [
      pre_tokenizers.Digits(individual_digits=True),
      pre_tokenizers.ByteLevel(add_prefix_space=False),
    ]
  )


# `tokenizer.ggml.pre` -> how text is split before tokens are merged.
PRE_TOKENIZERS = {
  "smollm": _split_digits,
  "qwen2": lambda: _split_by(""),
  "llama-bpe": lambda: _split_by("{1,3}"),
}


def from_metadata(metadata: Mapping[str, Any]) -> HuggingFaceTokenizer:
  """Builds the tokenizer that a GGUF file describes.

  Raises:
    ValueError: the kind of vocabulary or the pre-tokenizer is not known.
  """
  kind = metadata.get("tokenizer.ggml.model")
  if kind != "gpt2":
    raise user_files.Refusal(f"tokenizer.ggml.model={kind!r}: expected 'gpt2'")
  pre = metadata.get("tokenizer.ggml.pre")
  if pre not in PRE_TOKENIZERS:
    raise user_files.Refusal(
      f"tokenizer.ggml.pre={pre!r}: expected one of {tuple(PRE_TOKENIZERS)}"
    )
  tokens = metadata["tokenizer.ggml.tokens"]
  ids = {token: index for index, token in enumerate(tokens)}
  backend = tokenizers.Tokenizer(
    models.BPE(
      vocab=ids,
      merges=[
        tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]
      ],
      # Llama 3 takes a word that is a token whole, without merges.
      ignore_merges=pre == "llama-bpe",
    )
  )
  if pre == "qwen2":
    backend.normalizer = normalizers.NFC()
  backend.pre_tokenizer = PRE_TOKENIZERS[pre]()
  backend.decoder = decoders.ByteLevel()
  types = metadata["tokenizer.ggml.token_type"]
  backend.add_special_tokens(_added(tokens, types, _CONTROL))
  backend.add_tokens(_added(tokens, types, _USER_DEFINED))
  bos = _bos(metadata, is_default=pre == "llama-bpe")
  if bos is not None:
    backend.post_processor = processors.TemplateProcessing(
      single=f"{tokens[bos]} $A",
      pair=f"{tokens[bos]} $A $B",
      special_tokens=[(tokens[bos], bos)],
    )

  eos = metadata["tokenizer.ggml.eos_token_id"]
  pad = metadata.get("tokenizer.ggml.padding_token_id", eos)
  wrapped = transformers.PreTrainedTokenizerFast(
    tokenizer_object=backend,
    eos_token=tokens[eos],
    pad_token=tokens[pad],
    bos_token=None if bos is None else tokens[bos],
  )
  wrapped.chat_template = metadata.get("tokenizer.chat_template")
  origins: dict[int, str] = {}
  for key in END_KEYS:
    if (index := metadata.get(f"tokenizer.ggml.{key}")) is not None:
      origins.setdefault(index, key)
  for token in EOS_TOKENS:
    if token in ids:
      origins.setdefault(ids[token], "its name")
  return HuggingFaceTokenizer(wrapped, origins)


def _bos(metadata: Mapping[str, Any], is_default: bool) -> int | None:
  """Returns the BOS id that a prompt begins with, or None.

  Args:
    metadata: of the file.
    is_default: whether to add BOS if the file does not say; llama.cpp does so
      for Llama 3.
  """
  bos = metadata.get("tokenizer.ggml.bos_token_id")
  is_added = metadata.get("tokenizer.ggml.add_bos_token", is_default)
  return bos if is_added else None


def _added(
  tokens: list[str], types: list[int], kind: int
) -> list[tokenizers.AddedToken]:
  """Returns the tokens of one kind, which the text must match whole."""
  return [
    tokenizers.AddedToken(token, normalized=False, special=kind == _CONTROL)
    for token, token_type in zip(tokens, types, strict=True)
    if token_type == kind
  ]
