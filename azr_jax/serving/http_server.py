"""The HTTP side of the server: requests in, answers and streams out.

It runs on its own thread and submits jobs to the worker's thread. When a client
disconnects, its job is cancelled.
"""

import asyncio
import contextlib
import hmac
import json
import logging
import secrets
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from aiohttp import http, web

from azr_jax.config import user_files
from azr_jax.serving import errors
from azr_jax.serving.answers import Answer
from azr_jax.serving.decoding import DecodeWorker
from azr_jax.serving.errors import ApiError
from azr_jax.serving.jobs import NewTokens, SamplingJob, Update
from azr_jax.serving.protocol import SEED_RANGE, Asked, Reader, ServedModel

if TYPE_CHECKING:
  from azr_jax.serving.tinker.routes import Routes

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_log = logging.getLogger(__name__)
# Paths that need no key, for health checks.
_OPEN_PATHS = ("/health",)
# Maximum size of a request body.
_MAX_BODY_MIB = 4
# How long a client may keep sending a refused request.
_LINGER_S = 10.0
# How long answers may take to send once the worker has stopped.
_CLOSE_S = 5.0


class _OneLine(logging.Filter):
  """Shortens aiohttp's log of malformed requests to one line each."""

  def filter(self, record: logging.LogRecord) -> bool:
    """Replaces the traceback of a client's error with its message."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, http.HttpProcessingError):
      problem = " ".join(str(error).split())
      # The client's bytes may contain terminal control characters.
      record.msg = f"{record.getMessage()}: {problem!a:.200}"
      record.args = record.exc_info = record.exc_text = None
    return True


def _requests_log() -> logging.Logger:
  """Returns the logger for requests that reach no handler."""
  log = logging.getLogger(f"{__name__}.requests")
  log.filters = [_OneLine()]
  return log


class HttpServer:
  """Serves a worker's samples until it is closed."""

  def __init__(
    self,
    worker: DecodeWorker,
    model: ServedModel,
    api_key: str,
    read_s: float,
    timeout_s: float,
    training: "Routes | None" = None,
  ):
    """Creates a server; `start` makes it listen.

    Args:
      worker: samples the jobs.
      model: the model as clients see it.
      api_key: the key that clients must send. "" lets everyone in.
      read_s: time limit for a request's head, and again for its body.
      timeout_s: time after which a request gets status 503.
      training: the paths of the API for training. None without.
    """
    self._training = training
    self._worker, self._model, self._api_key = worker, model, api_key
    self._read_s, self._timeout_s = read_s, timeout_s
    self._updates: dict[SamplingJob, _Updates] = {}
    self._loop = asyncio.new_event_loop()
    self._thread = threading.Thread(
      target=self._loop.run_forever, name="http", daemon=True
    )
    self._runner: web.AppRunner | None = None

  def start(self, host: str, port: int) -> int:
    """Listens on a new thread and returns the port.

    Args:
      host: the address to listen on.
      port: the TCP port. 0 picks a free one.

    Raises:
      OSError: the server cannot listen on the address.
    """
    self._thread.start()
    started = asyncio.run_coroutine_threadsafe(
      self._start(host, port), self._loop
    )
    return started.result()

  async def _start(self, host: str, port: int) -> int:
    size = self._max_body_mib * 2**20
    app = web.Application(
      client_max_size=size, middlewares=[self._errors, self._check]
    )
    app.add_routes(
      [
        web.get("/health", self._health),
        web.get("/v1/models", self._models),
        web.get("/v1/models/{id:.+}", self._one_model),
        web.post("/v1/completions", self._completions),
        web.post("/v1/chat/completions", self._chat),
      ]
    )
    if self._training is not None:
      self._training.add_to(app, self.sample)
    self._runner = web.AppRunner(
      app,
      # Cancel the handler when its client disconnects.
      handler_cancellation=True,
      handle_signals=False,
      access_log=None,
      logger=_requests_log(),
      # This also closes connections that never complete their request head.
      keepalive_timeout=self._read_s,
      # Drain the rest of a refused body, so that the client gets its answer.
      lingering_time=min(_LINGER_S, self._read_s),
      shutdown_timeout=_CLOSE_S,
    )
    await self._runner.setup()
    site = web.TCPSite(self._runner, host, port)
    await site.start()
    return self._runner.addresses[0][1]

  @property
  def _max_body_mib(self) -> int:
    """Maximum size of a request body."""
    if self._training is None:
      return _MAX_BODY_MIB
    return self._training.max_body_mib

  def deliver(self, updates: Sequence[tuple[SamplingJob, Update]]) -> None:
    """Delivers updates to jobs; the worker's thread calls it."""
    self._loop.call_soon_threadsafe(self._dispatch, updates)

  def _dispatch(self, updates: Sequence[tuple[SamplingJob, Update]]) -> None:
    for job, update in updates:
      if job in self._updates:
        self._updates[job].put(update)

  def close(self) -> None:
    """Sends the pending answers and ends the thread."""
    if self._runner is not None:
      asyncio.run_coroutine_threadsafe(
        self._runner.cleanup(), self._loop
      ).result()
    self._loop.call_soon_threadsafe(self._loop.stop)
    self._thread.join()
    self._loop.close()

  @web.middleware
  async def _errors(
    self, request: web.Request, handler: Handler
  ) -> web.StreamResponse:
    """Turns errors into the API's error object."""
    try:
      return await handler(request)
    except ApiError as error:
      return _error_response(error)
    except ConnectionError as error:  # The client has disconnected.
      return _error_response(ApiError(400, f"the connection was lost: {error}"))
    except web.HTTPRequestEntityTooLarge:
      message = f"the request is larger than {self._max_body_mib} MiB"
      return _error_response(ApiError(413, message))
    except web.HTTPException as error:
      message = f"{request.method} {request.path}: {error.reason}"
      return _error_response(ApiError(error.status, message))
    except Exception:  # noqa: BLE001 - a bug must not end other answers.
      _log.exception("%s %s", request.method, request.path)
      message = "internal server error; the server's log has the traceback"
      return _error_response(ApiError(500, message, "server_error"))

  @web.middleware
  async def _check(
    self, request: web.Request, handler: Handler
  ) -> web.StreamResponse:
    """Refuses clients without the key, and forms sent by other web pages."""
    given = request.headers.get("Authorization", "").removeprefix("Bearer ")
    # The clients of the training API send their key so.
    given = given or request.headers.get("X-API-Key", "")
    is_open = request.path in _OPEN_PATHS or not self._api_key
    if not is_open and not hmac.compare_digest(
      given.encode("utf-8", "surrogateescape"), self._api_key.encode()
    ):
      raise ApiError(
        401,
        "Authorization: expected 'Bearer KEY' with the server's key",
        code="invalid_api_key",
      )
    kinds = ["application/json"]
    if self._training is not None:
      kinds += ["application/x-protobuf", "application/octet-stream"]
    if request.method == "POST" and request.content_type not in kinds:
      raise ApiError(
        415,
        f"Content-Type: {request.content_type}: expected application/json",
      )
    return await handler(request)

  async def _health(self, request: web.Request) -> web.StreamResponse:
    """Returns whether the server accepts jobs, and its counters."""
    del request
    refusal, status = self._worker.refusal, self._worker.status()
    body = {
      "status": "ok" if refusal is None else refusal.code,
      "model": self._model.id(status.step),
      "running": status.running,
      "waiting": status.waiting,
      "answered": status.answered,
      "cancelled": status.cancelled,
      "tokens": status.tokens,
      "free_pages": status.free_pages,
    }
    return web.json_response(body, status=200 if refusal is None else 503)

  def _model_bodies(self) -> dict[str, dict[str, Any]]:
    """Returns the descriptions of the model and its adapters by id."""
    ids = [self._model.id(self._worker.step), *self._model.adapters]
    return {name: self._model_body(name) for name in ids}

  def _model_body(self, name: str) -> dict[str, Any]:
    return {
      "id": name,
      "object": "model",
      "created": self._model.created,
      "owned_by": "azr_jax",
      "max_model_len": min(
        self._model.context,
        self._model.max_prompt_tokens + self._model.max_tokens,
      ),
    }

  async def _models(self, request: web.Request) -> web.StreamResponse:
    del request
    bodies = [*self._model_bodies().values()]
    return web.json_response({"object": "list", "data": bodies})

  async def _one_model(self, request: web.Request) -> web.StreamResponse:
    bodies, name = self._model_bodies(), request.match_info["id"]
    if name == self._model.name:
      name = next(iter(bodies))
    if name not in bodies:
      raise ApiError(
        404,
        f"model {name!r:.80}: expected {' or '.join(map(repr, bodies))}",
        param="model",
        code="model_not_found",
      )
    return web.json_response(bodies[name])

  async def _completions(self, request: web.Request) -> web.StreamResponse:
    body = await self._json(request)
    return await self._answer(request, self._reader().completion(body))

  async def _chat(self, request: web.Request) -> web.StreamResponse:
    body = await self._json(request)
    return await self._answer(request, self._reader().chat(body))

  async def _json(self, request: web.Request) -> dict[str, Any]:
    """Returns the JSON object in a request's body.

    Raises:
      ApiError: the body is not a JSON object, or arrives too late.
    """
    limit_s = self._read_s
    try:
      async with asyncio.timeout(limit_s):
        data = await request.read()
    except TimeoutError:
      message = f"the request was not sent in {limit_s:g} s (serve.read_s)"
      raise ApiError(408, message, code="timeout") from None
    try:
      value = user_files.parse_json(data.decode(user_files.ENCODING))
    except ValueError as error:
      raise ApiError(400, f"the request is not JSON: {error}") from None
    if not isinstance(value, dict):
      raise ApiError(400, f"the request is {value!r:.80}: expected an object")
    return value

  def _reader(self) -> Reader:
    seed = secrets.randbelow(SEED_RANGE)
    return Reader(self._model, self._worker.step, seed)

  async def _answer(
    self, request: web.Request, asked: Asked
  ) -> web.StreamResponse:
    """Samples a request and returns the answer."""
    answer = Answer(asked, self._model)
    with self._open(asked.job) as updates:
      if asked.job.is_streamed:
        return await _stream(request, asked, answer, updates)
      while not answer.is_done:
        answer.add(await updates.next())
      return web.json_response(answer.body())

  def sample(self, job: SamplingJob) -> "asyncio.Task[list[NewTokens]]":
    """Submits a job that is not streamed.

    Returns:
      Its choices, in order, once they are sampled. Cancelling the task cancels
      the job.

    Raises:
      ApiError: the job is refused.
    """
    opened = contextlib.ExitStack()
    updates = opened.enter_context(self._open(job))

    async def collect() -> list[NewTokens]:
      found: dict[int, NewTokens] = {}
      while len(found) < job.num_choices:
        tokens = await updates.next()
        found[tokens.choice] = tokens
      return [found[choice] for choice in range(job.num_choices)]

    task = asyncio.create_task(collect())
    # A task that is cancelled before it starts runs none of its code.
    task.add_done_callback(lambda done: opened.close())
    return task

  @contextlib.contextmanager
  def _open(self, job: SamplingJob) -> Iterator["_Updates"]:
    """Submits a job and yields its updates; cancels it at the end."""
    updates = _Updates(self._timeout_s, lambda: self._worker.task_s)
    self._updates[job] = updates
    try:
      self._worker.submit(job)
      yield updates
    finally:
      del self._updates[job]
      self._worker.cancel(job)  # A no-op if the job has ended.


