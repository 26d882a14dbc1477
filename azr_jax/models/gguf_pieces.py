"""Sentencepiece vocabularies of GGUF files (`tokenizer.ggml.model=llama`).

Sentencepiece merges the neighbors whose joined piece has the best score.
`tokenizers` merges by a ranked list of pairs, so the list holds every split of
every piece, in the order of scores. Published Gemma tokenizers are of this
form too.
"""

from collections.abc import Mapping
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers

from azr_jax.config import user_files
from azr_jax.models.character_tokenizer import SPACE

# The value of `tokenizer.ggml.token_type` of pieces that merge.
_NORMAL = 1
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
