"""Conversations of a teacher behind an OpenAI-compatible server (R1-CI, 4.1).

A conversation takes one request per turn. What the teacher writes after its
first closed python block is dropped, because it was written without the block's
output. The block runs in the executor, and its output is the next user message:

  user: the question   assistant: ... ```python ...```
  user: Code Execution Results: ...   assistant: ... <<<answer>>>

Each question is recorded once all its conversations are graded, so a killed
command resumes.
"""

import concurrent.futures
import dataclasses
import json
import pathlib
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from azr_jax import types
from azr_jax.config import user_files
from azr_jax.config.settings import Invalid, Settings, setting
from azr_jax.evals import questions as benchmark_lib
from azr_jax.evals import record_files
from azr_jax.evals.benchmark import Item
from azr_jax.evals.record_files import Record
from azr_jax.executor import Executor, scripts
from azr_jax.run import console
from azr_jax.run.growing_file import GrowingFile
from azr_jax.run.session import Run
from azr_jax.systems import chat_server
from azr_jax.systems.chat_server import ChatServer, RefusedError
from azr_jax.systems.code_interpreter.measurement import EvalPass
from azr_jax.tasks import chats
from azr_jax.tasks.questions.question import Question
from azr_jax.tools import code_blocks, python_tool

# Statuses of a refusal that concerns one request. Others, such as a wrong key,
# concern all of them.
_OF_ONE_REQUEST = (400, 413, 422)
_PROGRESS_LINES = 20
# The finish reason of a conversation that the server refused to continue.
REFUSED = "refused"


@dataclasses.dataclass(frozen=True)
class TeacherSettings(Settings):
  """Section `teacher`: a model on a server that writes the conversations."""

  url: str = setting(
    "",
    "base URL including the version, such as https://api.openai.com/v1; empty: "
    "the model of --model answers here",
  )
  model: str = setting("", "model name on the server", paper="gpt-4o")
  key_variable: str = setting(
    "", "environment variable with the API key; empty if none is needed"
  )
  concurrency: int = setting(
    16, "questions that are asked at the same time", minimum=1
  )
  max_tokens: int = setting(
    2048, "maximum tokens of each response", minimum=1, expert=True
  )
  max_output_chars: int = setting(
    2000,
    "longest tool output, characters; longer ones lose their middle",
    minimum=2,
    expert=True,
  )
  request: str = setting(
    "",
    "other fields of each request, as a JSON object; null removes a field, as "
    "in '{\"seed\": null}'",
    accepts=(chats.is_object, "a JSON object, such as '{\"top_p\": 0.9}'"),
    expert=True,
  )
  timeout_s: float = setting(
    120.0, "timeout of a request, seconds", above=0, expert=True
  )
  retries: int = setting(
    6, "retries if the server is busy or unreachable", minimum=0, expert=True
  )

  def check_start(self) -> None:
    """Raises `Invalid` if the server's address or its model is missing."""
    if not self.url.startswith(("http://", "https://")):
      raise Invalid(
        "teacher.url",
        f"={self.url!r}: expected an address, such as http://localhost:8000/v1",
      )
    if not self.model:
      raise Invalid("teacher.model", "='': expected the model's name")


class Teacher:
  """Holds conversations with a model on a server. Thread-safe."""

  def __init__(
    self,
    server: ChatServer,
    key: str,
    request: Mapping[str, Any],
    executor: Executor,
    *,
    libraries: tuple[str, ...],
    script_timeout_s: float,
    max_calls: int,
    max_output_chars: int,
  ):
    """Connects to nothing yet.

    Args:
      server: answers the requests.
      key: its API key; "" if none is needed.
      request: the fields of a request besides messages and seed.
      executor: runs the scripts.
      libraries: what scripts may import.
      script_timeout_s: the executor's time limit, which the teacher reads.
      max_calls: number of scripts that a conversation may run.
      max_output_chars: the length above which an output loses its middle.
    """
    self._server, self._key, self._request = server, key, request
    self._executor, self._libraries = executor, libraries
    self._script_timeout_s = script_timeout_s
    self._max_calls, self._max_output_chars = max_calls, max_output_chars

  def converse(self, prompt: str, seed: int) -> tuple[list[str], str, int]:
    """Asks a question and runs the code that the teacher writes.

    Args:
      prompt: the first user message.
      seed: the seed of the first request; each further one adds 1.

    Returns:
      The turns, as in `agents.read_conversation`; the finish reason, like a
      completion's, or `REFUSED`; and the number of tokens that were written.

    Raises:
      RuntimeError: the server refuses all requests, or does not answer.
    """
    messages = [{"role": chats.USER, "content": prompt}]
    turns: list[str] = []
    num_tokens = 0
    while True:
      number = len(turns) // 2
      body = {"seed": seed + number, **self._request, "messages": messages}
      body = {name: value for name, value in body.items() if value is not None}
      try:
        answer, _ = self._server.ask(chat_server.CHAT_PATH, body, self._key)
      except RefusedError as refusal:
        if refusal.status not in _OF_ONE_REQUEST:
          raise
        return turns or [""], REFUSED, num_tokens
      text, finish, written = _read(answer)
      num_tokens += written
      block = code_blocks.find_tool_call(text)
      if block is not None:
        text = text[: block.end]
      turns.append(text)
      if block is None or number == self._max_calls:
        return turns, finish if block is None else "turns", num_tokens
      output = self._run(block.code)
      turns.append(
        f"{code_blocks.OUTPUT_PREFIX}{output}{code_blocks.OUTPUT_SUFFIX}"
      )
      messages += [
        {"role": chats.ASSISTANT, "content": text},
        {"role": chats.USER, "content": turns[-1].strip()},
      ]

  def _run(self, code: str) -> str:
    """Runs a script and returns its output, without the middle if long."""
    job = scripts.script_job(code, self._libraries)
    result = scripts.read_result(self._executor.submit(job).result())
    text = python_tool.output_text(result, self._script_timeout_s)
    limit = self._max_output_chars
    if len(text) > limit:
      head = limit // 2
      tail = text[len(text) - (limit - head) :]
      text = f"{text[:head]}{python_tool.ELLIPSIS}{tail}"
    return text


