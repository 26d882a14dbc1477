"""Environments of `verifiers`, run unchanged.

A `verifiers` environment runs a whole rollout itself and requests each reply
from an OpenAI-compatible server. Here its client gets an in-process transport:
a request waits until the trainer's model has replied.

1. `begin` starts the rollout as a coroutine and runs it up to its first
   request, whose messages are the prompt.
2. `step` answers the request with the reply and runs up to the next request,
   whose additional messages are the turn.
3. The rollout ends by itself, or because its next request is refused as too
   long. By then the environment's own rubric has scored it.

It supports environments with `load_environment` and `rollout`, which
`verifiers` 0.1.10 to 0.3 has. The package is an optional dependency, so it is
imported on first use.
"""

import asyncio
import importlib
import json
import logging
import os
from collections.abc import Mapping
from typing import Any

import httpx

from azr_jax.environments import protocol
from azr_jax.environments.protocol import Kit, Observation, Turn
from azr_jax.tools import tool_calls

_COLUMNS = ("prompt", "answer", "info", "task", "example_id")
_TOO_LONG = "the prompt is longer than this model's maximum context length is"
_MODEL = "policy"


def load(name: str, arguments: Mapping[str, Any]) -> Kit:
  """Returns an environment that `verifiers.load_environment` finds.

  Raises:
    ValueError: the environment cannot be loaded, or scores the rollouts of a
      group together.
    ModuleNotFoundError: `verifiers` or one of its dependencies is missing.
  """
  os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
  verifiers: Any = importlib.import_module("verifiers")
  clients: Any = importlib.import_module("verifiers.clients")
  logging.getLogger("verifiers").setLevel(logging.ERROR)
  try:
    environment = verifiers.load_environment(name, **arguments)
  except Exception as error:
    cause = error.__cause__ or error
    text = " ".join(str(cause).split())[:300]
    raise ValueError(
      f"verifiers:{name}: {type(cause).__name__}: {text}"
    ) from error
  if getattr(environment, "requires_group_rollouts", False):
    raise ValueError(
      f"verifiers:{name} scores the rollouts of a group together: expected an "
      "environment whose rubric scores each rollout alone"
    )
  loop = asyncio.new_event_loop()

  def tasks(limit: int) -> list[Mapping[str, Any]]:
    rows = environment.get_dataset(n=limit or -1).to_list()
    return [
      {key: row[key] for key in _COLUMNS if row.get(key) is not None}
      | {"example_id": row.get("example_id", index)}
      for index, row in enumerate(rows)
    ]

  return Kit(
    tasks, lambda task: _Episode(environment, clients, loop, dict(task))
  )


class _Transport(httpx.AsyncBaseTransport):
  """Holds a rollout's request until there is a reply.

  Attributes:
    asked: a future of the body of the waiting request.
  """

  def __init__(self) -> None:
    self.asked: asyncio.Future[dict[str, Any]] = asyncio.Future()
    self._answer: asyncio.Future[httpx.Response] | None = None

  async def handle_async_request(
    self, request: httpx.Request
  ) -> httpx.Response:
    """Waits for the reply. Refuses a second request in the meantime."""
    body = json.loads(await request.aread())
    if self._answer is not None:
      return _refusal("the environment sent two requests at once")
    self._answer = asyncio.Future()
    self.asked.set_result(body)
    answer = await self._answer
    self._answer = None
    return answer

  def answer(self, response: httpx.Response) -> None:
    """Answers the waiting request."""
    assert self._answer is not None
    self.asked = asyncio.Future()
    self._answer.set_result(response)


