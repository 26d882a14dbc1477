"""A client of OpenAI's API, for judges and teachers, with retries.

vLLM, SGLang, `azr_jax.serve` and other servers speak it. The API key never
reaches a config or a log.
"""

import dataclasses
import http.client
import json
import math
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

CHAT_PATH = "/chat/completions"
# HTTP statuses that are worth a retry.
_BUSY = (408, 409, 425, 429, 500, 502, 503, 504)
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 20.0


class RefusedError(RuntimeError):
  """The server refused a request.

  Attributes:
    status: the HTTP status.
  """

  def __init__(self, status: int, message: str):
    """Stores the status."""
    super().__init__(message)
    self.status = status


def pause_s(attempt: int) -> float:
  """Returns the seconds to wait after failed attempt 0, 1, ..."""
  return min(_FIRST_PAUSE_S * 2**attempt, _LONGEST_PAUSE_S)


@dataclasses.dataclass(frozen=True)
class ChatServer:
  """A server, and how patiently to ask it.

  Attributes:
    url: the base URL, including the version.
    key_variable: the environment variable with the API key; "" if none is
      needed.
    timeout_s: the timeout of a request, in seconds.
    retries: the number of retries if the server is busy or unreachable.
  """

  url: str
  key_variable: str
  timeout_s: float
  retries: int

  @property
  def limit_s(self) -> float:
    """The maximum seconds per answer, including all retries and pauses."""
    pauses = sum(map(pause_s, range(self.retries)))
    return (self.retries + 1) * self.timeout_s + pauses + 5.0

  def read_key(self, environment: Mapping[str, str]) -> str:
    """Returns the API key; "" if none is needed.

    Raises:
      ValueError: the environment variable is not set.
    """
    name = self.key_variable
    if name and name not in environment:
      raise ValueError(
        f"environment variable {name} is not set: expected the key of "
        f"{self.url} (key_variable)"
      )
    return environment[name] if name else ""

  def ask(
    self, path: str, body: Mapping[str, Any], key: str
  ) -> tuple[dict[str, Any], int]:
    """Sends a request, with retries.

    Returns:
      The decoded answer, and the number of requests it took.

    Raises:
      RefusedError: the server refuses the request.
      RuntimeError: the server does not answer.
    """
    problem = ""
    for attempt in range(self.retries + 1):
      try:
        return self._request(path, body, key), attempt + 1
      except urllib.error.HTTPError as error:
        problem = f"HTTP {error.code} {_body(error)}"
        if error.code not in _BUSY:
          raise RefusedError(error.code, f"{self.url}: {problem}") from None
        wait = _retry_after(error.headers.get("Retry-After"))
      except (OSError, http.client.HTTPException, ValueError) as error:
        problem, wait = f"{type(error).__name__}: {error}", 0.0
      if attempt < self.retries:
        time.sleep(min(max(wait, pause_s(attempt)), _LONGEST_PAUSE_S))
    raise RuntimeError(
      f"{self.url}: no answer to {self.retries + 1} requests: {problem}"
    )

  def _request(
    self, path: str, body: Mapping[str, Any], key: str
  ) -> dict[str, Any]:
    """Sends one request and returns the decoded answer."""
    headers = {"Content-Type": "application/json"}
    if key:
      headers["Authorization"] = f"Bearer {key}"
    request = urllib.request.Request(
      self.url.rstrip("/") + path, json.dumps(body).encode(), headers
    )
    with urllib.request.urlopen(request, timeout=self.timeout_s) as reply:
      return json.loads(reply.read())


def reply_text(answer: Mapping[str, Any]) -> str:
  """Returns the text of a chat completion."""
  return answer["choices"][0]["message"]["content"] or ""


def _body(error: urllib.error.HTTPError) -> str:
  return " ".join(error.read().decode("utf-8", "replace").split())[:150]


def _retry_after(value: str | None) -> float:
  try:
    seconds = float(value or 0)
  except ValueError:  # HTTP also allows a date here.
    return 0.0
  return seconds if math.isfinite(seconds) else 0.0