class _Updates:
  """Updates of a job that its answer has not consumed yet."""

  def __init__(self, timeout_s: float, task_s: Callable[[], float]):
    """Creates an empty queue and starts its timeout.

    Args:
      timeout_s: seconds that all `next` calls together may wait.
      task_s: seconds that the worker has spent on other things than sampling,
        such as training, which do not count.
    """
    self._queue: asyncio.Queue[Update] = asyncio.Queue()
    self._timeout_s, self._task_s = timeout_s, task_s
    self._end = asyncio.get_running_loop().time() + timeout_s - task_s()

  def put(self, update: Update) -> None:
    """Adds an update."""
    self._queue.put_nowait(update)

  @property
  def is_empty(self) -> bool:
    """Whether `next` would wait."""
    return self._queue.empty()

  async def next(self) -> NewTokens:
    """Returns the next tokens.

    Raises:
      ApiError: the job failed, or the timeout has passed.
    """
    loop = asyncio.get_running_loop()
    while True:
      deadline = self._end + self._task_s()
      try:
        async with asyncio.timeout_at(deadline):
          update = await self._queue.get()
      except TimeoutError:
        if loop.time() < self._end + self._task_s():
          continue
        raise errors.unavailable(
          f"not answered in {self._timeout_s:g} seconds (serve.timeout_s)",
          "timeout",
        ) from None
      if isinstance(update, ApiError):
        raise update
      return update


