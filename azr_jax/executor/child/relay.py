"""Passes programs and reports through a zygote without reading them.

A child inherits the zygote's memory and can read it. So the kernel moves the
bytes: a request goes from its pipe into an anonymous file, which only the
request's child reads; a report goes from the child's pipe through such a file
into the reply pipe.
"""

import collections
import os
from collections.abc import Iterator

import frames


class Requests:
  """The request pipe: reads the headers and moves the programs into files."""

  def __init__(self, pipe: int) -> None:
    self.pipe = pipe
    self.closed = False
    self._header = b""
    self._file: int | None = None
    self._left = 0

  def take(self) -> Iterator[tuple[int, list[float], int]]:
    """Yields (number, limits, file) for each complete request.

    `frames.unpack_program` reads the file; the caller closes it.
    """
    while True:
      try:
        moved = self._take_bytes()
      except BlockingIOError:
        return
      if not moved:
        self.closed = True
        return
      if self._file is not None and not self._left:
        _, number, *limits = frames.unpack_request(self._header)
        yield number, limits, self._file
        self._header, self._file = b"", None

  def _take_bytes(self) -> int:
    """Reads or moves available bytes; returns how many, 0 at the pipe's end."""
    if self._file is not None:
      moved = move(self.pipe, self._file, self._left)
      self._left -= moved
      return moved
    data = os.read(self.pipe, frames.REQUEST_BYTES - len(self._header))
    self._header += data
    if len(self._header) == frames.REQUEST_BYTES:
      self._left = frames.unpack_request(self._header)[0]
      self._file = memory_file()
    return len(data)


class _Unsent:
  """A reply's bytes, the file that follows them, and the bytes left in it."""

  def __init__(self, head: bytes, file: int | None, left: int) -> None:
    self.head = head
    self.file = file
    self.left = left


class Replies:
  """The reply pipe: writes headers and moves the reports out of files."""

  def __init__(self, pipe: int) -> None:
    self.pipe = pipe
    self.waiting: collections.deque[_Unsent] = collections.deque()

  def add(self, head: bytes, file: int | None = None, size: int = 0) -> None:
    """Queues bytes, followed by a file that is closed once it is sent."""
    if file is not None:
      os.lseek(file, 0, os.SEEK_SET)
    self.waiting.append(_Unsent(head, file, size))

  def flush(self) -> None:
    """Writes as many bytes as the pipe accepts."""
    while self.waiting:
      reply = self.waiting[0]
      try:
        if reply.head:
          reply.head = reply.head[os.write(self.pipe, reply.head) :]
          continue
        if reply.file is not None and reply.left:
          reply.left -= os.sendfile(self.pipe, reply.file, None, reply.left)
          continue
      except BlockingIOError:
        return
      if reply.file is not None:
        os.close(reply.file)
      self.waiting.popleft()


def memory_file() -> int:
  """Returns an in-memory file that is freed with its last descriptor."""
  return os.memfd_create("relay")


def move(pipe: int, file: int, max_bytes: int) -> int:
  """Moves bytes from a pipe to a file; returns how many, 0 at the pipe's end.

  Raises:
    BlockingIOError: the pipe is empty.
  """
  return os.splice(pipe, file, max_bytes, flags=os.SPLICE_F_NONBLOCK)