class _Episode:
  """A rollout, run by an environment of `verifiers`."""

  def __init__(
    self,
    environment: Any,
    clients: Any,
    loop: asyncio.AbstractEventLoop,
    task: Mapping[str, Any],
  ):
    self._environment, self._clients = environment, clients
    self._loop, self._task = loop, task
    self._rollout: asyncio.Task[Any] | None = None
    self._shown: list[dict[str, Any]] = []
    self._turns = 0

  def begin(self) -> Observation:
    """Runs the rollout up to its first request."""
    body = self._loop.run_until_complete(self._start())
    if body is None:
      self._result()
      raise RuntimeError("the rollout ended before it requested a reply")
    self._shown = protocol.messages(body["messages"])
    return Observation(self._shown, body.get("tools") or ())

  async def _start(self) -> dict[str, Any] | None:
    openai: Any = importlib.import_module("openai")
    self._transport = _Transport()
    client = openai.AsyncOpenAI(
      api_key="none",
      base_url="http://policy/v1",
      max_retries=0,
      http_client=httpx.AsyncClient(
        transport=self._transport, trust_env=False, timeout=None
      ),
    )
    self._rollout = asyncio.create_task(
      self._environment.run_rollout(
        self._task,
        self._clients.OpenAIChatCompletionsClient(client),
        _MODEL,
        {},
      )
    )
    return await self._next_request()

  async def _next_request(self) -> dict[str, Any] | None:
    """Returns the next request's body. None if the rollout has ended."""
    assert self._rollout is not None
    asked = self._transport.asked
    await asyncio.wait(
      (self._rollout, asked), return_when=asyncio.FIRST_COMPLETED
    )
    return asked.result() if asked.done() else None

  async def _answer(self, response: httpx.Response) -> dict[str, Any] | None:
    self._transport.answer(response)
    return await self._next_request()

  def step(self, reply: str, is_cut: bool) -> Turn:
    """Passes a reply to the rollout and runs it up to its next request.

    Raises:
      RuntimeError: the rollout failed, or its next request does not extend the
        conversation so far.
    """
    self._turns += 1
    response = _completion(reply, is_cut, self._turns)
    body = self._loop.run_until_complete(self._answer(response))
    if body is None:
      return self._result()
    known, shown = self._shown, protocol.messages(body["messages"])
    if shown[: len(known)] != known or len(shown) <= len(known):
      raise RuntimeError(
        "the environment rewrites its conversation: expected one that only "
        "grows, because training needs the sampled tokens unchanged"
      )
    self._shown = shown
    return Turn(shown[len(known) + 1 :])

  def finish(self) -> Turn:
    """Ends the rollout by refusing the waiting request."""
    response = _refusal(_TOO_LONG)
    body = self._loop.run_until_complete(self._answer(response))
    if body is not None:
      raise RuntimeError("the rollout does not end when its prompt is too long")
    return self._result()

  def _result(self) -> Turn:
    """Returns the reward and the metrics of the finished rollout.

    Raises:
      RuntimeError: the rollout ended with an error.
    """
    assert self._rollout is not None
    output = self._rollout.result()
    error = output.get("error")
    if error:
      chain = error.get("error_chain_str") or error.get("error") or error
      raise RuntimeError(" ".join(str(chain).split())[:300])
    metrics = {
      name: float(value)
      for name, value in (output.get("metrics") or {}).items()
      if isinstance(value, int | float)
    }
    return Turn(
      reward=float(output.get("reward") or 0.0), is_done=True, metrics=metrics
    )

  def close(self) -> None:
    """Cancels the rollout if it is still waiting."""
    if self._rollout is not None and not self._rollout.done():
      self._rollout.cancel()
      self._loop.run_until_complete(asyncio.wait((self._rollout,)))


def _completion(reply: str, is_cut: bool, number: int) -> httpx.Response:
  """Returns a reply as a response of OpenAI's API."""
  found, text = tool_calls.find(reply)
  calls = [
    {
      "id": f"call_{number}_{index}",
      "type": "function",
      "function": {
        "name": call.name,
        "arguments": json.dumps(dict(call.arguments)),
      },
    }
    for index, call in enumerate(found)
    if not call.problem
  ]
  message: dict[str, Any] = {"role": "assistant", "content": reply}
  if calls:
    message |= {"content": text, "tool_calls": calls}
  reason = "length" if is_cut else "tool_calls" if calls else "stop"
  body = {
    "id": f"reply_{number}",
    "object": "chat.completion",
    "created": 0,
    "model": _MODEL,
    "choices": [{"index": 0, "message": message, "finish_reason": reason}],
    "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
  }
  return httpx.Response(200, json=body)


def _refusal(message: str) -> httpx.Response:
  """Returns an error response that refuses a request."""
  error = {"message": message, "type": "invalid_request_error", "code": None}
  return httpx.Response(400, json={"error": error})
