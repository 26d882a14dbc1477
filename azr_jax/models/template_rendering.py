"""Renders chat templates, in a separate process.

`chat_templates.py` starts the process and limits its time.
"""

import datetime
import os
import pathlib
import resource
import types
from collections.abc import Mapping, Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase
from transformers.utils import chat_template_utils

_MAX_CHARS = 1 << 24
# Bytes that rendering may add to the address space of the process.
_MAX_BYTES = 1 << 30
# Linux reports this process's memory here.
_STATM = pathlib.Path("/proc/self/statm")


def render(
  template: str,
  special_tokens: Mapping[str, str],
  messages: Sequence[Mapping[str, Any]],
  date: datetime.datetime,
  options: Mapping[str, Any],
) -> dict[str, str]:
  """Returns the `text` that a template makes of messages, or why it failed.

  An `error` comes from the template itself; a `failure` is an exceeded limit.

  Args:
    template: Jinja source.
    special_tokens: variables such as `bos_token`.
    messages: messages with role and content.
    date: the date that `strftime_now` formats.
    options: other arguments of `apply_chat_template`.
  """
  _limit_memory()
  try:
    text = _render(template, special_tokens, messages, date, options)
  except MemoryError:
    return {"failure": f"expected it to need less than {_MAX_BYTES} bytes"}
  except Exception as error:  # noqa: BLE001 - templates may raise anything.
    return {"error": f"{type(error).__name__}: {error}".rstrip(": ")}
  if len(text) > _MAX_CHARS:
    return {"failure": f"{len(text)} characters: expected at most {_MAX_CHARS}"}
  return {"text": text}


def _render(
  template: str,
  special_tokens: Mapping[str, str],
  messages: Sequence[Mapping[str, Any]],
  date: datetime.datetime,
  options: Mapping[str, Any],
) -> str:
  # Compiling already evaluates constants.
  compiled: Any = chat_template_utils._compile_jinja_template(template)
  # Set as a global, because template variables cannot be functions.
  compiled.globals["strftime_now"] = date.strftime
  tokenizer: Any = types.SimpleNamespace(
    special_tokens_map=special_tokens,
    get_chat_template=lambda *_: template,
  )
  rendered: Any = PreTrainedTokenizerBase.apply_chat_template(
    tokenizer, [dict(m) for m in messages], tokenize=False, **options
  )
  return rendered


def _limit_memory() -> None:
  """Limits this process's memory to its current size plus `_MAX_BYTES`.

  Only Linux reports the current size; elsewhere there is no limit.
  """
  soft, hard = resource.getrlimit(resource.RLIMIT_AS)
  if soft != resource.RLIM_INFINITY or not _STATM.exists():
    return
  pages = int(_STATM.read_text().split()[0])
  limit = pages * os.sysconf("SC_PAGE_SIZE") + _MAX_BYTES
  resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
