"""The experts that sampled tokens got, for router replay.

Pages keep the experts of each token beside its keys and values, so samples of a
prompt share them, and so do prompts with a common prefix. They are read when a
sequence loses its pages: because it ends or is paused, because pages run out,
or because the parameters change. What was read first stays: a token that is
prefilled again may get other experts, but it was sampled with the first ones.
"""

import base64
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from jaxtyping import Array, UInt


class ReadTokens:
  """The experts that a call read, first on the devices and then on the host."""

  def __init__(self, array: UInt[Array, "rows S L K share"]):
    """Starts the copy to the host.

    Args:
      array: the call's result, on the devices.
    """
    self._array: Any = array
    array.copy_to_host_async()

  def on_host(self) -> UInt[np.ndarray, "rows S L K share"]:
    """Waits for the copy, frees the devices' memory and returns the copy."""
    self._array = np.asarray(self._array)
    return self._array


@dataclasses.dataclass(eq=False)
class Reading:
  """The pages of a sequence that are to be read.

  Attributes:
    device: the device that holds the pages.
    pages: indices of the pages in the device's pool.
    start: the first token to read.
    stop: one past the last token.
    send: sends the call that reads the pages. None once it is sent.
    result: the call's result. None before it is sent.
    row: the sequence's row in the result.
  """

  device: int
  pages: list[int]
  start: int
  stop: int
  send: Callable[[], None] | None
  result: ReadTokens | None = None
  row: int = 0

  def take(self) -> UInt[np.ndarray, "_S L choices"]:
    """Waits for the tokens' experts and returns them."""
    if self.send is not None:
      self.send()
    assert self.result is not None
    by_head = self.result.on_host()[self.row, self.start : self.stop]
    return by_head.reshape(*by_head.shape[:2], -1)


@dataclasses.dataclass(eq=False)
class ExpertRecord:
  """The experts of a sequence's first tokens.

  Attributes:
    known: those that are on the host; None if there are none.
  """

  known: UInt[np.ndarray, "_S L choices"] | None = None
  _readings: list[Reading] = dataclasses.field(default_factory=list)

  def __len__(self) -> int:
    if self._readings:
      return self._readings[-1].stop
    return 0 if self.known is None else len(self.known)

  def add(self, reading: Reading) -> None:
    """Adds the tokens after those that it has."""
    self._readings.append(reading)

  def keep(self, count: int) -> None:
    """Forgets all but the first `count` tokens."""
    if len(self) > count:
      known = self.take()
      self.known = None if known is None else known[:count]

  def take(self) -> UInt[np.ndarray, "_S L choices"] | None:
    """Returns the experts of all tokens so far; None without any."""
    if self._readings:
      parts = [] if self.known is None else [self.known]
      parts += [reading.take() for reading in self._readings]
      self.known, self._readings = np.concatenate(parts), []
    return self.known


def to_json(
  known: UInt[np.ndarray, "_S L choices"] | None,
) -> dict[str, Any] | None:
  """Returns a sequence's experts as JSON values."""
  if known is None:
    return None
  return {
    "shape": [*known.shape],
    "dtype": known.dtype.name,
    "bytes": base64.b64encode(known.tobytes()).decode("ascii"),
  }


def from_json(saved: Mapping[str, Any] | None) -> ExpertRecord:
  """Returns what `to_json` was given, as a record."""
  if saved is None:
    return ExpertRecord()
  flat = np.frombuffer(base64.b64decode(saved["bytes"]), saved["dtype"])
  return ExpertRecord(flat.reshape(saved["shape"]))
