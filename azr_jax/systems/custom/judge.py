"""A reward from a model behind an HTTP endpoint: a judge or a reward model.

| `judge.endpoint` | request to `judge.url` |
| --- | --- |
| `chat` | `/chat/completions`; the last match of `pattern` is the grade |
| `embeddings` | `/embeddings`; the single number returned is the reward, as
  reward-model servers do |

The paths are OpenAI's; vLLM, SGLang and other servers support them. The judge
runs in a worker process that reads the API key from the environment. The key
never reaches a config, a log or another process.
"""

import asyncio
import concurrent.futures
import dataclasses
import http.client
import json
import math
import re
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

from azr_jax.config.settings import Invalid, Settings, setting

NAME = "judge"
CHAT, EMBEDDINGS = ENDPOINTS = "chat", "embeddings"
_PATHS = {CHAT: "/chat/completions", EMBEDDINGS: "/embeddings"}
_TEMPLATE = (
  "Grade how well the response does what the prompt asks, by a number from 0 "
  "to 10.\n\nPrompt:\n{prompt}\n\nResponse:\n{completion}\n\nGive reasons in a "
  "sentence or two, then end with a line such as\nScore: 7"
)
_PATTERN = r"(?i)score\W*(-?\d+(?:\.\d+)?)"
# HTTP statuses that are worth a retry.
_BUSY = (408, 409, 425, 429, 500, 502, 503, 504)
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 20.0


def _is_pattern(text: str) -> bool:
  try:
    return re.compile(text).groups == 1
  except re.error:
    return False


@dataclasses.dataclass(frozen=True)
class JudgeSettings(Settings):
  """The judge's server, its prompt, and how to parse its grade."""

  url: str = setting(
    "", "base URL including the version, such as http://localhost:8000/v1"
  )
  model: str = setting("", "model name on the server")
  endpoint: str = setting(
    CHAT,
    "chat: parse a grade from a reply; embeddings: take one number",
    choices=ENDPOINTS,
  )
  template: str = setting(
    _TEMPLATE,
    "the judge's prompt; {prompt}, {completion} and {COLUMN} are filled in",
    required=True,
  )
  pattern: str = setting(
    _PATTERN,
    "regular expression with one group, the grade of a chat reply; the last "
    "match counts",
    accepts=(_is_pattern, "a regular expression with one group"),
    expert=True,
  )
  lowest: float = setting(0.0, "chat grade that maps to reward 0", expert=True)
  highest: float = setting(
    10.0, "chat grade that maps to reward 1", expert=True
  )
  key_variable: str = setting(
    "", "environment variable with the API key; empty if none is needed"
  )
  temperature: float = setting(
    0.0, "sampling temperature of the judge", minimum=0, expert=True
  )
  max_tokens: int = setting(
    512, "maximum tokens of the judge's reply", minimum=1, expert=True
  )
  timeout_s: float = setting(
    60.0, "timeout of a request, seconds", above=0, expert=True
  )
  retries: int = setting(
    4,
    "retries if the server is busy or unreachable",
    minimum=0,
    expert=True,
  )

  def check(self) -> None:
    """Rejects an empty grade range."""
    if self.highest <= self.lowest:
      raise self.invalid("highest", f"more than lowest={self.lowest}")

  def check_start(self) -> None:
    """Raises `Invalid` if there is no server address."""
    if not self.url.startswith(("http://", "https://")):
      raise Invalid(
        "judge.url",
        f"={self.url!r}: expected an address, such as http://localhost:8000/v1",
      )

  @property
  def limit_s(self) -> float:
    """The maximum seconds per grade, including all retries and pauses."""
    pauses = sum(map(pause_s, range(self.retries)))
    return (self.retries + 1) * self.timeout_s + pauses + 5.0


def pause_s(attempt: int) -> float:
  """Returns the seconds to wait after failed attempt 0, 1, ..."""
  return min(_FIRST_PAUSE_S * 2**attempt, _LONGEST_PAUSE_S)


