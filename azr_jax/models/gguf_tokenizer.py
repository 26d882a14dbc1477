"""Reads and writes the tokenizers in the metadata of GGUF files.

`transformers` can read GGUF files only if torch is installed, and it splits
numbers differently from SmolLM2's training. This module reads and writes
byte-level BPE (GGUF's "gpt2") and sentencepiece (GGUF's "llama"; read by
`gguf_pieces.py`).
"""

import json
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
from azr_jax.models import character_tokenizer, gguf_pieces
from azr_jax.models.tokenizers import (
  HuggingFaceTokenizer,
  SentencePieceTokenizer,
  Tokenizer,
)

# Values of `tokenizer.ggml.token_type`.
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = range(1, 7)
_PREFIX = "tokenizer.ggml."
# Metadata keys of EOS tokens, the main one first.
END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")
# Few files have all keys, but a model may end its turn with any of these.
EOS_TOKENS = (
  "<|endoftext|>",
  "<|im_end|>",
  "<|end_of_text|>",
  "<|eot_id|>",
  "<|eom_id|>",
  "<end_of_turn>",
)
# Splits text into words, contractions, and runs of digits, symbols or spaces.
# Model families differ in the number of digits per piece.
_SPLIT = (
  r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}DIGITS"
  r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

# Texts with contractions, runs of digits, letters of two scripts, symbols and
# whitespace, which each pre-tokenizer splits differently.
_PROBES = (
  "It's 1 22 333 4444 55555 he'LL",
  "x_1 = [12345, 'a'] # é中文\n\n  if a!=b:\r\n\treturn  -0.5\n",
  "Ünïcode ... 3.14159e-10   \n \n end ",
)


def _split_by(digits: str) -> pre_tokenizers.PreTokenizer:
  """Returns the pre-tokenizer of `_SPLIT`.

  Args:
    digits: quantifier of `\\p{N}` in the expression.
  """
  pattern = tokenizers.Regex(_SPLIT.replace("DIGITS", digits))
  return pre_tokenizers.Sequence(
    [
      pre_tokenizers.Split(pattern, behavior="isolated"),
      pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ]
  )


def _split_digits() -> pre_tokenizers.PreTokenizer:
  """Returns GPT-2's pre-tokenizer, with every digit a separate piece."""
  return pre_tokenizers.Sequence(
    [
      pre_tokenizers.Digits(individual_digits=True),
      pre_tokenizers.ByteLevel(add_prefix_space=False),
    ]
  )


# `tokenizer.ggml.pre` -> a function that makes the pre-tokenizer. Files of
# Granite, SmolLM3 and OLMo 2 have the last three.
PRE_TOKENIZERS = {
  "smollm": _split_digits,
  "qwen2": lambda: _split_by(""),
  "llama-bpe": lambda: _split_by("{1,3}"),
  "refact": _split_digits,
  "smaug-bpe": lambda: _split_by("{1,3}"),
  "dbrx": lambda: _split_by("{1,3}"),
}


def from_metadata(metadata: Mapping[str, Any]) -> HuggingFaceTokenizer:
  """Builds the tokenizer that a GGUF file describes.

  Raises:
    ValueError: the vocabulary type or the pre-tokenizer is unknown.
  """
  kind = metadata.get("tokenizer.ggml.model")
  if kind not in _BACKENDS:
    raise user_files.Refusal(
      f"tokenizer.ggml.model={kind!r}: expected one of {tuple(_BACKENDS)}"
    )
  backend = _BACKENDS[kind](metadata)
  tokens = metadata["tokenizer.ggml.tokens"]
  types = metadata["tokenizer.ggml.token_type"]
  backend.add_special_tokens(_added(tokens, types, _CONTROL))
  backend.add_tokens(_added(tokens, types, _USER_DEFINED))
  # llama.cpp adds BOS for sentencepiece and Llama 3 if the file does not say.
  is_llama_3 = metadata.get("tokenizer.ggml.pre") == "llama-bpe"
  bos = _bos(metadata, is_default=kind == "llama" or is_llama_3)
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
    if (index := backend.token_to_id(token)) is not None:
      origins.setdefault(index, "its name")
  return HuggingFaceTokenizer(wrapped, origins)


