"""Variants of damaged files, and how readers must react to them."""

import json
import random
import signal

from azr_jax.cli import errors

# Seconds within which every reader must reject a small file.
LIMIT_S = 30


def variants(data, header=48, flips=24):
  """Yields a name, the damaged bytes, and whether readers must reject them.

  Args:
    data: the bytes of an intact file.
    header: how many of the first bytes are flipped, one at a time.
    flips: how many of all bytes are flipped at random.
  """
  draw = random.Random(len(data))
  for part in (0.0, 0.02, 0.25, 0.5):
    yield f"the first {part:.0%}", data[: int(part * len(data))], True
  yield "without its last byte", data[:-1], False
  yield "nothing but zeros", bytes(len(data)), True
  yield "random bytes", draw.randbytes(len(data)), True
  yield "a picture", b"\x89PNG\r\n\x1a\n" + data, True
  for place in [*range(min(header, len(data)))] + [
    draw.randrange(len(data)) for _ in range(flips)
  ]:
    changed = bytearray(data)
    changed[place] ^= 1 << draw.randrange(8)
    yield f"byte {place} is {changed[place]}", bytes(changed), False


def json_variants(value):
  """Yields the same for a JSON object, with values of other types."""
  for other in ([], "text", 3, None, [value]):
    yield f"{other!r:.20} for all", json.dumps(other).encode(), other != [value]
  yield "nested", b"[" * 100_000, True
  for key in value:
    for other in (
      None,
      "16",
      -1,
      0,
      1.5,
      1e300,
      10**30,
      True,
      [],
      {},
      {"a": 1},
    ):
      text = json.dumps(value | {key: other})
      yield f"{key}={other!r}", text.encode(), False
    for word in ("NaN", "1e999", '"\\ud800"', "-Infinity"):
      text = json.dumps(value | {key: "HERE"}).replace('"HERE"', word)
      yield f"{key} is {word}", text.encode(), False
    rest = {name: v for name, v in value.items() if name != key}
    yield f"without {key}", json.dumps(rest).encode(), False


def check(path, damaged, read):
  """Asserts that a reader accepts a file, or rejects it in one line.

  Args:
    path: the file.
    damaged: the values that `variants` yields.
    read: reads the file. Its error must name the file or its folder.

  Returns:
    The number of rejected files.
  """
  refused = 0
  for name, data, is_hopeless in damaged:
    path.write_bytes(data)
    error = _error_of(read)
    if error is None:
      assert not is_hopeless, name
      continue
    refused += 1
    text = errors._text(error)
    assert errors._is_users(error), (name, repr(error))
    assert path.name in text or str(path.parent) in text, (name, text)
    assert len(text.splitlines()) == 1 and len(text) < 600, (name, text)
  return refused


def _error_of(read):
  def late(*_):
    raise AssertionError(f"the reader took more than {LIMIT_S} s")

  signal.signal(signal.SIGALRM, late)
  signal.alarm(LIMIT_S)
  try:
    read()
  except Exception as error:  # noqa: BLE001 - the test looks at it.
    return error
  finally:
    signal.alarm(0)
