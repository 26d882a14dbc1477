"""Applies a model's chat template, which is untrusted code.

A template runs in a separate process with limits on time, memory and output,
because a loop or a power in it may run forever.
"""

import atexit
import datetime
import select
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from azr_jax.config import user_files
from azr_jax.functions.process import Closed, Process
from azr_jax.functions.spec import Function

# The function that renders templates, in a process of its own.
_RENDER = "azr_jax.models.template_rendering:render"
# The subject of error messages.
_NAME = "the model's chat template"
# Generous: templates take less than a millisecond.
_TIMEOUT_S = 10.0
# Time to import transformers on a busy machine.
_START_TIMEOUT_S = 300.0
# Polling interval. A longer pause counts as twice this, so that time limits do
# not expire while the machine is suspended.
_TICK_S = 0.5
# Attempts per call if the process dies.
_ATTEMPTS = 2
_SHOWN_CHARS = 200


class RenderingFailed(RuntimeError):
  """A template exceeded a limit, or its process died.

  This is not a ValueError: the template has not rejected the messages, so the
  caller must not try others instead.
  """


def apply(
  tokenizer: Any,
  messages: Sequence[Mapping[str, Any]],
  date: datetime.datetime,
  /,
  tools: Sequence[Mapping[str, Any]] | None = None,
  **options: Any,
) -> str:
  """Returns the text of `tokenizer.apply_chat_template`.

  Args:
    tokenizer: a tokenizer of `transformers` with a chat template.
    messages: messages with role and content.
    date: the date that the template sees as today.
    tools: schemas of the tools that the model may call.
    **options: other arguments of `apply_chat_template`, and template variables.

  Raises:
    ValueError: the template rejects the messages.
    RenderingFailed: the template exceeds a limit, or its process died twice.
  """
  with user_files.reading(_NAME, "messages that it accepts"):
    made = _RENDERER.call(
      {
        "template": tokenizer.get_chat_template(None, tools),
        "special_tokens": dict(tokenizer.special_tokens_map),
        "messages": list(messages),
        "date": date,
        "options": {**options, "tools": tools},
      }
    )
  if "failure" in made:
    raise RenderingFailed(f"{_NAME}: {_line(made['failure'])}")
  if "error" in made:
    raise ValueError(
      f"{_NAME}: expected messages that it accepts ({_line(made['error'])})"
    )
  return made["text"]


def _line(text: str) -> str:
  return " ".join(text.split())[:_SHOWN_CHARS]


class _Renderer:
  """The process that renders templates, started by the first call.

  It serves one call at a time. A `FunctionPool` would take ten times as long
  per call, because calls would pass through its thread.
  """

  def __init__(self) -> None:
    self._lock = threading.Lock()
    self._process: Process | None = None
    self._calls = 0

  def call(self, arguments: Mapping[str, Any]) -> Mapping[str, str]:
    """Calls `template_rendering.render` in the template's process."""
    with self._lock:
      for _ in range(_ATTEMPTS):
        try:
          return self._call(arguments)
        except Closed:
          self._end()
        except BaseException:
          # The next call must not receive the reply to this one.
          self._end()
          raise
    return {
      "failure": f"its process ended {_ATTEMPTS} times, perhaps for lack of "
      "memory: expected a template that renders"
    }

  def _call(self, arguments: Mapping[str, Any]) -> Mapping[str, str]:
    """Sends a call and returns the reply.

    Raises:
      Closed: the process has ended.
    """
    if self._process is None:
      # The process limits its own memory, so that it can report the reason.
      self._process = Process([Function("render", _RENDER)], memory_gib=0.0)
      atexit.register(self._end)
      loaded = self._reply(self._process, None, _START_TIMEOUT_S)
      if problem := loaded.get("error") or loaded.get("failure"):
        self._end()
        return {"failure": f"its process did not start ({problem})"}
    self._calls += 1
    self._process.call(self._calls, 0, dict(arguments))
    reply = self._reply(self._process, self._calls, _TIMEOUT_S)
    # The value reports errors of a template. A message means that `render`
    # itself failed.
    if "message" in reply:
      return {"failure": reply["message"]}
    return reply.get("value", reply)

  def _reply(
    self, process: Process, number: int | None, seconds: float
  ) -> Mapping[str, Any]:
    """Returns the reply to a call, or a `failure` if it takes too long.

    Args:
      process: the process that was called.
      number: id of the call. None waits for the reply to the start.
      seconds: time limit of the call.

    Raises:
      Closed: the process has ended.
    """
    left, last = seconds, time.monotonic()
    while left > 0:
      unsent = [process.write_fd] if process.has_unsent() else []
      readable, writable, _ = select.select(
        [process.read_fd], unsent, [], min(left, _TICK_S)
      )
      if writable:
        process.flush()
      for reply in process.receive() if readable else ():
        if reply.get("number") == number:
          return reply
      now = time.monotonic()
      left -= min(now - last, 2 * _TICK_S)
      last = now
    self._end()
    return {"failure": f"not done in {seconds:g} s: expected it to terminate"}

  def _end(self) -> None:
    """Ends the process; the next call starts a new one."""
    atexit.unregister(self._end)
    process, self._process = self._process, None
    if process is not None:
      process.end()


_RENDERER = _Renderer()