def _byte_level_backend(metadata: Mapping[str, Any]) -> tokenizers.Tokenizer:
  """Returns a byte-level BPE tokenizer, without added tokens.

  Raises:
    ValueError: the pre-tokenizer is unknown.
  """
  pre = metadata.get("tokenizer.ggml.pre")
  if pre not in PRE_TOKENIZERS:
    raise user_files.Refusal(
      f"tokenizer.ggml.pre={pre!r}: expected one of {tuple(PRE_TOKENIZERS)}"
    )
  tokens = metadata["tokenizer.ggml.tokens"]
  backend = tokenizers.Tokenizer(
    models.BPE(
      vocab={token: index for index, token in enumerate(tokens)},
      merges=[
        tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]
      ],
      # Llama 3 encodes a word that is a token directly, without merges.
      ignore_merges=pre == "llama-bpe",
    )
  )
  if pre == "qwen2":
    backend.normalizer = normalizers.NFC()
  backend.pre_tokenizer = PRE_TOKENIZERS[pre]()
  backend.decoder = decoders.ByteLevel()
  return backend


# `tokenizer.ggml.model` -> a function that makes the tokenizer.
_BACKENDS = {"gpt2": _byte_level_backend, "llama": gguf_pieces.backend}


def _bos(metadata: Mapping[str, Any], is_default: bool) -> int | None:
  """Returns the BOS id that starts a prompt, or None.

  Args:
    metadata: metadata of the file.
    is_default: whether to add BOS if the file does not say.
  """
  bos = metadata.get("tokenizer.ggml.bos_token_id")
  is_added = metadata.get("tokenizer.ggml.add_bos_token", is_default)
  return bos if is_added else None


def _added(
  tokens: list[str], types: list[int], kind: int
) -> list[tokenizers.AddedToken]:
  """Returns the added tokens of a type; they are never split."""
  return [
    tokenizers.AddedToken(token, normalized=False, special=kind == _CONTROL)
    for token, token_type in zip(tokens, types, strict=True)
    if token_type == kind
  ]


def metadata(tokenizer: Tokenizer, vocab_size: int) -> dict[str, Any]:
  """Returns the fields under `tokenizer.` of a GGUF file.

  Args:
    tokenizer: the model's tokenizer.
    vocab_size: the model's vocabulary size. Ids beyond the tokenizer's are
      named [PAD<id>].

  Raises:
    ValueError: GGUF cannot describe this type of tokenizer, or has no key for
      some of its EOS tokens.
  """
  fields = _vocabulary(tokenizer)
  for index in range(len(fields["tokens"]), vocab_size):
    fields["tokens"].append(f"[PAD{index}]")
    fields["token_type"].append(_UNUSED)
    if "scores" in fields:
      fields["scores"].append(0.0)
  _require_named_ends(tokenizer, fields["tokens"])
  bos = tokenizer.encode_prompt("")
  fields["add_bos_token"] = bool(bos)
  if bos:
    fields["bos_token_id"] = bos[0]
  fields |= dict(zip(END_KEYS, tokenizer.eos_ids, strict=False))
  fields["padding_token_id"] = tokenizer.pad_id
  described = {_PREFIX + key: value for key, value in fields.items()}
  if isinstance(tokenizer, HuggingFaceTokenizer):
    if tokenizer.has_chat_template:
      described["tokenizer.chat_template"] = tokenizer.chat_template
    if "scores" not in fields:
      described[f"{_PREFIX}pre"] = _pre(tokenizer, described)
    elif _ids(from_metadata(described)) != _ids(tokenizer):
      raise ValueError(
        "the tokenizer splits texts otherwise than by scores: expected one "
        "like Gemma's to save as GGUF"
      )
  return described


def _vocabulary(tokenizer: Tokenizer) -> dict[str, Any]:
  """Returns the fields below `tokenizer.ggml.` that describe the pieces.

  Raises:
    ValueError: GGUF cannot describe this type of tokenizer.
  """
  if isinstance(tokenizer, SentencePieceTokenizer):
    return _characters(tokenizer)
  if isinstance(tokenizer, HuggingFaceTokenizer):
    backend = json.loads(tokenizer.backend_json())
    if gguf_pieces.is_described(backend):
      return gguf_pieces.described(backend)
    return _byte_level(backend)
  raise ValueError(
    f"tokenizer {type(tokenizer).__name__}: expected a tokenizer of "
    "transformers or sentencepiece to save as GGUF"
  )


