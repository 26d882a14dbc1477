"""Passes programs and reports through a zygote without reading them.

A child inherits the zygote's memory and can read it. So the kernel moves the
bytes: a request goes from its pipe into an anonymous file, which only the
request's child reads; a report goes from the child's pipe through such a file
into the reply pipe.
"""

import collections
import os

import frames


class Requests:
  """The request pipe: reads the headers and moves the programs into files."""

  def __init__(self, pipe):
    self.pipe = pipe
    self.closed = False
    self._header = b""
    self._file = None
    self._left = 0

  def take(self):
    """Yields (number, call_s, run_s, sleep_s, file) for each complete request.

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
        _, *fields = frames.unpack_request(self._header)
        yield *fields, self._file
        self._header, self._file = b"", None

  def _take_bytes(self):
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


class Replies:
  """The reply pipe: writes headers and moves the reports out of files."""

  def __init__(self, pipe):
    self.pipe = pipe
    self.waiting = collections.deque()

  def add(self, head, file=None, size=0):
    """Queues bytes, followed by a file that is closed once it is sent."""
    if file is not None:
      os.lseek(file, 0, os.SEEK_SET)
    self.waiting.append([head, file, size])

  def flush(self):
    """Writes as many bytes as the pipe accepts."""
    while self.waiting:
      head, file, left = self.waiting[0]
      try:
        if head:
          self.waiting[0][0] = head[os.write(self.pipe, head) :]
          continue
        if left:
          self.waiting[0][2] -= os.sendfile(self.pipe, file, None, left)
          continue
      except BlockingIOError:
        return
      if file is not None:
        os.close(file)
      self.waiting.popleft()


def memory_file():
  """Returns an in-memory file that is freed with its last descriptor."""
  return os.memfd_create("relay")


def move(pipe, file, max_bytes):
  """Moves bytes from a pipe to a file; returns how many, 0 at the pipe's end.

  Raises:
    BlockingIOError: the pipe is empty.
  """
  return os.splice(pipe, file, max_bytes, flags=os.SPLICE_F_NONBLOCK)
