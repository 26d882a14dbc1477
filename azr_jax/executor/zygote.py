"""The zygote: a slim process that forks one child per program.

Started by exec with `python -s -S -P zygote.py WALLS MEMORY_MB`, never by
fork from a process that holds JAX. The life of a request:
1. it arrives on the request pipe as one frame (`frames.py`);
2. a child is forked, walled in, and runs the program on all its inputs;
3. the zygote waits on the child's pipe and on its clock, which starts anew
   with each call, kills it at the deadline, and reaps it;
4. what it saw goes out on the reply pipe, and what the child reported.

It holds no golds, runs no model code itself, and ends when the request pipe
closes. After each fork it copies every page that it writes to, so it does
little: the child unpacks its own request, the pool judges the report.
"""

import gc
import os
import select
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import frames
import kernel
import preload
import program

PARENT_CHECK_S = 5.0  # The pipe's end may outlive the parent in a fork of it.
OWN_MODULES = (
  "ctypes _ctypes frames kernel preload program canonical forbidden"
).split()
MAX_REPORT_BYTES = program.MAX_REPORT_CHARS + (1 << 16)


class Child:
  """A running program and what it has written so far."""

  def __init__(self, number, calls, timeout_s, pid, pipe, process):
    self.number = number
    self.calls_left = calls
    self.timeout_s = timeout_s
    self.pid = pid
    self.pipe = pipe
    self.process = process
    self.start = time.monotonic()
    self.deadline = self.start + timeout_s
    self.written = bytearray()
    self.closed = False  # An early EOF must not keep the poll busy.
    self.status = None
    self.timed_out = False
    self.flooded = False

  def kill(self):
    """Ends the child; it cannot have forked."""
    os.kill(self.pid, signal.SIGKILL)


def serve(requests, replies, walls):
  """Serves until the request pipe closes or the parent is gone."""
  os.set_blocking(requests, False)
  os.set_blocking(replies, False)
  parent = os.getppid()
  incoming, outgoing, children = bytearray(), bytearray(), []
  poll = select.poll()
  poll.register(requests, select.POLLIN)
  while os.getppid() == parent:
    poll.register(replies, select.POLLOUT if outgoing else 0)
    ready = _wait(poll, children)
    if requests in ready:
      data = _read(requests)
      if data == b"":
        break
      incoming += data or b""
      for number, calls, timeout_s, payload in frames.take_requests(incoming):
        pid, pipe = _fork(payload, calls * timeout_s, walls)
        process = os.pidfd_open(pid)
        child = Child(number, calls, timeout_s, pid, pipe, process)
        children.append(child)
        poll.register(child.pipe, select.POLLIN)
        poll.register(child.process, select.POLLIN)
    for child in list(children):
      _attend(child, ready, poll)
      if child.status is not None:
        children.remove(child)
        seconds = time.monotonic() - child.start
        outgoing += frames.pack_reply(child.number, seconds, *_verdict(child))
    del outgoing[: _write(replies, outgoing)]
  for child in children:
    child.kill()
    os.waitpid(child.pid, 0)


def _wait(poll, children):
  """Waits for a pipe, the end of a child, or the next deadline."""
  now = time.monotonic()
  wait_s = min((child.deadline - now for child in children), default=now)
  wait_ms = min(max(0.0, wait_s), PARENT_CHECK_S) * 1000
  return {descriptor for descriptor, _ in poll.poll(wait_ms + 1)}


def _read(descriptor):
  try:
    return os.read(descriptor, 1 << 16)
  except BlockingIOError:
    return None


def _write(descriptor, data):
  try:
    return os.write(descriptor, data) if data else 0
  except BlockingIOError:
    return 0


def _fork(payload, longest_s, walls):
  """Starts a program; returns its process id and its pipe's end."""
  reading, writing = os.pipe()
  zygote = os.getpid()
  pid = os.fork()
  if pid == 0:
    _become_program(payload, writing, int(longest_s) + 2, walls, zygote)
  os.close(writing)
  os.set_blocking(reading, False)
  return pid, reading


def _become_program(payload, writing, cpu_s, walls, zygote):
  """Runs in the child: keeps /dev/null and one pipe, then the program."""
  try:
    os.closerange(3, writing)
    os.closerange(writing + 1, 1 << 20)
    kernel.enter_child(walls, zygote, cpu_s)
    code, inputs, entry, forbidden = frames.unpack_program(payload)
    program.run(code, inputs, entry, forbidden, writing)
  finally:
    os._exit(70)


def _attend(child, ready, poll):
  """Takes a child's output, its end, or its time."""
  if child.pipe in ready:
    _take_output(child)
    if child.closed:
      poll.unregister(child.pipe)
  ended = child.process in ready
  if not ended and time.monotonic() < child.deadline:
    return
  if not ended:
    child.timed_out = True
    child.kill()
  if not child.closed:
    poll.unregister(child.pipe)
  poll.unregister(child.process)
  _, child.status = os.waitpid(child.pid, 0)
  _take_output(child)
  os.close(child.pipe)
  os.close(child.process)


def _take_output(child):
  while True:
    data = _read(child.pipe)
    if not data:
      child.closed = data is not None
      return
    child.written += data
    _restart_clock(child, data.count(b"\n"))
    if len(child.written) > MAX_REPORT_BYTES:
      child.flooded = True
      child.kill()
      return


def _restart_clock(child, lines):
  """A line says that a call is over. More lines than calls buy no time."""
  lines = min(lines, child.calls_left - 1)
  if lines > 0:
    child.calls_left -= lines
    child.deadline = time.monotonic() + child.timeout_s


def _verdict(child):
  """The zygote's view first: clock, exit; then what the child wrote."""
  if child.timed_out:
    return frames.TIMED_OUT, child.written
  if child.flooded:
    return frames.NO_REPORT, b""
  if os.WIFSIGNALED(child.status):
    return frames.SIGNALLED, b"%d" % os.WTERMSIG(child.status)
  if child.status != 0:
    return frames.NO_REPORT, b""
  return frames.REPORTED, child.written


def settle(walls, memory_mb):
  """Makes this process what every child starts from; returns its walls.

  Standard input and output become /dev/null, no module is left that programs
  may not have, and no object here is looked at by their garbage collector.
  """
  preload.load()
  null = os.open("/dev/null", os.O_RDWR)
  for standard in (0, 1, 2):
    os.dup2(null, standard)
  os.close(null)
  layers = kernel.enter_zygote(walls, memory_mb << 20)
  program.prepare()
  for name in OWN_MODULES:
    sys.modules.pop(name, None)
  sys.path.clear()
  sys.path_importer_cache.clear()
  gc.collect()
  gc.freeze()
  gc.disable()
  sys.setrecursionlimit(1000)
  return layers


def main():
  """Takes the pipes off descriptors 0 and 1, walls itself in, serves."""
  requests, replies = os.dup(0), os.dup(1)
  walls = frozenset(sys.argv[1].split(","))
  layers = settle(walls, int(sys.argv[2]))
  os.write(replies, frames.pack_hello(layers))
  serve(requests, replies, walls)
  os._exit(0)


if __name__ == "__main__":
  main()
