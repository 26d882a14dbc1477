"""Log-probabilities of tokens, as the OpenAI API shows them."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from azr_jax.models.tokenizers import Tokenizer
from azr_jax.serving.scoring import Scores


@dataclasses.dataclass(frozen=True)
class TokenLogprob:
  """A token in its place.

  Attributes:
    piece: its text.
    logprob: in nats; None: it is the first of its sequence.
    top: texts and log-probabilities of the likeliest tokens in its place, in
      order.
  """

  piece: str
  logprob: float | None
  top: tuple[tuple[str, float], ...] = ()


def of_scores(
  scores: Scores,
  token_ids: Sequence[int],
  pieces: Sequence[str],
  num_top: int,
  tokenizer: Tokenizer,
) -> list[TokenLogprob]:
  """Returns the last tokens of a sequence that was scored.

  Args:
    scores: of the whole sequence.
    token_ids: the whole sequence.
    pieces: the texts of its last tokens, or of all.
    num_top: likeliest tokens of each place; at most as many as there are.
    tokenizer: decodes them.
  """
  first = len(token_ids) - len(pieces)
  rows = []
  for index, piece in enumerate(pieces, first):
    if not index:
      rows.append(TokenLogprob(piece, None))
      continue
    ids = scores.top_ids[index - 1, :num_top].tolist()
    logprobs = scores.top_logprobs[index - 1, :num_top].tolist()
    pieces_of_top = _pieces_after(token_ids[index - 1], ids, tokenizer)
    # A token has one name in its place, also where it is a part of a character.
    if token_ids[index] in ids:
      pieces_of_top[ids.index(token_ids[index])] = piece
    rows.append(
      TokenLogprob(
        piece,
        float(scores.logprobs[index - 1]),
        tuple(zip(pieces_of_top, logprobs, strict=True)),
      )
    )
  return rows


def _pieces_after(
  before: int, token_ids: Sequence[int], tokenizer: Tokenizer
) -> list[str]:
  """Returns the texts of tokens in a place behind another token.

  Alone, some tokenizers would strip the space that a token begins with.
  """
  if not token_ids:
    return []
  start = len(tokenizer.decode([before]))
  return [tokenizer.decode([before, one])[start:] for one in token_ids]


def completion(tokens: Sequence[TokenLogprob], offset: int) -> dict[str, Any]:
  """Returns the `logprobs` of a completion's choice.

  Args:
    tokens: to show.
    offset: where the first of them begins in the text.
  """
  offsets = []
  for token in tokens:
    offsets.append(offset)
    offset += len(token.piece)
  has_top = any(token.top for token in tokens)
  return {
    "tokens": [token.piece for token in tokens],
    "token_logprobs": [token.logprob for token in tokens],
    "top_logprobs": [_by_piece(t) for t in tokens] if has_top else None,
    "text_offset": offsets,
  }


def _by_piece(token: TokenLogprob) -> dict[str, float] | None:
  """Returns the likeliest tokens and the token itself, as OpenAI's API does.

  Of tokens with one text, the likelier one counts.
  """
  if token.logprob is None:
    return None
  found: dict[str, float] = {}
  for piece, logprob in (*token.top, (token.piece, token.logprob)):
    found.setdefault(piece, logprob)
  return found


def chat(tokens: Sequence[TokenLogprob]) -> dict[str, Any]:
  """Returns the `logprobs` of a chat's choice."""
  return {
    "content": [
      _chat_token(token.piece, token.logprob)
      | {"top_logprobs": [_chat_token(*one) for one in token.top]}
      for token in tokens
    ]
  }


def _chat_token(piece: str, logprob: float | None) -> dict[str, Any]:
  return {"token": piece, "logprob": logprob, "bytes": list(piece.encode())}