class Judge:
  """A reward function that queries a model; calls run concurrently."""

  def __init__(self, settings: JudgeSettings, concurrency: int):
    """Makes the function without connecting. Call `bind` before using it.

    Args:
      settings: section `custom.judge`.
      concurrency: the maximum number of concurrent requests.
    """
    self._settings, self._concurrency = settings, concurrency
    self._key = ""
    self._threads: Any = None

  def bind(self, environment: Mapping[str, str]) -> None:
    """Reads the API key. Called once in the worker process.

    Raises:
      ValueError: the environment variable is not set.
    """
    name = self._settings.key_variable
    if name and name not in environment:
      raise ValueError(
        f"environment variable {name} is not set: expected the key of "
        f"{self._settings.url} (judge.key_variable)"
      )
    self._key = environment[name] if name else ""
    self._threads = concurrent.futures.ThreadPoolExecutor(self._concurrency)

  async def __call__(
    self, prompt: Any, completion: str, **columns: Any
  ) -> dict[str, float]:
    """Returns the reward and the number of requests it took."""
    values = {**columns, "prompt": as_text(prompt), "completion": completion}
    try:
      text = self._settings.template.format_map(values)
    except (KeyError, IndexError, ValueError) as error:
      raise ValueError(
        f"judge.template cannot be filled ({type(error).__name__}: {error}): "
        f"its names are {sorted(values)}"
      ) from error
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(self._threads, self._ask, text)

  def _ask(self, text: str) -> dict[str, float]:
    """Sends a request, with retries, and returns the reward."""
    settings = self._settings
    problem = ""
    for attempt in range(settings.retries + 1):
      try:
        answer = self._request(text)
        return {"reward": self._reward(answer), "requests": attempt + 1.0}
      except urllib.error.HTTPError as error:
        problem = f"HTTP {error.code} {_body(error)}"
        if error.code not in _BUSY:
          raise RuntimeError(f"{settings.url}: {problem}") from None
        wait = _retry_after(error.headers.get("Retry-After"))
      except (OSError, http.client.HTTPException) as error:
        problem, wait = f"{type(error).__name__}: {error}", 0.0
      if attempt < settings.retries:
        time.sleep(min(max(wait, pause_s(attempt)), _LONGEST_PAUSE_S))
    raise RuntimeError(
      f"{settings.url}: no answer to {settings.retries + 1} requests: {problem}"
    )

  def _request(self, text: str) -> dict[str, Any]:
    """Sends one request and returns the decoded response."""
    settings = self._settings
    body: dict[str, Any] = {"model": settings.model}
    if settings.endpoint == CHAT:
      body["messages"] = [{"role": "user", "content": text}]
      body["temperature"] = settings.temperature
      body["max_tokens"] = settings.max_tokens
    else:
      body["input"] = text
    headers = {"Content-Type": "application/json"}
    if self._key:
      headers["Authorization"] = f"Bearer {self._key}"
    request = urllib.request.Request(
      settings.url.rstrip("/") + _PATHS[settings.endpoint],
      json.dumps(body).encode(),
      headers,
    )
    with urllib.request.urlopen(request, timeout=settings.timeout_s) as reply:
      return json.loads(reply.read())

  def _reward(self, answer: dict[str, Any]) -> float:
    """Parses the reward from a response.

    Raises:
      ValueError: the response has no grade.
    """
    settings = self._settings
    try:
      if settings.endpoint == EMBEDDINGS:
        (number,) = answer["data"][0]["embedding"]
        return float(number)
      text = answer["choices"][0]["message"]["content"] or ""
    except (KeyError, IndexError, TypeError, ValueError):
      raise ValueError(
        f"{json.dumps(answer)[:150]}: expected an answer of "
        f"{_PATHS[settings.endpoint]}"
      ) from None
    found = re.findall(settings.pattern, text)
    if not found:
      raise ValueError(f"no grade in {text[-100:]!r}: see judge.pattern")
    grade = float(found[-1])
    if not settings.lowest <= grade <= settings.highest:
      raise ValueError(
        f"grade {grade:g}: expected one from {settings.lowest:g} to "
        f"{settings.highest:g}"
      )
    return (grade - settings.lowest) / (settings.highest - settings.lowest)


def as_text(prompt: Any) -> str:
  """Returns a prompt as plain text, with chat messages one below another."""
  if isinstance(prompt, str):
    return prompt
  return "\n\n".join(f"{m['role']}: {m['content']}" for m in prompt)


def _body(error: urllib.error.HTTPError) -> str:
  return " ".join(error.read().decode("utf-8", "replace").split())[:150]


def _retry_after(value: str | None) -> float:
  try:
    seconds = float(value or 0)
  except ValueError:  # HTTP also allows a date here.
    return 0.0
  return seconds if math.isfinite(seconds) else 0.0
