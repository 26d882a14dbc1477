"""A zygote process as the pool sees it: started, fed, read, ended.

Frames both ways are eight bytes of length and that many bytes of JSON. Both
pipes are non-blocking: a zygote that stops reading cannot hold up the pool.
"""

import json
import os
import pathlib
import select
import subprocess
import sys
import time
from typing import Any

START_S = 30.0
_ZYGOTE = pathlib.Path(__file__).with_name("zygote.py")


class WorkerGone(RuntimeError):
  """The zygote has died or closed its pipe."""


class Zygote:
  """A running zygote, its unsent and unread bytes, and what it works on.

  Attributes:
    seed: its `PYTHONHASHSEED`.
    busy: runs under way by request id; the pool's own book-keeping.
    reading, writing: descriptors to poll.
  """

  def __init__(self, seed: int, seccomp: bool):
    self.seed = seed
    self.busy: dict[str, Any] = {}
    self._incoming, self._outgoing = bytearray(), bytearray()
    mode = "seccomp" if seccomp else "unsafe"
    self._process = subprocess.Popen(
      [sys.executable, "-s", "-S", "-P", str(_ZYGOTE), mode],
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      bufsize=0,
      env={
        "PYTHONHASHSEED": str(seed),
        "PATH": "/usr/bin:/bin",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
      },
      cwd="/",
      start_new_session=True,
    )
    assert self._process.stdin and self._process.stdout
    self.writing = self._process.stdin.fileno()
    self.reading = self._process.stdout.fileno()
    os.set_blocking(self.writing, False)
    os.set_blocking(self.reading, False)

  @property
  def pid(self) -> int:
    """The zygote's process id."""
    return self._process.pid

  def greet(self) -> dict[str, Any]:
    """Waits for the first frame, which says which walls stand.

    Raises:
      WorkerGone: it died, or `START_S` seconds passed.
    """
    deadline = time.monotonic() + START_S
    frames: list[bytes] = []
    while not frames:
      wait = deadline - time.monotonic()
      if wait <= 0 or not select.select([self.reading], [], [], wait)[0]:
        raise WorkerGone("an executor zygote did not start")
      frames = self.receive()
    return json.loads(frames[0])

  def send(self, payload: bytes) -> None:
    """Queues a frame and writes what the pipe takes."""
    self._outgoing += len(payload).to_bytes(8, "big") + payload
    self.flush()

  def flush(self) -> None:
    """Writes what the pipe takes; a broken pipe shows when reading."""
    try:
      while self._outgoing:
        del self._outgoing[: os.write(self.writing, self._outgoing)]
    except BlockingIOError:
      return
    except BrokenPipeError:
      self._outgoing.clear()

  def has_unsent(self) -> bool:
    """Whether `flush` should be called when the pipe has room."""
    return bool(self._outgoing)

  def receive(self) -> list[bytes]:
    """Reads what is there; returns the frames that are complete.

    Raises:
      WorkerGone: the zygote closed its pipe.
    """
    try:
      data = os.read(self.reading, 1 << 16)
    except BlockingIOError:
      return []
    if not data:
      raise WorkerGone("an executor zygote died")
    self._incoming += data
    return list(self._take_frames())

  def _take_frames(self):
    while len(self._incoming) >= 8:
      end = 8 + int.from_bytes(self._incoming[:8], "big")
      if len(self._incoming) < end:
        return
      frame = bytes(self._incoming[8:end])
      del self._incoming[:end]
      yield frame

  def end(self) -> None:
    """Kills the zygote, whose children die with it, and reaps it."""
    assert self._process.stdin and self._process.stdout
    self._process.kill()
    self._process.wait()
    self._process.stdin.close()
    self._process.stdout.close()
