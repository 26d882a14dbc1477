"""Requests to sample, and their results."""

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from azr_jax import types
from azr_jax.serving import errors
from azr_jax.serving.errors import ApiError
from azr_jax.serving.jobs import NewTokens, SamplingJob
from azr_jax.serving.protocol import SEED_RANGE, ServedModel, sampler_seed
from azr_jax.serving.tinker import bodies, prompt_targets, wire
from azr_jax.serving.tinker.futures import Reply
from azr_jax.verbs.residents import Snapshot

_MAX_SAMPLES = 1024
_TOPS = ("topk_prompt_logprobs", "topk_sample_logprobs")
# Choices of a job, in order -> the reply.
Write = Callable[[Sequence[NewTokens]], Reply]


class SampleRequests:
  """Parses requests within the limits of a sampler."""

  def __init__(self, model: ServedModel):
    """Stores its argument.

    Args:
      model: the limits of sampling.
    """
    self._model = model

  def num_samples(self, body: Mapping[str, Any]) -> int:
    """Returns the number of samples.

    Raises:
      ApiError: it is not allowed.
    """
    return bodies.integer(body, "num_samples", 1, 1, _MAX_SAMPLES)

  def read(
    self, body: Mapping[str, Any], snapshot: Snapshot
  ) -> tuple[SamplingJob, Write]:
    """Returns what to sample, and a function that writes the reply.

    Args:
      body: the request.
      snapshot: the weights to sample by.

    Raises:
      ApiError: a field is invalid or not supported.
    """
    model, params = self._model, bodies.mapping(body, "sampling_params")
    ids = _prompt_ids(body, model)
    room = model.context - len(ids)
    limit = min(model.max_tokens, room)
    max_tokens = bodies.integer(params, "max_tokens", limit, 1)
    if max_tokens > limit:
      errors.refuse_field(
        "max_tokens",
        max_tokens,
        f"at most {limit} (rollout.max_tokens, and the model's context)",
      )
    _refuse_truncation(params, model)
    if bodies.integer(body, "prompt_alt_tokens_k", 0):
      errors.refuse_field(
        "prompt_alt_tokens_k", body["prompt_alt_tokens_k"], "0"
      )
    strings, stop_ids = _stops(params.get("stop"), model.vocab_size)
    seed = params.get("seed")
    tops = [
      bodies.integer(body, name, 0, 0, model.max_logprobs) for name in _TOPS
    ]
    targets = prompt_targets.read(body, len(ids), model)
    with_prompt = bool(body.get("prompt_logprobs"))
    scores_prompts = with_prompt or bool(tops[0])
    is_scored = scores_prompts or bool(tops[1]) or targets is not None
    if is_scored and not model.max_logprobs:
      errors.refuse_field(
        "prompt_logprobs", True, "false with serve.max_logprobs=0"
      )
    job = SamplingJob(
      prompts=(types.Prompt("", ids),),
      n=self.num_samples(body),
      seed=(
        secrets.randbelow(SEED_RANGE)
        if seed is None
        else sampler_seed(bodies.integer(params, "seed", None, -(1 << 62)))
      ),
      temperature=bodies.number(params, "temperature", 1.0, 0),
      max_new_tokens=max_tokens,
      stop_strings=strings,
      stop_ids=stop_ids,
      ignores_ends=params.get("stop") == [],
      is_scored=is_scored,
      scores_prompts=scores_prompts,
      prompt_targets=None if targets is None else targets.ids,
      snapshot=snapshot,
    )

    def write(choices: Sequence[NewTokens]) -> Reply:
      sequences = [
        wire.Sampled(
          one.token_ids,
          one.logprobs,
          wire.STOP if one.finish_reason == "stop" else wire.LENGTH,
          one.scores,
        )
        for one in choices
      ]
      message = wire.write_samples(
        *(sequences, len(ids), targets),
        with_prompt=with_prompt,
        num_prompt_top=tops[0],
        num_top=tops[1],
      )
      return Reply(message, True)

    return job, write


def _prompt_ids(body: Mapping[str, Any], model: ServedModel) -> tuple[int, ...]:
  """Returns the ids of the prompt.

  Raises:
    ApiError: it has other parts than ids, or does not fit the sampler.
  """
  ids: list[int] = []
  chunks = bodies.mapping(body, "prompt").get("chunks")
  if not isinstance(chunks, list):
    errors.refuse_field("prompt", chunks, "chunks of token ids")
  for chunk in chunks:
    tokens = chunk.get("tokens") if isinstance(chunk, dict) else None
    if not isinstance(tokens, list):
      errors.refuse_field("prompt", chunk, "chunks of token ids")
    ids += tokens
  size = model.vocab_size
  if not all(type(one) is int and 0 <= one < size for one in ids):
    errors.refuse_field("prompt", ids, f"ids from 0 to {size - 1}")
  longest = min(model.max_prompt_tokens, model.context - 1)
  if not 1 <= len(ids) <= longest:
    raise ApiError(
      400,
      f"the prompt has {len(ids)} tokens: expected 1 to {longest} (the largest "
      "of rollout.prompt_buckets, and the model's context)",
    )
  return tuple(ids)


def _refuse_truncation(params: Mapping[str, Any], model: ServedModel) -> None:
  """Raises ApiError for a top-p or top-k that differs from the compiled one."""
  top_p = bodies.number(params, "top_p", 1.0, 0)
  top_k = bodies.integer(params, "top_k", -1, -1)
  for name, value, compiled in (
    ("top_p", top_p, model.top_p),
    ("top_k", max(top_k, 0), model.top_k),
  ):
    if value != compiled:
      errors.refuse_field(
        name,
        value,
        f"{compiled}, because all requests share --config.rollout.{name}",
      )


def _stops(
  value: Any, vocab_size: int
) -> tuple[tuple[str, ...], tuple[int, ...]]:
  """Returns the texts and the ids that end a response.

  Raises:
    ApiError: they are neither.
  """
  if value is None:
    return (), ()
  items = [value] if isinstance(value, str) else value
  if isinstance(items, list):
    texts = tuple(one for one in items if isinstance(one, str) and one)
    ids = tuple(
      one for one in items if type(one) is int and 0 <= one < vocab_size
    )
    if len(items) in (len(texts), len(ids)):
      return texts, ids
  return errors.refuse_field(
    "stop", value, f"null, a text, texts, or ids from 0 to {vocab_size - 1}"
  )