async def _stream(
  request: web.Request, asked: Asked, answer: Answer, updates: _Updates
) -> web.StreamResponse:
  """Answers with server-sent events, at least one per update with new text."""
  tokens = await updates.next()  # An error this early still sets the status.
  response = web.StreamResponse(
    headers={
      "Content-Type": "text/event-stream; charset=utf-8",
      "Cache-Control": "no-cache",
      "X-Accel-Buffering": "no",
    }
  )
  await response.prepare(request)
  chunks = answer.first_chunks(tokens.steps)
  try:
    while True:
      chunks += answer.chunks(tokens)
      if answer.is_done:
        break
      if updates.is_empty and chunks:
        await response.write(_events(chunks))
        chunks = []
      tokens = await updates.next()
    if asked.with_usage:
      chunks.append(answer.usage_chunk())
    await response.write(_events(chunks) + b"data: [DONE]\n\n")
  except ApiError as error:
    await response.write(_events([*chunks, error.body()]))
  await response.write_eof()
  return response


def _events(chunks: Sequence[dict[str, Any]]) -> bytes:
  """Returns chunks as server-sent events."""
  return b"".join(
    b"data: " + json.dumps(chunk, ensure_ascii=False).encode() + b"\n\n"
    for chunk in chunks
  )


def _error_response(error: ApiError) -> web.Response:
  headers = {}
  if error.retry_after_s is not None:
    headers["Retry-After"] = str(error.retry_after_s)
  return web.json_response(error.body(), status=error.status, headers=headers)
