"""The paths of the Tinker API."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from aiohttp import web

from azr_jax import types
from azr_jax.config import user_files
from azr_jax.serving import errors
from azr_jax.serving.errors import ApiError
from azr_jax.serving.jobs import NewTokens, SamplingJob
from azr_jax.serving.protocol import SEED_RANGE, ServedModel, sampler_seed
from azr_jax.serving.tinker import bodies, wire
from azr_jax.serving.tinker.checkpoints import SAMPLER, WEIGHTS
from azr_jax.serving.tinker.futures import Reply
from azr_jax.serving.tinker.service import Service, failed

_ROOT = "/api/v1/"
# A client waits 45 seconds for a result.
_POLL_S = 30.0
_REAP_S = 10.0
# Larger than the parts into which clients cut their batches.
_MAX_BODY_MIB = 64
# Batches of one request: larger than any that fits the limit of a body.
_CLIENT = {
  "fwdbwd_max_chunk_len": 1 << 20,
  "fwdbwd_max_chunk_bytes_count": 48 << 20,
}
_MAX_SAMPLES = 1024
# JSON request -> JSON answer.
_Handler = Callable[[dict[str, Any]], Mapping[str, Any]]
# Samples a job; its choices in order.
Sample = Callable[[SamplingJob], Awaitable[list[NewTokens]]]


class Routes:
  """The handlers of the API.

  Attributes:
    max_body_mib: maximum size of a request body.
  """

  max_body_mib = _MAX_BODY_MIB

  def __init__(self, service: Service, model: ServedModel):
    """Stores its arguments.

    Args:
      service: what the requests do.
      model: the limits of sampling.
    """
    self._service, self._model = service, model
    self._sample: Sample | None = None
    self._tasks: set[asyncio.Task[None]] = set()

  def add_to(self, app: web.Application, sample: Sample) -> None:
    """Adds the paths to an application.

    Args:
      app: the application.
      sample: samples a job.
    """
    self._sample = sample
    service = self._service
    posts: dict[str, _Handler] = {
      "client/config": lambda body: _CLIENT,
      "client/dynamic_config": lambda body: {},
      "create_session": service.create_session,
      "session_heartbeat": self._heartbeat,
      "telemetry": lambda body: {"status": "accepted"},
      "create_model": service.create_model,
      "get_info": lambda body: service.info(bodies.text(body, "model_id")),
      "optim_step": service.optim_step,
      "save_weights": lambda body: service.save(body, WEIGHTS),
      "save_weights_for_sampler": self._save_for_sampler,
      "load_weights": service.load,
      "weights_info": lambda body: service.saved_info(
        bodies.text(body, "tinker_path")
      ),
      "asample": self._asample,
    }
    app.add_routes(
      [web.post(_ROOT + path, _json(each)) for path, each in posts.items()]
    )
    app.add_routes(
      [
        web.post(_ROOT + "forward_backward", self._forward_backward),
        web.post(_ROOT + "retrieve_future", self._retrieve),
        web.post(_ROOT + "create_sampling_session", self._create_sampler),
        web.post(_ROOT + "sessions/{id}/finish", self._finish_session),
        web.get(_ROOT + "samplers/{id}", self._sampler),
        web.get(_ROOT + "healthz", self._health),
        web.get(_ROOT + "get_server_capabilities", self._capabilities),
        web.get(_ROOT + "training_runs", self._runs),
        web.get(_ROOT + "training_runs/{id}", self._one_run),
        web.get(_ROOT + "training_runs/{id}/checkpoints", self._checkpoints),
        web.get(_ROOT + "checkpoints", self._checkpoints),
        web.delete(
          _ROOT + "training_runs/{id}/checkpoints/{kind}/{name}", self._delete
        ),
      ]
    )
    app.cleanup_ctx.append(self._reaping)

  async def _reaping(self, app: web.Application) -> Any:
    """Ends silent sessions while the server runs."""
    del app

    async def reap() -> None:
      while True:
        await asyncio.sleep(_REAP_S)
        self._service.reap()

    task = asyncio.create_task(reap())
    yield
    task.cancel()

  def _heartbeat(self, body: dict[str, Any]) -> Mapping[str, Any]:
    self._service.touch(bodies.text(body, "session_id"))
    return {"type": "session_heartbeat"}

  def _save_for_sampler(self, body: dict[str, Any]) -> Mapping[str, Any]:
    if body.get("path") is not None:
      return self._service.save(body, SAMPLER)
    return self._service.save_for_sampling(body)

  async def _forward_backward(self, request: web.Request) -> web.Response:
    if request.headers.get("Content-Encoding", "identity") != "identity":
      raise ApiError(415, "Content-Encoding: expected none")
    body = await request.read()
    return web.json_response(self._service.forward_backward(body))

  async def _retrieve(self, request: web.Request) -> web.Response:
    body = await _read(request)
    request_id = bodies.text(body, "request_id")
    reply = await self._service.futures.fetch(request_id, _POLL_S)
    if reply is None:
      waiting = {
        "type": "try_again",
        "request_id": request_id,
        "queue_state": "active",
      }
      return web.json_response(waiting, status=408)
    kind = "application/x-protobuf" if reply.is_protobuf else "application/json"
    return web.Response(body=reply.body, content_type=kind)

  async def _create_sampler(self, request: web.Request) -> web.Response:
    body = await _read(request)
    return web.json_response(await self._service.create_sampler(body))

  async def _finish_session(self, request: web.Request) -> web.Response:
    self._service.finish_session(request.match_info["id"])
    return web.json_response({})

  async def _sampler(self, request: web.Request) -> web.Response:
    sampler_id = request.match_info["id"]
    one = self._service.samplers.get(sampler_id)
    if one is None:
      raise ApiError(404, f"sampler {sampler_id!r:.120}: expected an open one")
    body = {
      "sampler_id": sampler_id,
      "base_model": self._service.base_model,
      "model_path": one.model_path,
    }
    return web.json_response({k: v for k, v in body.items() if v is not None})

  async def _health(self, request: web.Request) -> web.Response:
    del request
    refusal = self._service.worker.refusal
    if refusal is not None:
      raise refusal
    return web.json_response({"status": "ok"})

  async def _capabilities(self, request: web.Request) -> web.Response:
    del request
    model = self._model
    longest = min(model.context, model.max_prompt_tokens + model.max_tokens)
    supported = {
      "model_name": self._service.base_model,
      "max_context_length": longest,
      "trainable": True,
      "sampleable": True,
    }
    return web.json_response({"supported_models": [supported]})

  async def _runs(self, request: web.Request) -> web.Response:
    runs, cursor = _page(self._service.runs(), request)
    return web.json_response({"training_runs": runs, "cursor": cursor})

  async def _one_run(self, request: web.Request) -> web.Response:
    wanted = request.match_info["id"]
    for run in self._service.runs():
      if run["training_run_id"] == wanted:
        return web.json_response(run)
    raise ApiError(404, f"training run {wanted!r:.120}: expected a saved one")

  async def _checkpoints(self, request: web.Request) -> web.Response:
    wanted = request.match_info.get("id")
    found = [
      self._service.checkpoints.describe(one)
      for one in self._service.checkpoints.every()
      if wanted in (None, one.about["model_id"])
    ]
    some, cursor = _page(found, request)
    return web.json_response({"checkpoints": some, "cursor": cursor})

  async def _delete(self, request: web.Request) -> web.Response:
    names = request.match_info
    path = f"tinker://{names['id']}/{names['kind']}/{names['name']}"
    self._service.checkpoints.delete(path)
    return web.json_response({})

  # Sampling.

  def _asample(self, body: dict[str, Any]) -> Mapping[str, Any]:
    """Starts sampling; returns the future."""
    service = self._service
    sampler_id = bodies.text(body, "sampling_session_id")
    one = service.samplers.get(sampler_id)
    if one is None:
      raise ApiError(
        404, f"sampling_session_id={sampler_id!r:.120}: expected an open one"
      )
    service.touch(one.session_id)
    seq_id = bodies.integer(body, "seq_id")
    samples = bodies.integer(body, "num_samples", 1, 1, _MAX_SAMPLES)

    def start(request_id: str) -> None:
      residents = service.worker.residents
      assert residents is not None
      job = self._job(body, samples, one.snapshot or residents.base)
      assert self._sample is not None
      choices = self._sample(job)
      task = asyncio.create_task(
        self._finish_sample(request_id, body, job, choices)
      )
      # The event loop keeps only a weak reference to a task.
      self._tasks.add(task)
      task.add_done_callback(self._tasks.discard)

    return service.begin(
      (sampler_id, "sample", seq_id),
      start,
      sample_sequence_ids=[
        f"{sampler_id}:{seq_id}:{i}" for i in range(samples)
      ],
    )

  async def _finish_sample(
    self,
    request_id: str,
    body: Mapping[str, Any],
    job: SamplingJob,
    choices: Awaitable[list[NewTokens]],
  ) -> None:
    """Finishes a future once its job is sampled."""
    try:
      reply = _sampled(body, job, await choices)
    except Exception as error:  # noqa: BLE001 - the client gets it.
      reply = failed(error)
    self._service.futures.finish(request_id, reply)

  def _job(
    self, body: Mapping[str, Any], samples: int, snapshot: Any
  ) -> SamplingJob:
    """Parses what to sample.

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
    strings, stop_ids = _stops(params.get("stop"), model.tokenizer.vocab_size)
    seed = params.get("seed")
    top = max(_num_top(body, name, model) for name in _TOPS)
    with_prompt = _wants_prompt(body)
    if (top or with_prompt) and not model.max_logprobs:
      errors.refuse_field(
        "prompt_logprobs", True, "false with serve.max_logprobs=0"
      )
    return SamplingJob(
      prompts=(types.Prompt("", ids),),
      n=samples,
      seed=(
        secrets.randbelow(SEED_RANGE)
        if seed is None
        else sampler_seed(bodies.integer(params, "seed", None, -(1 << 62)))
      ),
      temperature=bodies.number(params, "temperature", 1.0, 0),
      max_new_tokens=max_tokens,
      stop_strings=strings,
      stop_ids=stop_ids,
      is_scored=bool(top or with_prompt),
      scores_prompts=with_prompt,
      snapshot=snapshot,
    )


