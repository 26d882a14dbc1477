"""Applies a model's chat template, a program that we did not write.

Templates run in their own process with limits on time, memory and output,
because a loop or a power in one may never end. Within a run, a template sees
the date of the run's first start as today, so that a resumed run has the same
prompts. Elsewhere it sees the date on which this process started.
"""

import atexit
import contextlib
import datetime
import select
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from azr_jax.functions.process import Closed, Process
from azr_jax.functions.spec import Function

# The function that the process calls.
_RENDER = "azr_jax.models.template_rendering:render"
# Templates take less than a millisecond.
_TIMEOUT_S = 10.0
# Time to import transformers on a busy machine.
_START_TIMEOUT_S = 300.0
_SHOWN_CHARS = 200


class _Today:
  """The date that templates see, one for the whole process."""

  date = datetime.datetime.now()


@contextlib.contextmanager
def dated(date: datetime.datetime) -> Iterator[None]:
  """Makes templates see a date as today while the context lasts."""
  before, _Today.date = _Today.date, date
  try:
    yield
  finally:
    _Today.date = before


def apply(
  tokenizer: Any,
  messages: Sequence[Mapping[str, Any]],
  tools: Sequence[Mapping[str, Any]] | None = None,
  **options: Any,
) -> str:
  """Returns the text of `tokenizer.apply_chat_template`.

  Args:
    tokenizer: a tokenizer of `transformers` with a chat template.
    messages: messages with role and content.
    tools: schemas of the tools that the model may call.
    **options: other arguments of `apply_chat_template`, and template variables.

  Raises:
    ValueError: the template refuses the messages, or exceeds a limit.
  """
  made = _RENDERER.call(
    {
      "template": tokenizer.get_chat_template(None, tools),
      "special_tokens": dict(tokenizer.special_tokens_map),
      "messages": list(messages),
      "date": _Today.date,
      "options": {**options, "tools": tools},
    }
  )
  if "text" not in made:
    problem = " ".join(made["error"].split())[:_SHOWN_CHARS]
    raise ValueError(
      "the model's chat template: expected messages that it accepts "
      f"({problem})"
    )
  return made["text"]


class _Renderer:
  """The process that renders templates, started by the first call.

  It serves one call at a time. A `FunctionPool` would take ten times as long
  per call, because calls would pass through its thread.
  """

  def __init__(self) -> None:
    self._lock = threading.Lock()
    self._process: Process | None = None

  def call(self, arguments: Mapping[str, Any]) -> Mapping[str, str]:
    """Returns what `template_rendering.render` does, or an `error`."""
    with self._lock:
      if self._process is None:
        # The process limits its own memory, so that the error can say why.
        self._process = Process([Function("render", _RENDER)], memory_gib=0.0)
        atexit.register(self._end)
        reply = self._reply(self._process, _START_TIMEOUT_S)
        if "error" in reply:
          return reply
      self._process.call(0, 0, dict(arguments))
      reply = self._reply(self._process, _TIMEOUT_S)
    return reply.get("value", reply)

  def _reply(self, process: Process, seconds: float) -> Mapping[str, Any]:
    """Returns the next reply, or the `error` that ended the process."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
      unsent = [process.write_fd] if process.has_unsent() else []
      readable, writable, _ = select.select([process.read_fd], unsent, [], left)
      try:
        if writable:
          process.flush()
        if readable and (replies := process.receive()):
          return replies[0]
      except Closed:
        self._end()
        return {"error": "its process died: expected one that needs less"}
    self._end()
    return {"error": f"not done in {seconds:g} s: expected one that ends"}

  def _end(self) -> None:
    """Ends the process; the next call starts another one."""
    atexit.unregister(self._end)
    if self._process is not None:
      self._process.end()
      self._process = None


_RENDERER = _Renderer()
