"""The paths of the Tinker API."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from aiohttp import web

from azr_jax.config import user_files
from azr_jax.serving import errors
from azr_jax.serving.errors import ApiError
from azr_jax.serving.protocol import ServedModel
from azr_jax.serving.tinker import bodies
from azr_jax.serving.tinker.checkpoints import SAMPLER, WEIGHTS
from azr_jax.serving.tinker.samplers import Sample
from azr_jax.serving.tinker.service import Service

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
# JSON request -> JSON answer.
_Handler = Callable[[dict[str, Any]], Mapping[str, Any]]


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

  def add_to(self, app: web.Application, sample: Sample) -> None:
    """Adds the paths to an application.

    Args:
      app: the application.
      sample: samples a job.
    """
    service = self._service
    models, states, samplers = service.models, service.states, service.samplers
    posts: dict[str, _Handler] = {
      "client/config": lambda body: _CLIENT,
      "client/dynamic_config": lambda body: {},
      "create_session": service.sessions.create,
      "session_heartbeat": self._heartbeat,
      "telemetry": lambda body: {"status": "accepted"},
      "create_model": models.create,
      "get_info": lambda body: models.info(bodies.text(body, "model_id")),
      "optim_step": models.optim_step,
      "save_weights": lambda body: states.save(body, WEIGHTS),
      "save_weights_for_sampler": self._save_for_sampler,
      "load_weights": states.load,
      "weights_info": lambda body: states.info(
        bodies.text(body, "tinker_path")
      ),
      "asample": lambda body: samplers.sample(body, sample),
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
    self._service.sessions.touch(bodies.text(body, "session_id"))
    return {"type": "session_heartbeat"}

  def _save_for_sampler(self, body: dict[str, Any]) -> Mapping[str, Any]:
    if body.get("path") is not None:
      return self._service.states.save(body, SAMPLER)
    return self._service.samplers.save(body)

  async def _forward_backward(self, request: web.Request) -> web.Response:
    body = await request.read()
    return web.json_response(self._service.models.forward_backward(body))

  async def _retrieve(self, request: web.Request) -> web.Response:
    body = await _read(request)
    request_id = bodies.text(body, "request_id")
    reply = await self._service.operations.futures.fetch(request_id, _POLL_S)
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
    return web.json_response(await self._service.samplers.create(body))

  async def _finish_session(self, request: web.Request) -> web.Response:
    self._service.sessions.finish(request.match_info["id"])
    return web.json_response({})

  async def _sampler(self, request: web.Request) -> web.Response:
    sampler_id = request.match_info["id"]
    one = self._service.samplers.find(sampler_id)
    body = {
      "sampler_id": sampler_id,
      "base_model": self._service.base.name,
      "model_path": one.model_path,
    }
    return web.json_response({k: v for k, v in body.items() if v is not None})

  async def _health(self, request: web.Request) -> web.Response:
    del request
    refusal = self._service.operations.worker.refusal
    if refusal is not None:
      raise refusal
    return web.json_response({"status": "ok"})

  async def _capabilities(self, request: web.Request) -> web.Response:
    del request
    model = self._model
    longest = min(model.context, model.max_prompt_tokens + model.max_tokens)
    supported = {
      "model_name": self._service.base.name,
      "max_context_length": longest,
      "trainable": True,
      "sampleable": True,
    }
    return web.json_response({"supported_models": [supported]})

  async def _runs(self, request: web.Request) -> web.Response:
    runs, cursor = _page(await self._all_runs(), request)
    return web.json_response({"training_runs": runs, "cursor": cursor})

  async def _all_runs(self) -> list[dict[str, Any]]:
    """Returns all runs; reading an object store takes a while."""
    return await asyncio.to_thread(self._service.states.runs)

  async def _one_run(self, request: web.Request) -> web.Response:
    wanted = request.match_info["id"]
    for run in await self._all_runs():
      if run["training_run_id"] == wanted:
        return web.json_response(run)
    raise ApiError(404, f"training run {wanted!r:.120}: expected a saved one")

  async def _checkpoints(self, request: web.Request) -> web.Response:
    wanted = request.match_info.get("id")
    checkpoints = self._service.states.checkpoints
    found = [
      checkpoints.describe(one)
      for one in await asyncio.to_thread(checkpoints.every)
      if wanted in (None, one.about["model_id"])
    ]
    some, cursor = _page(found, request)
    return web.json_response({"checkpoints": some, "cursor": cursor})

  async def _delete(self, request: web.Request) -> web.Response:
    names = request.match_info
    path = f"tinker://{names['id']}/{names['kind']}/{names['name']}"
    await asyncio.wrap_future(self._service.states.delete(path))
    return web.json_response({})


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
