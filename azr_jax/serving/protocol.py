"""Requests of the OpenAI API as validated, typed objects.

`docs/guide/serve.md` lists the fields.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from azr_jax import types
from azr_jax.models.tokenizers import Tokenizer
from azr_jax.rollout.adapter_ref import BASE, AdapterRef
from azr_jax.serving.errors import ApiError
from azr_jax.serving.fields import Fields
from azr_jax.serving.jobs import SamplingJob
from azr_jax.serving.text import TokenTexts
from azr_jax.tasks.chats import ASSISTANT, Chat
from azr_jax.text import contents

# The sampler folds seeds below this bound into its key.
SEED_RANGE = 1 << 31
# OpenAI's default for completions.
_DEFAULT_MAX_TOKENS = 16
_MAX_SEED = 1 << 64
# Limits of a request: samples per prompt, prompts, stop strings.
_MAX_N, _MAX_PROMPTS, _MAX_STOPS = 64, 256, 16
# Smaller temperatures sample greedily anyway, and dividing the logits by much
# less overflows float32.
_MIN_TEMPERATURE = 1e-5
_MOST_TOP = " (serve.max_logprobs)"
# vLLM's sampling fields -> (neutral values, why others are refused). Spaces
# between special tokens have no effect, because special tokens have no text.
_NEUTRAL = {
  "min_p": ((0,), "the sampler has no min-p"),
  "repetition_penalty": ((1,), "the sampler has no penalties"),
  "length_penalty": ((1,), "there is no beam search"),
  "use_beam_search": ((False,), "there is no beam search"),
  "early_stopping": ((False,), "there is no beam search"),
  "min_tokens": ((0,), "the model's EOS token always ends a response"),
  "ignore_eos": ((False,), "the model's EOS token always ends a response"),
  "stop_token_ids": (([],), "only `stop` and the EOS token end a response"),
  "bad_words": (([],), "guided decoding is not supported"),
  "skip_special_tokens": ((True,), "special tokens have no text"),
  "spaces_between_special_tokens": ((True, False), ""),
  "presence_penalty": ((0,), "the sampler has no penalties"),
  "frequency_penalty": ((0,), "the sampler has no penalties"),
  "logit_bias": (({},), "the sampler has no logit bias"),
}
# Fields about the client or about storage, which do not affect the answer.
_IGNORED = (
  "user",
  "metadata",
  "store",
  "service_tier",
  "safety_identifier",
  "prompt_cache_key",
  "prompt_cache_retention",
)


@dataclasses.dataclass(frozen=True)
class ServedModel:
  """The model as clients see it.

  Attributes:
    name: the model's id, without a step.
    has_steps: whether the model is a checkpoint of a run. Its id then includes
      the step.
    tokenizer: the model's tokenizer.
    vocab_size: number of ids of the model; the tokenizer may know fewer.
    context: the model's maximum sequence length in tokens.
    max_prompt_tokens: the sampler's largest prompt bucket.
    max_tokens: the sampler's maximum number of new tokens.
    temperature: the default temperature.
    top_p: the top-p of all requests, which the sampler is compiled with.
    top_k: their top-k.
    max_logprobs: the maximum `top_logprobs` of a request.
    template_arguments: default arguments of the chat template, by name.
    created: the time when the model was loaded, seconds since 1970.
    adapters: the adapters beside the model. Each is a model of its own name.
  """

  name: str
  has_steps: bool
  tokenizer: Tokenizer
  vocab_size: int
  context: int
  max_prompt_tokens: int
  max_tokens: int
  temperature: float
  top_p: float
  top_k: int
  max_logprobs: int
  template_arguments: Mapping[str, Any]
  created: int
  adapters: Mapping[str, AdapterRef] = dataclasses.field(default_factory=dict)

  @functools.cached_property
  def token_texts(self) -> TokenTexts:
    """The texts of single tokens."""
    return TokenTexts(self.tokenizer)

  def id(self, step: int, adapter: AdapterRef = BASE) -> str:
    """Returns the id of the model, or of an adapter, at a step."""
    for name, ref in self.adapters.items():
      if ref == adapter:
        return name
    return f"{self.name}@{step}" if self.has_steps else self.name


@dataclasses.dataclass(frozen=True)
class Asked:
  """A request: what to sample, and how to answer.

  Attributes:
    job: the job for the worker.
    is_chat: whether the answer is a chat completion.
    echo: whether a text starts with its prompt.
    with_logprobs: whether to return the tokens' log-probabilities.
    num_top: number of likeliest tokens to return per position.
    with_token_ids: whether to return the ids of prompt and response tokens.
    with_usage: whether a stream ends with the token counts.
    includes_stop: whether a text includes its stop string.
  """

  job: SamplingJob
  is_chat: bool
  echo: bool
  with_logprobs: bool
  num_top: int
  with_token_ids: bool
  with_usage: bool
  includes_stop: bool


class Reader:
  """Parses requests and validates everything except the step."""

  def __init__(self, model: ServedModel, step: int, new_seed: int):
    """Stores its arguments.

    Args:
      model: the served model.
      step: the step of its weights, for error messages.
      new_seed: the seed for a request without one.
    """
    self._model, self._step, self._new_seed = model, step, new_seed

  def completion(self, body: Mapping[str, Any]) -> Asked:
    """Parses a completion request.

    Raises:
      ApiError: a field is invalid.
    """
    fields = Fields(body)
    prompts = _prompts(fields, self._model)
    echo = fields.boolean("echo")
    most = self._model.max_logprobs
    num_top = fields.integer("logprobs", None, 0, most, _MOST_TOP)
    with_logprobs = num_top is not None
    if echo and with_logprobs and not most:
      why = f"false with logprobs, because prompts are not scored{_MOST_TOP}"
      fields.refuse("echo", True, why)
    fields.only("best_of", (body.get("n") or 1,), "all n samples are returned")
    fields.only("suffix", ("",), "the model only continues a prompt")
    job = self._job(fields, prompts, "max_tokens", _DEFAULT_MAX_TOKENS)
    return _asked(fields, job, False, echo, with_logprobs, num_top or 0)

  def chat(self, body: Mapping[str, Any]) -> Asked:
    """Parses a chat completion request.

    Raises:
      ApiError: a field is invalid, or the model has no chat template.
    """
    fields, tokenizer = Fields(body), self._model.tokenizer
    messages = _messages(fields)
    arguments = _template_arguments(fields, self._model)
    is_answered, is_continued = _ending(fields, messages)
    try:
      text = Chat(tokenizer, arguments).write(
        messages, is_answered=is_answered, is_continued=is_continued
      )
    except ValueError as error:
      message = f"{error}; /v1/completions needs no template"
      raise ApiError(400, message, param="messages") from error
    ids = tuple(tokenizer.encode_prompt(text))
    prompt = _prompt(text, ids, self._model, "messages")
    with_logprobs = fields.boolean("logprobs")
    most = self._model.max_logprobs
    num_top = fields.integer("top_logprobs", 0, 0, most, _MOST_TOP) or 0
    if num_top and not with_logprobs:
      fields.refuse("top_logprobs", num_top, "0 unless logprobs=true")
    for name in ("tools", "tool_choice", "functions", "function_call", "audio"):
      fields.only(name, ([], "none", "auto"), "the model is given no tools")
    fields.ignore("parallel_tool_calls")
    fields.only(
      "response_format",
      ({"type": "text"},),
      "guided decoding is not supported",
    )
    fields.only("modalities", (["text"],), "the model only writes text")
    name = "max_completion_tokens"
    if body.get(name) is None:
      name = "max_tokens"  # The deprecated name.
    job = self._job(fields, (prompt,), name, self._model.max_tokens)
    return _asked(fields, job, True, False, with_logprobs, num_top)

  def _job(
    self,
    fields: Fields,
    prompts: tuple[types.Prompt, ...],
    max_tokens_name: str,
    max_tokens: int,
  ) -> SamplingJob:
    """Parses the sampling fields of a request.

    Args:
      fields: the unread fields.
      max_tokens_name: the field with the maximum number of new tokens.
      max_tokens: its default, which is lowered to what fits into the model's
        context.
    """
    model = self._model
    room = model.context - max(len(p.token_ids) for p in prompts)
    if room < 1:
      message = (
        f"the prompt fills the model's context of {model.context} tokens"
      )
      raise ApiError(400, message, code="context_length_exceeded")
    limit = min(model.max_tokens, room)
    why = " (rollout.max_tokens, and the model's context)"
    n = fields.integer("n", 1, 1, _MAX_N, "")
    max_new = fields.integer(
      max_tokens_name, min(max_tokens, limit), 1, limit, why
    )
    fields.ignore("max_tokens", "max_completion_tokens")
    assert n is not None and max_new is not None
    seed = fields.integer("seed", None, -_MAX_SEED, _MAX_SEED, "")
    _refuse_truncation(fields, model.top_p, model.top_k)
    for name, (allowed, why) in _NEUTRAL.items():
      fields.only(name, allowed, why)
    step, adapter = _weights(fields, model, self._step)
    return SamplingJob(
      prompts=prompts,
      n=n,
      seed=self._new_seed if seed is None else sampler_seed(seed),
      temperature=_temperature(fields, model.temperature),
      max_new_tokens=max_new,
      stop_strings=fields.stops("stop", _MAX_STOPS),
      is_streamed=fields.boolean("stream"),
      step=step,
      adapter=adapter,
    )


def _asked(
  fields: Fields,
  job: SamplingJob,
  is_chat: bool,
  echo: bool,
  with_logprobs: bool,
  num_top: int,
) -> Asked:
  """Parses how to answer a job. It must read all remaining fields."""
  is_scored = num_top > 0 or (echo and with_logprobs)
  if is_scored and job.is_streamed:
    why = "false, because echoed prompts and top_logprobs are scored at the end"
    fields.refuse("stream", True, why)
  options = fields.take("stream_options") or {}
  if not isinstance(options, dict) or (options and not job.is_streamed):
    fields.refuse("stream_options", options, "an object, with stream=true")
  stream_options = Fields(options, "stream_options.")
  asked = Asked(
    job=dataclasses.replace(
      job, is_scored=is_scored, scores_prompts=echo and with_logprobs
    ),
    is_chat=is_chat,
    echo=echo,
    with_logprobs=with_logprobs,
    num_top=num_top,
    with_token_ids=fields.boolean("return_token_ids"),
    with_usage=stream_options.boolean("include_usage"),
    includes_stop=fields.boolean("include_stop_str_in_output"),
  )
  stream_options.ignore("include_obfuscation")
  stream_options.end()
  fields.ignore(*_IGNORED)
  fields.end()
  return asked


def _temperature(fields: Fields, default: float) -> float:
  """Reads the temperature. Values close to 0 become 0, which is greedy."""
  value = fields.number("temperature", default, 0)
  return value if value >= _MIN_TEMPERATURE else 0.0


def sampler_seed(seed: int) -> int:
  """Returns the integer that the sampler folds into its key for a seed.

  Seeds from 0 to 2^31 - 1 stay as they are; other seeds are hashed.
  """
  if 0 <= seed < SEED_RANGE:
    return seed
  words = np.random.SeedSequence(seed % (1 << 65)).generate_state(1)
  return int(words[0]) % SEED_RANGE


def _refuse_truncation(fields: Fields, top_p: float, top_k: int) -> None:
  """Rejects a top-p or top-k that differs from the compiled one."""
  for name, value, neutral in (("top_p", top_p, 1), ("top_k", top_k, 0)):
    allowed = (value,) if value != neutral else (value, neutral)
    if name == "top_k" and not value:
      allowed = (0, -1)
    fields.only(
      name,
      allowed,
      f"all requests share it: --config.rollout.{name} sets it",
    )


def _weights(
  fields: Fields, model: ServedModel, step: int
) -> tuple[int | None, AdapterRef]:
  """Returns the step and the adapter that a request's `model` names.

  A step of None means the newest. The worker decides later whether the step is
  served, because a swap may be pending.

  Raises:
    ApiError: the request names another model.
  """
  asked = fields.take("model")
  if asked is None or asked == model.name:
    return None, BASE
  if isinstance(asked, str) and asked in model.adapters:
    return None, model.adapters[asked]
  name, _, number = str(asked).rpartition("@")
  is_step = number.isascii() and number.isdecimal() and len(number) < 19
  is_step = is_step and number == str(int(number))
  if model.has_steps and name == model.name and is_step:
    return int(number), BASE
  expected = " or ".join(repr(id) for id in [model.id(step), *model.adapters])
  raise ApiError(
    404,
    f"model={asked!r:.80}: expected {expected}",
    param="model",
    code="model_not_found",
  )


def _prompts(fields: Fields, model: ServedModel) -> tuple[types.Prompt, ...]:
  """Returns the prompts. The field is a text, token ids, or a list of them."""
  value = fields.take("prompt")
  if isinstance(value, str) or _are_ids(value, model):
    value = [value]
  if not isinstance(value, list) or not 1 <= len(value) <= _MAX_PROMPTS:
    fields.refuse(
      "prompt",
      value,
      f"a text, token ids, or a list of 1 to {_MAX_PROMPTS} of these",
    )
  prompts = []
  for one in value:
    if isinstance(one, str):
      ids = tuple(model.tokenizer.encode_prompt(one))
      prompts.append(_prompt(one, ids, model, "prompt"))
    elif _are_ids(one, model):
      text = model.tokenizer.decode(one)
      prompts.append(_prompt(text, tuple(one), model, "prompt"))
    else:
      expected = f"a text, or ids from 0 to {model.tokenizer.vocab_size - 1}"
      fields.refuse("prompt", one, expected)
  return tuple(prompts)


def _are_ids(value: Any, model: ServedModel) -> bool:
  """Returns whether a value is a non-empty list of token ids."""
  return (
    isinstance(value, list)
    and len(value) > 0
    and all(type(i) is int for i in value)
    and 0 <= min(value)
    and max(value) < model.tokenizer.vocab_size
  )


def _prompt(
  text: str,
  token_ids: tuple[int, ...],
  model: ServedModel,
  param: str,
) -> types.Prompt:
  """Returns a prompt that fits the sampler.

  Raises:
    ApiError: the prompt is empty or too long.
  """
  longest = model.max_prompt_tokens
  if not 1 <= len(token_ids) <= longest:
    raise ApiError(
      400,
      f"{param} has {len(token_ids)} tokens: expected 1 to {longest} (the "
      "largest of rollout.prompt_buckets)",
      param=param,
      code="context_length_exceeded" if token_ids else None,
    )
  return types.Prompt(text, token_ids)


def _messages(fields: Fields) -> list[dict[str, str]]:
  """Returns the messages of a conversation, each with a role and content."""
  value = fields.take("messages")
  if not isinstance(value, list) or not value:
    fields.refuse("messages", value, "a non-empty list of messages")
  messages = []
  for index, message in enumerate(value):
    where = f"messages[{index}]"
    if not isinstance(message, dict):
      fields.refuse(where, message, "an object with role and content")
    inside = Fields(message, f"{where}.")
    role, content = inside.take("role"), inside.take("content")
    if not isinstance(role, str) or not role:
      inside.refuse("role", role, "a name such as 'user'")
    try:
      content = contents.text(content)
    except ValueError as error:
      raise ApiError(
        400, f"{where}.{error}", param=f"{where}.content"
      ) from error
    inside.ignore("name")
    for name in ("tool_calls", "annotations"):
      inside.only(name, ([],), "the model is given no tools")
    inside.end()
    messages.append({"role": role, "content": content})
  return messages


def _template_arguments(fields: Fields, model: ServedModel) -> dict[str, Any]:
  """Merges the chat template's arguments of the server and of the request.

  Raises:
    ApiError: the request's arguments are not an object.
  """
  given = fields.take("chat_template_kwargs")
  if given is None:
    given = {}
  if not isinstance(given, dict):
    fields.refuse("chat_template_kwargs", given, "an object, or null")
  return {**model.template_arguments, **given}


def _ending(
  fields: Fields, messages: Sequence[Mapping[str, str]]
) -> tuple[bool, bool]:
  """Reads where the prompt ends from vLLM's fields.

  Returns:
    (is_answered, is_continued): whether the prompt ends after the last message,
    without a new assistant turn, and whether the model continues that message.

  Raises:
    ApiError: the fields contradict each other or the messages.
  """
  asks = fields.take("add_generation_prompt")
  if asks is not None and not isinstance(asks, bool):
    fields.refuse("add_generation_prompt", asks, "true or false")
  is_continued = fields.boolean("continue_final_message")
  if is_continued and asks is not False:
    fields.refuse(
      "continue_final_message", True, "false unless add_generation_prompt=false"
    )
  if is_continued and messages[-1]["role"] != ASSISTANT:
    fields.refuse(
      "continue_final_message",
      True,
      "false unless the last message is the assistant's",
    )
  return asks is False, is_continued
