"""A non-blocking byte stream in both directions: two pipes, or one socket.

Bytes that the peer does not accept yet are buffered here, so a process that
stops reading cannot block the writer.
"""

import os

_READ_BYTES = 1 << 16


class Closed(RuntimeError):
  """The peer has closed the stream, for example because its process exited."""


class Channel:
  """The two descriptors of a stream, with its unsent and unread bytes.

  Attributes:
    read_fd, write_fd: descriptors to poll; the same one for a socket.
    incoming: bytes that were received; the reader removes what it has parsed.
  """

  def __init__(self, read_fd: int, write_fd: int):
    self.read_fd, self.write_fd = read_fd, write_fd
    self.incoming = bytearray()
    self._outgoing = bytearray()
    os.set_blocking(read_fd, False)
    os.set_blocking(write_fd, False)

  def write(self, data: bytes) -> None:
    """Queues bytes and sends as many as the peer accepts."""
    self._outgoing += data
    self.flush()

  def flush(self) -> None:
    """Sends as many bytes as the peer accepts.

    A closed stream is ignored here; `read` reports it.
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
    """Appends the available bytes to `incoming`.

    Raises:
      Closed: the peer has closed the stream.
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
