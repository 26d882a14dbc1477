"""Sentencepiece vocabularies of GGUF files (`tokenizer.ggml.model=llama`).

Sentencepiece merges the neighbors whose joined piece has the best score.
`tokenizers` merges by a ranked list of pairs, so the list holds every split of
every piece, in the order of scores. Published Gemma tokenizers have this form,
and are written back with scores.
"""

import re
from collections.abc import Mapping
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers

from azr_jax.config import user_files
from azr_jax.models.character_tokenizer import SPACE

# Values of `tokenizer.ggml.token_type`; only normal pieces merge.
_NORMAL, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = 1, 3, 4, 5, 6
_PREFIX = "tokenizer.ggml."
# The values for which a text's ids decode to the text. llama.cpp adds a space
# where a file does not say `add_space_prefix=False`.
_REQUIRED = {
  "add_space_prefix": (True, False),
  "remove_extra_whitespaces": (False, False),
  "precompiled_charsmap": (None, None),
}


def backend(metadata: Mapping[str, Any]) -> tokenizers.Tokenizer:
  """Returns the tokenizer that a GGUF file describes, without added tokens.

  Raises:
    ValueError: the file asks for a change of texts before they are split.
  """
  for key, (default, required) in _REQUIRED.items():
    value = metadata.get(_PREFIX + key, default)
    if value != required:
      raise user_files.Refusal(
        f"{_PREFIX}{key}={value!r:.80}: expected {required}"
      )
  tokens, scores, types = (
    metadata[_PREFIX + key] for key in ("tokens", "scores", "token_type")
  )
  unknown = metadata.get(f"{_PREFIX}unknown_token_id")
  made = tokenizers.Tokenizer(
    models.BPE(
      vocab={token: index for index, token in enumerate(tokens)},
      merges=_merges(tokens, scores, types),
      unk_token=None if unknown is None else tokens[unknown],
      fuse_unk=True,
      byte_fallback=True,
    )
  )
  made.normalizer = normalizers.Replace(" ", SPACE)
  made.decoder = decoders.Sequence(
    [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
  )
  return made


def _merges(
  tokens: list[str], scores: list[float], types: list[int]
) -> list[tuple[str, str]]:
  """Returns the splits of all pieces into two, best scores first."""
  pieces = [
    (-score, token)
    for token, score, kind in zip(tokens, scores, types, strict=True)
    if kind == _NORMAL
  ]
  normal = {token for _, token in pieces}
  return [
    (token[:cut], token[cut:])
    for _, token in sorted(pieces, key=lambda piece: piece[0])
    for cut in range(1, len(token))
    if token[:cut] in normal and token[cut:] in normal
  ]


def is_described(fields: Mapping[str, Any]) -> bool:
  """Returns whether a tokenizer has the form that `backend` makes.

  Args:
    fields: the content of its tokenizer.json.
  """
  model, split = fields["model"], fields.get("pre_tokenizer") or {}
  return (
    bool(model.get("byte_fallback"))
    and fields.get("normalizer")
    == {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    # Published Gemma tokenizers split at spaces, of which none are left.
    and split.get("pattern", {"String": " "}) == {"String": " "}
    and split.get("type", "Split") == "Split"
  )


def described(fields: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the metadata below `tokenizer.ggml.` of a tokenizer.

  Args:
    fields: the content of its tokenizer.json, for which `is_described` holds.
  """
  model = fields["model"]
  added = {token["id"]: token for token in fields["added_tokens"]}
  by_id = {index: token for token, index in model["vocab"].items()}
  by_id |= {index: token["content"] for index, token in added.items()}
  scores: dict[str, float] = {}
  for pair in model["merges"]:
    parts = pair.split(" ") if isinstance(pair, str) else pair
    scores.setdefault("".join(parts), -float(len(scores)))
  tokens, types = [], []
  for index in range(max(by_id) + 1):
    token = by_id.get(index)
    if token is None:
      token, kind = f"[PAD{index}]", _UNUSED
    elif index in added:
      kind = _CONTROL if added[index]["special"] else _USER_DEFINED
    else:
      is_byte = re.fullmatch("<0x[0-9A-F]{2}>", token)
      kind = _BYTE if is_byte else _NORMAL
    # llama.cpp compares symbols with the raw text, including spaces.
    tokens.append(token.replace(SPACE, " ") if kind == _USER_DEFINED else token)
    types.append(kind)
  found = {
    "model": "llama",
    "pre": "default",
    "tokens": tokens,
    "scores": [scores.get(token, 0.0) for token in tokens],
    "token_type": types,
    "add_space_prefix": False,
    "remove_extra_whitespaces": False,
  }
  if (unknown := model.get("unk_token")) is not None:
    found["unknown_token_id"] = model["vocab"][unknown]
  return found