def _require_named_ends(tokenizer: Tokenizer, tokens: list[str]) -> None:
  """Raises ValueError if GGUF has no key for some EOS token."""
  for index in tokenizer.eos_ids[len(END_KEYS) :]:
    if tokens[index] not in EOS_TOKENS:
      raise ValueError(
        f"{len(tokenizer.eos_ids)} EOS tokens, {tokens[index]!r} among them: "
        f"expected at most {len(END_KEYS)} to save as GGUF"
      )


def _characters(tokenizer: SentencePieceTokenizer) -> dict[str, Any]:
  """Returns the fields of a sentencepiece model, whose pieces stay as they are.

  Raises:
    ValueError: the model has learned pieces of several characters.
  """
  model = tokenizer.model
  if not character_tokenizer.is_character_level(model):
    raise ValueError(
      "tokenizer.model has learned pieces of several characters: expected "
      "characters and declared symbols to save as GGUF"
    )
  types = []
  for index in range(len(model)):
    if model.is_control(index):
      types.append(_CONTROL)
    elif model.is_unknown(index):
      types.append(_UNKNOWN)
    elif model.is_byte(index):
      types.append(_BYTE)
    else:
      is_symbol = len(model.id_to_piece(index)) > 1
      types.append(_USER_DEFINED if is_symbol else _NORMAL)
  return {
    "model": "llama",
    "pre": "default",
    "tokens": [
      # llama.cpp compares symbols with the raw text, including spaces.
      model.id_to_piece(index).replace(character_tokenizer.SPACE, " ")
      if types[index] == _USER_DEFINED
      else model.id_to_piece(index)
      for index in range(len(model))
    ],
    "scores": [float(model.get_score(index)) for index in range(len(model))],
    "token_type": types,
    "unknown_token_id": model.unk_id(),
    "add_space_prefix": False,
    "remove_extra_whitespaces": False,
  }


def _byte_level(backend: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the fields of a fast tokenizer of `transformers`.

  Args:
    backend: the content of its tokenizer.json.

  Raises:
    ValueError: the tokenizer is not byte-level BPE.
  """
  model, decoder = backend["model"], backend.get("decoder") or {}
  if model.get("type") != "BPE" or decoder.get("type") != "ByteLevel":
    raise ValueError(
      f"tokenizer with model {model.get('type')!r} and decoder "
      f"{decoder.get('type')!r}: expected 'BPE' and 'ByteLevel', or "
      "sentencepiece, to save as GGUF"
    )
  added = {token["id"]: token for token in backend["added_tokens"]}
  by_id = {index: token for token, index in model["vocab"].items()}
  by_id |= {index: token["content"] for index, token in added.items()}
  tokens, types = [], []
  for index in range(max(by_id) + 1):
    tokens.append(by_id.get(index, f"[PAD{index}]"))
    if index in added:
      types.append(_CONTROL if added[index]["special"] else _USER_DEFINED)
    else:
      types.append(_NORMAL if index in by_id else _UNUSED)
  merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
  return {
    "model": "gpt2",
    "tokens": tokens,
    "token_type": types,
    "merges": merges,
  }


def _pre(tokenizer: HuggingFaceTokenizer, described: dict[str, Any]) -> str:
  """Returns the pre-tokenizer that reproduces the tokenizer's words and ids.

  Raises:
    ValueError: no known pre-tokenizer does.
  """
  expected = _words_and_ids(tokenizer)
  for pre in PRE_TOKENIZERS:
    read = from_metadata({**described, f"{_PREFIX}pre": pre})
    if _words_and_ids(read) == expected:
      return pre
  raise ValueError(
    "the tokenizer has an unknown pre-tokenizer: expected one that splits like "
    f"one of {tuple(PRE_TOKENIZERS)} to save as GGUF"
  )


def _ids(tokenizer: HuggingFaceTokenizer) -> list[list[int]]:
  """Returns the ids of the probe texts."""
  return [tokenizer.encode(text) for text in _PROBES]


def _words_and_ids(tokenizer: HuggingFaceTokenizer) -> list[Any]:
  """Returns the words and ids of the probe texts.

  Ids alone do not suffice: a small vocabulary may give different words the same
  ids.
  """
  splitter = tokenizers.Tokenizer.from_str(
    tokenizer.backend_json()
  ).pre_tokenizer
  if splitter is None:
    return []
  return [
    (
      [word for word, _ in splitter.pre_tokenize_str(text)],
      tokenizer.encode(text),
    )
    for text in _PROBES
  ]
