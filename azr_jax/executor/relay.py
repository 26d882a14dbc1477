"""How programs and reports pass through a zygote without entering its memory.

A child inherits all that its zygote holds, and can look at it. So the kernel
moves what others wrote: from the request pipe into a file without a name, which
only the child that it is for reads, and from a child's pipe by such a file into
the reply pipe.
"""

import collections
import os

import frames


class Requests:
  """The request pipe: headers are read, programs are put into files."""

  def __init__(self, pipe):
    self.pipe = pipe
    self.closed = False
    self._header = b""
    self._file = None
    self._left = 0

  def take(self):
    """Yields (number, calls, timeout of each in seconds, file) as they come.

    The file is the receiver's to close; `frames.unpack_program` reads it.
    """
    while True:
      try:
        moved = self._take_some()
      except BlockingIOError:
        return
      if not moved:
        self.closed = True
        return
      if self._file is not None and not self._left:
        _, *fields = frames.unpack_request(self._header)
        yield *fields, self._file
        self._header, self._file = b"", None

  def _take_some(self):
    if self._file is not None:
      moved = move(self.pipe, self._file, self._left)
      self._left -= moved
      return moved
    data = os.read(self.pipe, frames.REQUEST_BYTES - len(self._header))
    self._header += data
    if len(self._header) == frames.REQUEST_BYTES:
      self._left = frames.unpack_request(self._header)[0]
      self._file = nameless_file()
    return len(data)


class Replies:
  """The reply pipe: headers, each with a report that stays in its file."""

  def __init__(self, pipe):
    self.pipe = pipe
    self.waiting = collections.deque()

  def add(self, head, file=None, size=0):
    """Queues bytes and, after them, a whole file, which is then closed."""
    if file is not None:
      os.lseek(file, 0, os.SEEK_SET)
    self.waiting.append([head, file, size])

  def flush(self):
    """Writes what the pipe takes."""
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


def nameless_file():
  """A file in memory that goes with its last descriptor."""
  return os.memfd_create("relay")


def move(pipe, file, most):
  """Moves bytes from a pipe to a file; returns how many, 0 at the pipe's end.

  Raises:
    BlockingIOError: the pipe is empty.
  """
  return os.splice(pipe, file, most, flags=os.SPLICE_F_NONBLOCK)
