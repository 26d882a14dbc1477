"""Message contents: a text, or a list of text parts as in OpenAI's API.

This module imports only the standard library.
"""

from collections.abc import Mapping, Sequence
from typing import Any

_EXPECTED = "expected a text, or a list of parts of type 'text'"


def text(content: Any) -> str:
  """Returns the text of a message's content.

  Args:
    content: a text, or parts such as `{"type": "text", "text": "hello"}`,
      which are joined. A part may also be a plain text.

  Raises:
    ValueError: the content has another type; the message names it.
  """
  if isinstance(content, str):
    return content
  if hasattr(content, "tolist"):  # Parquet gives lists as NumPy arrays.
    content = content.tolist()
  if not isinstance(content, Sequence):
    raise ValueError(f"content {content!r:.80}: {_EXPECTED}")
  return "".join(map(_part, content))


def _part(part: Any) -> str:
  if isinstance(part, str):
    return part
  if not isinstance(part, Mapping) or "type" not in part:
    raise ValueError(f"content part {part!r:.80}: {_EXPECTED}")
  if part["type"] != "text" or not isinstance(part.get("text"), str):
    raise ValueError(f"content part of type {part['type']!r:.40}: {_EXPECTED}")
  return part["text"]