_TOPS = ("topk_prompt_logprobs", "topk_sample_logprobs")


def _num_top(body: Mapping[str, Any], name: str, model: ServedModel) -> int:
  return bodies.integer(body, name, 0, 0, model.max_logprobs)


def _wants_prompt(body: Mapping[str, Any]) -> bool:
  """Returns whether the prompt is scored.

  Raises:
    ApiError: the request wants scores that are not supported.
  """
  if body.get("target_prompt_logprobs") is not None:
    raise ApiError(
      400,
      "target_prompt_logprobs: expected null; `forward` with targets [N, K] "
      "returns the log-probabilities of chosen ids",
    )
  if bodies.integer(body, "prompt_alt_tokens_k", 0):
    errors.refuse_field("prompt_alt_tokens_k", body["prompt_alt_tokens_k"], "0")
  return bool(body.get("prompt_logprobs")) or bool(
    body.get("topk_prompt_logprobs")
  )


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
  size = model.tokenizer.vocab_size
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
    ApiError: they are neither, or nothing may end it.
  """
  if value is None:
    return (), ()
  items = [value] if isinstance(value, str) else value
  if isinstance(items, list) and items:
    texts = tuple(one for one in items if isinstance(one, str) and one)
    ids = tuple(
      one for one in items if type(one) is int and 0 <= one < vocab_size
    )
    if len(items) in (len(texts), len(ids)):
      return texts, ids
  return errors.refuse_field(
    "stop",
    value,
    "null, a text, texts or token ids; the model's EOS token always ends a "
    "response",
  )


def _sampled(
  body: Mapping[str, Any], job: SamplingJob, choices: list[NewTokens]
) -> Reply:
  """Returns the reply to a sampling request."""
  sequences = [
    wire.Sampled(
      one.token_ids,
      one.logprobs,
      wire.STOP if one.finish_reason == "stop" else wire.LENGTH,
      one.scores,
    )
    for one in choices
  ]
  num_prompt, num_sample = (int(body.get(name) or 0) for name in _TOPS)
  return Reply(
    wire.write_samples(
      sequences,
      len(job.prompts[0].token_ids),
      with_prompt=bool(body.get("prompt_logprobs")),
      num_prompt_top=num_prompt,
      num_top=num_sample,
    ),
    True,
  )


def _json(
  handler: _Handler,
) -> Callable[[web.Request], Awaitable[web.Response]]:
  """Returns a handler of requests from a function of JSON bodies."""

  async def handle(request: web.Request) -> web.Response:
    return web.json_response(handler(await _read(request)))

  return handle


async def _read(request: web.Request) -> dict[str, Any]:
  """Returns the JSON object in a request's body.

  Raises:
    ApiError: there is none.
  """
  data = await request.read()
  try:
    value = user_files.parse_json(data.decode(user_files.ENCODING) or "{}")
  except ValueError as error:
    raise ApiError(400, f"the request is not JSON: {error}") from None
  if not isinstance(value, dict):
    raise ApiError(400, f"the request is {value!r:.80}: expected an object")
  return value


def _page(
  items: list[dict[str, Any]], request: web.Request
) -> tuple[list[dict[str, Any]], dict[str, int]]:
  """Returns the part of a list that a request asks for, and where it is."""
  numbers = {}
  for name, default in (("offset", 0), ("limit", 100)):
    text = request.query.get(name, str(default))
    if not text.isascii() or not text.isdecimal():
      errors.refuse_field(name, text, "a number")
    numbers[name] = int(text)
  start, limit = numbers["offset"], numbers["limit"]
  cursor = numbers | {"total_count": len(items)}
  return items[start : start + limit], cursor
