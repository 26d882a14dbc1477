"""A non-blocking stream of bytes in both directions: two pipes, or one socket.

What the other side does not yet accept waits here, so a process that stops
reading cannot block the one that writes.
"""

import os

_READ_BYTES = 1 << 16


class Closed(RuntimeError):
  """The other side has closed the stream, as a process does that ends."""


class Channel:
  """The two descriptors of a stream, with its unsent and unread bytes.

  Attributes:
    read_fd, write_fd: descriptors to poll; a socket's are equal.
    incoming: bytes that were read; the reader removes what it has understood.
  """

  def __init__(self, read_fd: int, write_fd: int):
    self.read_fd, self.write_fd = read_fd, write_fd
    self.incoming = bytearray()
    self._outgoing = bytearray()
    os.set_blocking(read_fd, False)
    os.set_blocking(write_fd, False)

  def write(self, data: bytes) -> None:
    """Queues bytes and sends as many as the other side accepts."""
    self._outgoing += data
    self.flush()

  def flush(self) -> None:
    """Sends as many bytes as the other side accepts.

    It ignores a closed stream, which `read` reports.
    """
    try:
      while self._outgoing:
        del self._outgoing[: os.write(self.write_fd, self._outgoing)]
    except BlockingIOError:
      return
    except (BrokenPipeError, ConnectionResetError):
      self._outgoing.clear()

  def has_unsent(self) -> bool:
    """Returns whether to call `flush` when `write_fd` accepts bytes again."""
    return bool(self._outgoing)

  def read(self) -> None:
    """Appends the bytes that have come to `incoming`.

    Raises:
      Closed: the other side has closed the stream.
    """
    try:
      data = os.read(self.read_fd, _READ_BYTES)
    except BlockingIOError:
      return
    except ConnectionResetError:
      data = b""
    if not data:
      raise Closed("the stream was closed")
    self.incoming += data
