"""Log-probabilities of tokens in the OpenAI API's format."""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

from azr_jax.serving.scoring import Scores
from azr_jax.serving.text import TokenTexts


class Likely(NamedTuple):
  """One of the likeliest tokens in a position."""

  token_id: int
  piece: str
  logprob: float


@dataclasses.dataclass(frozen=True)
class TokenLogprob:
  """A token and the alternatives in its position.

  Attributes:
    token_id: the token's id.
    piece: the token's text.
    logprob: its log-probability in nats. None for a sequence's first token.
    top: the likeliest tokens in this position, likeliest first.
  """

  token_id: int
  piece: str
  logprob: float | None
  top: tuple[Likely, ...] = ()


def of_scores(
  scores: Scores,
  token_ids: Sequence[int],
  pieces: Sequence[str],
  num_top: int,
  texts: TokenTexts,
) -> list[TokenLogprob]:
  """Returns the last tokens of a scored sequence.

  Args:
    scores: the scores of the whole sequence.
    token_ids: the whole sequence.
    pieces: the texts of the last tokens, or of all.
    num_top: maximum number of likeliest tokens per position.
    texts: the texts of single tokens.
  """
  first = len(token_ids) - len(pieces)
  rows = []
  for index, piece in enumerate(pieces, first):
    token_id = token_ids[index]
    if not index:
      rows.append(TokenLogprob(token_id, piece, None))
      continue
    ids = scores.top_ids[index - 1, :num_top].tolist()
    logprobs = scores.top_logprobs[index - 1, :num_top].tolist()
    top = tuple(
      # The token keeps its text in the response, which may be part of a
      # character.
      Likely(one, piece if one == token_id else texts[one], logprob)
      for one, logprob in zip(ids, logprobs, strict=True)
    )
    logprob = float(scores.logprobs[index - 1])
    rows.append(TokenLogprob(token_id, piece, logprob, top))
  return rows


def completion(tokens: Sequence[TokenLogprob], offset: int) -> dict[str, Any]:
  """Returns the `logprobs` field of a completion's choice.

  Args:
    tokens: the tokens to return.
    offset: the offset of the first token in the choice's text.
  """
  offsets = []
  for token in tokens:
    offsets.append(offset)
    offset += len(token.piece)
  has_top = any(token.top for token in tokens)
  return {
    "tokens": [token.piece for token in tokens],
    "token_logprobs": [token.logprob for token in tokens],
    "top_logprobs": [_with_itself(t) for t in tokens] if has_top else None,
    "text_offset": offsets,
  }


def _named(token: TokenLogprob) -> dict[str, Likely]:
  """Returns the likeliest tokens by unique names.

  Clients look up the sampled token by its text. Other tokens with the same
  text, or with the text of a likelier token, are named by their ids.
  """
  found: dict[str, Likely] = {}
  for one in token.top:
    is_it = one.token_id == token.token_id
    is_taken = one.piece in found or (one.piece == token.piece and not is_it)
    found[f"token_id:{one.token_id}" if is_taken else one.piece] = one
  return found


def _with_itself(token: TokenLogprob) -> dict[str, float] | None:
  """Returns the likeliest tokens and the sampled one, as completions do."""
  if token.logprob is None:
    return None
  top = {name: one.logprob for name, one in _named(token).items()}
  return {token.piece: token.logprob} | top


def chat(tokens: Sequence[TokenLogprob]) -> dict[str, Any]:
  """Returns the `logprobs` field of a chat's choice."""
  return {
    "content": [
      _chat_token(token.piece, token.piece, token.logprob)
      | {
        "top_logprobs": [
          _chat_token(name, one.piece, one.logprob)
          for name, one in _named(token).items()
        ]
      }
      for token in tokens
    ]
  }


def _chat_token(name: str, piece: str, logprob: float | None) -> dict[str, Any]:
  return {"token": name, "logprob": logprob, "bytes": list(piece.encode())}
