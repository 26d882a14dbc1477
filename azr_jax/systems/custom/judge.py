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
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from azr_jax.config.settings import Invalid, Settings, setting
from azr_jax.systems import chat_server
from azr_jax.systems.chat_server import ChatServer

NAME = "judge"
CHAT, EMBEDDINGS = ENDPOINTS = "chat", "embeddings"
_PATHS = {CHAT: chat_server.CHAT_PATH, EMBEDDINGS: "/embeddings"}
_TEMPLATE = (
  "Grade how well the response does what the prompt asks, by a number from 0 "
  "to 10.\n\nPrompt:\n{prompt}\n\nResponse:\n{completion}\n\nGive reasons in a "
  "sentence or two, then end with a line such as\nScore: 7"
)
_PATTERN = r"(?i)score\W*(-?\d+(?:\.\d+)?)"

_Read = TypeVar("_Read")


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


@dataclasses.dataclass(frozen=True)
class Grades:
  """How the grade in a chat reply becomes a reward.

  Attributes:
    pattern: a regular expression with one group, the grade; the last match
      counts.
    lowest, highest: the grades that map to rewards 0 and 1.
  """

  pattern: str
  lowest: float
  highest: float

  def reward(self, text: str) -> float:
    """Returns the reward of the last grade in a text, in [0, 1].

    Raises:
      ValueError: there is no grade, or it is out of range.
    """
    found = re.findall(self.pattern, text)
    if not found:
      raise ValueError(f"no grade in {text[-100:]!r}: see judge.pattern")
    grade = float(found[-1])
    if not self.lowest <= grade <= self.highest:
      raise ValueError(
        f"grade {grade:g}: expected one from {self.lowest:g} to "
        f"{self.highest:g}"
      )
    return (grade - self.lowest) / (self.highest - self.lowest)


class Judge:
  """A reward function that queries a model; calls run concurrently.

  Attributes:
    limit_s: the maximum seconds per grade.
  """

  def __init__(
    self,
    server: ChatServer,
    template: str,
    request: Mapping[str, Any],
    grades: Grades | None,
    concurrency: int,
  ):
    """Makes the function without connecting. Call `bind` before using it.

    Args:
      server: answers the requests.
      template: the judge's prompt, with the names of values in braces.
      request: the fields of a request besides the prompt, such as `model`.
      grades: reads the grade in a chat reply. None asks the embeddings endpoint
        for one number, the reward.
      concurrency: the maximum number of concurrent requests.
    """
    self.limit_s = server.limit_s
    self._server, self._template = server, template
    self._request, self._grades = request, grades
    self._concurrency = concurrency
    self._key = ""
    self._threads: Any = None

  def bind(self, environment: Mapping[str, str]) -> None:
    """Reads the API key. Called once in the worker process.

    Raises:
      ValueError: the environment variable is not set.
    """
    self._key = self._server.read_key(environment)
    self._threads = concurrent.futures.ThreadPoolExecutor(self._concurrency)

  async def __call__(
    self, prompt: Any, completion: str, **columns: Any
  ) -> dict[str, float]:
    """Returns the reward and the number of requests it took."""
    values = {**columns, "prompt": as_text(prompt), "completion": completion}
    try:
      text = self._template.format_map(values)
    except (KeyError, IndexError, ValueError) as error:
      raise ValueError(
        f"judge.template cannot be filled ({type(error).__name__}: {error}): "
        f"its names are {sorted(values)}"
      ) from error
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(self._threads, self._ask, text)

  def _ask(self, text: str) -> dict[str, float]:
    """Sends a filled template and returns the reward."""
    if self._grades is None:
      reward, requests = self._post(EMBEDDINGS, {"input": text}, _number)
    else:
      messages = [{"role": "user", "content": text}]
      reply, requests = self._post(
        CHAT, {"messages": messages}, chat_server.reply_text
      )
      reward = self._grades.reward(reply)
    return {"reward": reward, "requests": float(requests)}

  def _post(
    self,
    endpoint: str,
    prompt: Mapping[str, Any],
    read: Callable[[Mapping[str, Any]], _Read],
  ) -> tuple[_Read, int]:
    """Returns what `read` finds in the answer, and the number of requests.

    Raises:
      ValueError: the answer has another layout.
    """
    path = _PATHS[endpoint]
    answer, requests = self._server.ask(
      path, {**self._request, **prompt}, self._key
    )
    try:
      return read(answer), requests
    except (KeyError, IndexError, TypeError, ValueError):
      raise ValueError(
        f"{json.dumps(answer)[:150]}: expected an answer of {path}"
      ) from None


def _number(answer: Mapping[str, Any]) -> float:
  """Returns the only number of an embedding."""
  (number,) = answer["data"][0]["embedding"]
  return float(number)


def as_text(prompt: Any) -> str:
  """Returns a prompt as plain text, with chat messages one below another."""
  if isinstance(prompt, str):
    return prompt
  return "\n\n".join(f"{m['role']}: {m['content']}" for m in prompt)
