"""Reads files that users bring: damage is one line, which names the file.

Readers of file formats raise errors of many kinds for a damaged file, and few
of them know its name. This module imports the standard library alone.
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
# A compressed text of people and programs shrinks by less than this factor.
MAX_RATIO = 100
# Files that become no larger than this may shrink by any factor.
_SMALL_BYTES = 1 << 26
_CHUNK_BYTES = 1 << 20
_SHOWN_CHARS = 200


class Refusal(ValueError):
  """A file has a value that we do not support.

  The message names the key, its value and what was expected.
  """


@contextlib.contextmanager
def reading(path: object, expected: str) -> Iterator[None]:
  """Raises every error of the context as one that names the file.

  Args:
    path: the file, or what it is part of.
    expected: what the file should hold.

  Raises:
    ValueError: a reader refused the file.
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
    ValueError: it is damaged; see `parse_json`.
  """
  with reading(path, expected):
    return parse_json(path.read_bytes().decode(ENCODING))


def read_object(path: pathlib.Path) -> dict[str, Any]:
  """Returns the object of a JSON file, as `read_json` does."""
  value = read_json(path, "a JSON object")
  if not isinstance(value, dict):
    raise ValueError(f"{path}: expected a JSON object, not {value!r:.80}")
  return value


def parse_json(text: str) -> Any:
  """Returns the value of a JSON text, whose numbers must be finite.

  Raises:
    ValueError: it is no JSON, is nested too deeply for Python, has `NaN`,
      `Infinity` or a number above 1.8e308, or half of a surrogate pair.
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
    ValueError: they are more than `MAX_RATIO` times as large as the file, and
      more than 64 MiB.
    OSError, EOFError: the data are damaged or cut off.
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
