"""Builds OpenAI API answers, as the tokens arrive."""

import dataclasses
import time
import uuid
from collections.abc import Sequence
from typing import Any

from azr_jax.serving import token_logprobs
from azr_jax.serving.jobs import NewTokens, SamplingJob
from azr_jax.serving.protocol import Asked, ServedModel
from azr_jax.serving.text import Detokenizer, StopFilter
from azr_jax.serving.token_logprobs import TokenLogprob


@dataclasses.dataclass
class ChoiceOutput:
  """New output of a choice.

  Attributes:
    choice: the index of the choice.
    text: new text.
    token_ids: new tokens.
    shown: tokens whose log-probabilities are returned: first an echoed
      prompt's, then the new tokens. Empty if the client wants none.
    finish_reason: the API's finish reason. None while the choice runs.
  """

  choice: int
  text: str
  token_ids: list[int]
  shown: list[TokenLogprob]
  finish_reason: str | None = None


class Answer:
  """The answer to a request, built up as tokens arrive."""

  def __init__(self, asked: Asked, model: ServedModel):
    """Creates an answer without tokens.

    Args:
      asked: the request.
      model: the served model.
    """
    self._asked, self._model = asked, model
    self._steps: set[int] = set()
    self._id = f"{'chatcmpl' if asked.is_chat else 'cmpl'}-{uuid.uuid4().hex}"
    self._created = int(time.time())
    job = asked.job
    self._texts = [_ChoiceText(asked, model) for _ in range(job.num_choices)]
    self._whole = [
      ChoiceOutput(choice, self._prompt_text(job, choice), [], [])
      for choice in range(job.num_choices)
    ]
    # Offset in the choice's text of the next token to return.
    self._offsets: list[int] = [
      0 if job.is_scored else len(part.text) for part in self._whole
    ]

  def _prompt_text(self, job: SamplingJob, choice: int) -> str:
    """Returns the text that a choice starts with: an echoed prompt, or ""."""
    return job.prompts[choice // job.n].text if self._asked.echo else ""

  def add(self, tokens: NewTokens) -> ChoiceOutput:
    """Adds new tokens and returns the output that they add to their choice."""
    self._steps |= set(tokens.steps)
    text, pieces = self._texts[tokens.choice].add(
      tokens.token_ids, tokens.finish_reason is not None
    )
    part = ChoiceOutput(
      tokens.choice,
      text,
      tokens.token_ids,
      self._with_logprobs(tokens, pieces),
      tokens.finish_reason,
    )
    whole = self._whole[tokens.choice]
    whole.text += part.text
    whole.token_ids += part.token_ids
    whole.shown += part.shown
    whole.finish_reason = part.finish_reason
    return part

  def _with_logprobs(
    self, tokens: NewTokens, pieces: list[str]
  ) -> list[TokenLogprob]:
    """Returns the log-probabilities of new tokens.

    Args:
      tokens: the new tokens.
      pieces: the text of each token, if log-probabilities are wanted.
    """
    if not self._asked.with_logprobs:
      return []
    if tokens.scores is None:
      return list(map(TokenLogprob, tokens.token_ids, pieces, tokens.logprobs))
    asked = self._asked
    prompt_ids = asked.job.prompts[tokens.choice // asked.job.n].token_ids
    if asked.echo:
      detokenizer = Detokenizer(self._model.tokenizer)
      pieces = [detokenizer.add([one]) for one in prompt_ids] + pieces
    return token_logprobs.of_scores(
      tokens.scores,
      [*prompt_ids, *tokens.token_ids],
      pieces,
      asked.num_top,
      self._model.token_texts,
    )

  @property
  def is_done(self) -> bool:
    """Whether every choice is finished."""
    return all(part.finish_reason for part in self._whole)

  def body(self) -> dict[str, Any]:
    """Returns the whole answer, for requests that do not stream."""
    kind = "chat.completion" if self._asked.is_chat else "text_completion"
    choices = [self._choice(part, "message") for part in self._whole]
    head = self._head(kind) | self._chat_prompt_ids()
    return head | {"choices": choices, "usage": self.usage()}

  def first_chunks(self, steps: Sequence[int]) -> list[dict[str, Any]]:
    """Returns the chunks of a stream that precede the first token.

    A chat starts with a role, an echo with its prompt.

    Args:
      steps: training steps of the weights that sampled the first tokens.
    """
    self._steps |= set(steps)
    if self._asked.is_chat:
      role = {"role": "assistant", "content": ""}
      choices = [
        {"index": part.choice, "delta": role, "finish_reason": None}
        for part in self._whole
      ]
      ids = self._chat_prompt_ids()
      return [self._chunk([one]) | ids for one in choices]
    if self._asked.echo or self._asked.with_token_ids:
      return [
        self._chunk([self._choice(part, "message")]) for part in self._whole
      ]
    return []

  def chunks(self, tokens: NewTokens) -> list[dict[str, Any]]:
    """Returns the chunk of a stream for new tokens, or [] if it is empty."""
    part = self.add(tokens)
    says_something = (
      part.text
      or part.finish_reason
      or self._asked.with_logprobs
      or self._asked.with_token_ids
    )
    return (
      [self._chunk([self._choice(part, "delta")])] if says_something else []
    )

  def usage_chunk(self) -> dict[str, Any]:
    """Returns the last chunk of a stream, with the token counts."""
    return self._chunk([]) | {"usage": self.usage()}

  def usage(self) -> dict[str, int]:
    """Returns the token counts of prompts and choices."""
    prompts = sum(len(p.token_ids) for p in self._asked.job.prompts)
    tokens = sum(len(part.token_ids) for part in self._whole)
    return {
      "prompt_tokens": prompts,
      "completion_tokens": tokens,
      "total_tokens": prompts + tokens,
    }

  def _chat_prompt_ids(self) -> dict[str, list[int]]:
    """Returns the token ids of a chat's prompt, if they are wanted."""
    if not (self._asked.is_chat and self._asked.with_token_ids):
      return {}
    [prompt] = self._asked.job.prompts
    return {"prompt_token_ids": list(prompt.token_ids)}

  def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
    kind = "text_completion"
    if self._asked.is_chat:
      kind = "chat.completion.chunk"
    return self._head(kind) | {"choices": choices}

  def _head(self, kind: str) -> dict[str, Any]:
    """Returns the fields that every answer and chunk starts with.

    They include the seed, so that a request without one can be repeated.
    """
    steps = sorted(self._steps)
    name = self._model.id(steps[-1], self._asked.job.adapter)
    return {
      "id": self._id,
      "object": kind,
      "created": self._created,
      "model": name,
      "system_fingerprint": name,
      "seed": self._asked.job.seed,
    } | ({"steps": steps} if self._model.has_steps else {})

  def _choice(self, part: ChoiceOutput, message: str) -> dict[str, Any]:
    """Returns a choice of an answer or of a chunk.

    Args:
      part: the whole choice, or its new output.
      message: "message" for a whole choice, "delta" for new output.
    """
    choice: dict[str, Any] = {"index": part.choice}
    if self._asked.is_chat:
      text = {"content": part.text}
      if message == "message":
        text = {"role": "assistant", **text}
      elif not part.text:
        text = {}
      choice[message] = text
    else:
      choice["text"] = part.text
    choice["logprobs"] = self._logprobs(part)
    choice["finish_reason"] = part.finish_reason
    if self._asked.with_token_ids:
      # A copy, because the choice grows before its chunk is written.
      choice["token_ids"] = list(part.token_ids)
      if not self._asked.is_chat and message == "message":
        prompt = self._asked.job.prompts[part.choice // self._asked.job.n]
        choice["prompt_token_ids"] = list(prompt.token_ids)
    return choice

  def _logprobs(self, part: ChoiceOutput) -> dict[str, Any] | None:
    """Returns the log-probabilities of tokens, each with its text."""
    if not self._asked.with_logprobs:
      return None
    if self._asked.is_chat:
      return token_logprobs.chat(part.shown)
    offset = self._offsets[part.choice]
    self._offsets[part.choice] += sum(len(one.piece) for one in part.shown)
    return token_logprobs.completion(part.shown, offset)


class _ChoiceText:
  """Text of a choice, and of each of its tokens if log-probabilities are on."""

  def __init__(self, asked: Asked, model: ServedModel):
    self._detokenizer = Detokenizer(model.tokenizer)
    stops = () if asked.includes_stop else asked.job.stop_strings
    self._filter = StopFilter(stops)
    self._by_token = asked.with_logprobs

  def add(self, token_ids: list[int], is_last: bool) -> tuple[str, list[str]]:
    """Returns the new text, and the text of each token.

    Args:
      token_ids: the new tokens.
      is_last: whether the choice ends with them.
    """
    if self._by_token:
      pieces = [self._detokenizer.add([token]) for token in token_ids]
      text = "".join(pieces)
    else:
      pieces, text = [], self._detokenizer.add(token_ids)
    if not is_last:
      return self._filter.add(text), pieces
    rest = self._detokenizer.finish()
    if pieces:
      pieces[-1] += rest
    return self._filter.add(text + rest) + self._filter.finish(), pieces
