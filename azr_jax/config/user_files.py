"""Reads files from users. Errors about damage are one line with the file name.

Parsers raise many kinds of errors for damaged files, and few of the messages
name the file. This module imports only the standard library.
"""

import contextlib
import gzip
import io
import json
import math
import pathlib
from collections.abc import Iterator
from typing import Any, NoReturn

# UTF-8 with an optional byte-order mark, which Excel and Windows editors write.
ENCODING = "utf-8-sig"
# Text written by people or programs compresses by less than this factor.
MAX_RATIO = 100
# Files that unpack to at most this size may compress by any factor.
_SMALL_BYTES = 1 << 26
_CHUNK_BYTES = 1 << 20
_SHOWN_CHARS = 200


class Refusal(ValueError):
  """A file has an unsupported value.

  The message names the key, its value and what was expected.
  """


@contextlib.contextmanager
def reading(path: object, expected: str) -> Iterator[None]:
  """Turns any error inside the context into one that names the file.

  Args:
    path: the file, or a part of it such as `FILE:LINE`, for the message.
    expected: the expected contents of the file.

  Raises:
    ValueError: the file cannot be parsed.
    OSError, ImportError: the file cannot be opened, or a package is missing.
  """
  try:
    yield
  except ImportError:
    raise
  except Refusal as error:
    raise ValueError(f"{path} {error}") from error
  except Exception as error:
    text = str(error)
    is_named = isinstance(error, ValueError) and str(path) in text
    if is_named or (isinstance(error, OSError) and error.filename is not None):
      raise
    line = " ".join(text.split())[:_SHOWN_CHARS]
    raise ValueError(
      f"{path}: expected {expected} ({type(error).__name__}: {line})"
    ) from error


def read_json(path: pathlib.Path, expected: str = "JSON") -> Any:
  """Returns the value of a JSON file.

  Raises:
    ValueError: the file is damaged; see `parse_json`.
  """
  with reading(path, expected):
    return parse_json(path.read_bytes().decode(ENCODING))


def read_object(path: pathlib.Path) -> dict[str, Any]:
  """Returns the JSON object in a file; see `read_json`."""
  value = read_json(path, "a JSON object")
  if not isinstance(value, dict):
    raise ValueError(f"{path}: expected a JSON object, not {value!r:.80}")
  return value


def parse_json(text: str) -> Any:
  """Parses JSON whose numbers must be finite.

  Raises:
    ValueError: the text is not JSON, is nested too deeply for Python, or has
      `NaN`, `Infinity`, a number above 1.8e308 or half of a surrogate pair.
  """
  try:
    value = json.loads(text, parse_constant=_refuse, parse_float=_finite)
  except RecursionError:
    raise ValueError("expected JSON that is less deeply nested") from None
  if "\\ud" in text or "\\uD" in text:
    json.dumps(value, ensure_ascii=False).encode("utf-8")
  return value


def _refuse(word: str) -> NoReturn:
  raise ValueError(f"expected finite numbers, not {word}")


def _finite(digits: str) -> float:
  value = float(digits)
  return value if math.isfinite(value) else _refuse(digits)


def unzip(data: bytes) -> bytes:
  """Returns the contents of a gzip file.

  Raises:
    ValueError: the contents are more than `MAX_RATIO` times as large as the
      file, and larger than 64 MiB.
    OSError, EOFError: the data are damaged or truncated.
  """
  limit = max(_SMALL_BYTES, MAX_RATIO * len(data))
  parts, size = [], 0
  with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
    while part := file.read(_CHUNK_BYTES):
      parts.append(part)
      size += len(part)
      if size > limit:
        raise ValueError(
          f"more than {limit} bytes in {len(data)}: expected a text, which "
          f"shrinks by less than {MAX_RATIO}; unpack it if it is one"
        )
  return b"".join(parts)