def _read(answer: Mapping[str, Any]) -> tuple[str, str, int]:
  """Returns text, finish reason and number of tokens of a chat completion.

  Raises:
    RuntimeError: the answer has another layout.
  """
  try:
    text = chat_server.reply_text(answer)
    finish = answer["choices"][0]["finish_reason"]
    tokens = int((answer.get("usage") or {}).get("completion_tokens", 0))
  except (KeyError, IndexError, TypeError, ValueError, AttributeError):
    raise RuntimeError(
      f"{json.dumps(answer)[:150]}: expected a chat completion"
    ) from None
  return text, "stop" if finish == "stop" else "length", tokens


def answer(
  teacher: Teacher,
  ask: Callable[[str, str], str],
  questions: Sequence[Question],
  eval_passes: Sequence[EvalPass],
  executor: Executor,
  run: Run,
  seed: int,
  concurrency: int,
) -> Iterator[tuple[EvalPass, pathlib.Path]]:
  """Yields each finished pass with its record file.

  Args:
    teacher: holds the conversations.
    ask: (question, solution style) -> the first message.
    questions: the questions of every pass.
    eval_passes: the passes, in order.
    executor: grades the answers.
    run: the open folder of the records; questions with a record are skipped.
    seed: seed of the requests.
    concurrency: number of questions to ask at the same time.

  Raises:
    RuntimeError: the server does not answer, or refuses all requests.
    ValueError: the folder has other records.
  """
  items = [benchmark_lib.item(question) for question in questions]
  for number, eval_pass in enumerate(eval_passes):
    path = run.folder / f"{eval_pass.name}.jsonl"

    def answer_item(item: Item, one: EvalPass = eval_pass) -> Record:
      prompt = ask(item.question, one.solution_style)
      found = [
        teacher.converse(prompt, _seed(seed, one.name, item.id, sample))
        for sample in range(one.samples)
      ]
      return _record(item, found, executor)

    with GrowingFile(path, may_write=True) as file:
      done = record_files.resume(file.here, path, items, eval_pass.samples)
      missing = [item for item in items if item.id not in done]
      for record in _concurrently(answer_item, missing, concurrency):
        record_files.append(file, record)
    run.print_status(
      f"{eval_pass.name} is done ({number + 1} of {len(eval_passes)})"
    )
    yield eval_pass, path


def _concurrently(
  answer_item: Callable[[Item], Record], items: Sequence[Item], concurrency: int
) -> Iterator[Record]:
  """Yields the items' records as they are finished.

  Raises:
    RuntimeError: the server does not answer, or refuses all requests.
  """
  progress = console.Progress(1, len(items), unit="question")
  per_line = max(1, len(items) // _PROGRESS_LINES)
  pool = concurrent.futures.ThreadPoolExecutor(concurrency, "teacher")
  try:
    pending = [pool.submit(answer_item, item) for item in items]
    finished = concurrent.futures.as_completed(pending)
    for number, future in enumerate(finished, 1):
      yield future.result()
      if number % per_line == 0:
        progress.show(number, "teacher")
  except RuntimeError as error:
    raise RuntimeError(
      f"{error}; answered questions are kept, and the same command resumes"
    ) from error
  finally:
    progress.close()
    # Threads that wait for an answer end with it; their answers are dropped.
    pool.shutdown(cancel_futures=True)


def _record(
  item: Item, found: Sequence[tuple[list[str], str, int]], executor: Executor
) -> Record:
  """Returns the record of an item's graded conversations."""
  none = np.zeros(0, np.int32), np.zeros(0, np.float32), np.zeros(0, bool)
  graded = {
    sample: (
      types.Completion(*none, finish, json.dumps(turns)),
      benchmark_lib.grade(executor, item, turns[-1]),
    )
    for sample, (turns, finish, _) in enumerate(found)
  }
  return record_files.make(item, graded, None) | {
    "num_tool_calls": [len(turns) // 2 for turns, _, _ in found],
    "tokens": [tokens for _, _, tokens in found],
  }


def _seed(seed: int, *parts: object) -> int:
  """Returns a seed for a server, below 2 ** 31."""
  text = "/".join(map(str, (seed, *parts)))
  return zlib.crc32(text.encode()) >> 1


def request_of(settings: TeacherSettings, temperature: float) -> dict[str, Any]:
  """Returns the fields of each request besides messages and seed."""
  return {
    "model": settings.model,
    "temperature": temperature,
    "max_tokens": settings.max_tokens,
    **user_files.parse_json(settings.request or "{}"),
  }
