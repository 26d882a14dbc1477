"""Load-tests `azr_jax.serve` with many clients and compares it to its sampler.

Clients request (prompt, seed) pairs from a small set, so pairs repeat. The
sampler has sampled the same pairs before, without a server, so that every
answer has a reference and both rates are for the same work.
"""

import asyncio
import contextlib
import dataclasses
import json
import pathlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from azr_jax.rollout.policy import Policy

_STARTS_WITHIN_S = 600.0
_URL = re.compile(r"served at (http://\S+)")


@dataclasses.dataclass(frozen=True)
class ChatRequest:
  """A client's request.

  Attributes:
    prompt: the prompt text.
    seed: seed of the sample.
    tokens: maximum number of new tokens.
  """

  prompt: str
  seed: int
  tokens: int


@dataclasses.dataclass
class Answers:
  """Counts of the answers to requests.

  Attributes:
    same: answers with the reference's tokens.
    different: answers with other tokens.
    failed: requests that got an error or an incomplete answer.
    cut: requests that the client aborted halfway.
    tokens: tokens that clients received, including aborted requests.
    seconds: wall-clock seconds.
    memory_mib: resident memory of the server, sampled at intervals.
  """

  same: int = 0
  different: int = 0
  failed: int = 0
  cut: int = 0
  tokens: int = 0
  seconds: float = 0.0
  memory_mib: list[float] = dataclasses.field(default_factory=list)


def questions(count: int, max_tokens: int, seed: int = 0) -> list[ChatRequest]:
  """Draws short questions, each with its own maximum length."""
  rng = np.random.default_rng(seed)
  cities = ("Paris", "Rome", "Cairo", "Lima", "Oslo", "Delhi", "Quito", "Bern")
  asked = ("Describe", "Tell a story about", "List facts about", "Visit")
  return [
    ChatRequest(
      f"{rng.choice(asked)} {rng.choice(cities)}, part {index}.",
      index,
      int(rng.integers(max_tokens // 2, max_tokens + 1)),
    )
    for index in range(count)
  ]


def sample(
  policy: Policy, asked: Sequence[ChatRequest]
) -> tuple[dict[int, list[int]], float]:
  """Samples all questions without a server.

  Returns:
    The tokens by seed, and tokens per second.
  """
  prompts = [policy.prompt(question.prompt) for question in asked]
  start = time.perf_counter()
  samples = policy.sample(
    prompts,
    1,
    prompt_numbers=[question.seed for question in asked],
    max_new_tokens=[question.tokens for question in asked],
  )
  found = {
    asked[index].seed: done.token_ids.tolist() for index, _, done in samples
  }
  seconds = time.perf_counter() - start
  return found, sum(map(len, found.values())) / seconds


@contextlib.contextmanager
def served(arguments: Sequence[str]) -> Iterator[tuple[str, int]]:
  """Runs the server; yields its URL and process id.

  Args:
    arguments: flags of `azr_jax.serve`, without the port.

  Raises:
    RuntimeError: the server does not start.
  """
  process = subprocess.Popen(
    [sys.executable, "-m", "azr_jax.serve", "--port=0", *arguments],
    stderr=subprocess.PIPE,
    text=True,
  )
  assert process.stderr is not None
  try:
    lines = []
    for line in process.stderr:
      lines.append(line)
      if found := _URL.search(line):
        yield found[1], process.pid
        return
    raise RuntimeError("the server does not start: " + "".join(lines[-3:]))
  finally:
    process.send_signal(signal.SIGTERM)
    try:
      process.communicate(timeout=_STARTS_WITHIN_S)
    except subprocess.TimeoutExpired:
      process.kill()


async def ask(
  url: str,
  pid: int,
  asked: Sequence[ChatRequest],
  references: Mapping[int, Sequence[int]],
  clients: int,
  seconds: float,
  cut_fraction: float,
) -> Answers:
  """Lets concurrent clients send one question after another.

  Args:
    url: URL of the API.
    pid: process id of the server, to read its memory.
    asked: the questions that clients draw from.
    references: seed to tokens.
    clients: number of concurrent clients.
    seconds: time after which clients send no more requests.
    cut_fraction: fraction of requests that the client aborts halfway.
  """
  # aiohttp belongs to the extra `serve`, which other commands do not need.
  import aiohttp

  answers = Answers()
  start = time.perf_counter()
  timeout = aiohttp.ClientTimeout(total=None)
  connector = aiohttp.TCPConnector(limit=0)
  async with aiohttp.ClientSession(
    timeout=timeout, connector=connector
  ) as session:
    async with session.get(f"{url}/models") as reply:
      model = (await reply.json())["data"][0]["id"]

    async def client(number: int) -> None:
      rng = np.random.default_rng((1, number))
      while time.perf_counter() - start < seconds:
        question = asked[int(rng.integers(len(asked)))]
        body = {
          "model": model,
          "prompt": question.prompt,
          "seed": question.seed,
          "max_tokens": question.tokens,
          "temperature": 1.0,
          "return_token_ids": True,
        }
        if rng.random() < cut_fraction:
          # Await first: other clients update the counts meanwhile.
          tokens = await _cut_off(session, f"{url}/completions", body)
          answers.tokens += tokens
          answers.cut += 1
          continue
        try:
          async with session.post(f"{url}/completions", json=body) as reply:
            answer = await reply.json()
          token_ids = answer["choices"][0]["token_ids"]
        except (aiohttp.ClientError, KeyError, ValueError):
          answers.failed += 1
          continue
        answers.tokens += len(token_ids)
        if token_ids == references[question.seed]:
          answers.same += 1
        else:
          answers.different += 1

    async def watch() -> None:
      while time.perf_counter() - start < seconds:
        answers.memory_mib.append(_resident_mib(pid))
        await asyncio.sleep(max(seconds / 24, 0.1))

    await asyncio.gather(watch(), *map(client, range(clients)))
  answers.seconds = time.perf_counter() - start
  answers.memory_mib.append(_resident_mib(pid))
  return answers


async def _cut_off(session: Any, url: str, body: dict[str, Any]) -> int:
  """Streams an answer and closes the connection after the first chunk.

  Returns:
    The number of tokens in that chunk.
  """
  async with session.post(url, json=body | {"stream": True}) as reply:
    line = await reply.content.readline()
    reply.close()
  part = json.loads(line.decode().removeprefix("data:"))
  return len(part["choices"][0]["token_ids"])


def _resident_mib(pid: int) -> float:
  """Returns the resident memory of a process, in MiB."""
  text = pathlib.Path(f"/proc/{pid}/status").read_text("utf-8")
  return int(text.partition("VmRSS:")[2].split()[0]) / 1024
