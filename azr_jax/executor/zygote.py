"""The zygote: a slim process that forks one child per program.

Started by exec with `python -s -S -P zygote.py WALLS MEMORY_MB LIBRARIES
PATHS`, never by fork from a process that holds JAX. The life of a request:
1. it arrives on the request pipe (`frames.py`);
2. a child is forked, walled in, and runs the program on all its inputs;
3. the zygote waits on the child's pipe and on its clock, which starts anew
   with each call, kills it at the deadline, and reaps it;
4. what it saw goes out on the reply pipe, and what the child reported.

It runs no model code itself and ends when the request pipe closes. It holds no
golds, and no program or report either (`relay.py`), for a child can look at all
that it held at the fork. After each fork it copies every page that it writes
to, so it does little: the child unpacks its own request, the pool judges the
report.
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
import libraries
import preload
import program
import relay

PARENT_CHECK_S = 5.0  # The pipe's end may outlive the parent in a fork of it.
OWN_MODULES = (
  "ctypes _ctypes frames kernel libraries preload program relay canonical "
  "forbidden"
).split()
MAX_REPORT_BYTES = program.MAX_REPORT_CHARS + (1 << 16)


class Child:
  """A running program, and the file that holds what it has written."""

  def __init__(self, number, calls, timeout_s, pid, pipe, process):
    self.number = number
    self.timeout_s = timeout_s
    self.pid = pid
    self.pipe = pipe
    self.process = process
    self.start = time.monotonic()
    self.deadline = self.start + timeout_s
    self.last_deadline = self.start + calls * timeout_s
    self.report = relay.nameless_file()
    self.written = 0
    self.closed = False  # An early EOF must not keep the poll busy.
    self.status = None
    self.timed_out = False
    self.flooded = False

  def kill(self):
    """Ends the child; it cannot have forked."""
    os.kill(self.pid, signal.SIGKILL)


def serve(request_pipe, reply_pipe):
  """Serves until the request pipe closes or the parent is gone.

  Returns None; in a child, what it has to do: the request's file, the pipe for
  its report, and its CPU seconds. So a program does not run inside of this
  function, whose variables it could reach.
  """
  os.set_blocking(request_pipe, False)
  os.set_blocking(reply_pipe, False)
  parent = os.getppid()
  requests, replies = relay.Requests(request_pipe), relay.Replies(reply_pipe)
  children = []
  poll = select.poll()
  poll.register(request_pipe, select.POLLIN)
  while os.getppid() == parent and not requests.closed:
    poll.register(reply_pipe, select.POLLOUT if replies.waiting else 0)
    ready = _wait(poll, children)
    if request_pipe in ready:
      for number, calls, timeout_s, file in requests.take():
        pid, pipe = _fork()
        if pid == 0:
          return file, pipe, int(calls * timeout_s) + 2
        os.close(file)
        process = os.pidfd_open(pid)
        child = Child(number, calls, timeout_s, pid, pipe, process)
        children.append(child)
        poll.register(child.pipe, select.POLLIN)
        poll.register(child.process, select.POLLIN)
    for child in list(children):
      _attend(child, ready, poll)
      if child.status is not None:
        children.remove(child)
        replies.add(*_reply(child))
    replies.flush()
  for child in children:
    child.kill()
    os.waitpid(child.pid, 0)
  return None


def _wait(poll, children):
  """Waits for a pipe, the end of a child, or the next deadline."""
  now = time.monotonic()
  wait_s = min(
    (child.deadline - now for child in children), default=PARENT_CHECK_S
  )
  wait_ms = min(max(0.0, wait_s), PARENT_CHECK_S) * 1000
  return {descriptor for descriptor, _ in poll.poll(wait_ms + 1)}


def _fork():
  """Forks; returns the child's id and the pipe's end that is for the caller."""
  reading, writing = os.pipe()
  pid = os.fork()
  if pid == 0:
    return pid, writing
  os.close(writing)
  os.set_blocking(reading, False)
  return pid, reading


def _become_program(file, writing, cpu_s, walls, zygote):
  """Runs in the child: keeps /dev/null and one pipe, then the program."""
  code, inputs, entry, forbidden = frames.unpack_program(file)
  os.closerange(3, writing)
  os.closerange(writing + 1, 1 << 20)
  kernel.enter_child(walls, zygote, cpu_s)
  program.run(code, inputs, entry, forbidden, writing)


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
    try:
      moved = relay.move(child.pipe, child.report, MAX_REPORT_BYTES)
    except BlockingIOError:
      return
    if not moved:
      child.closed = True
      return
    child.written += moved
    _restart_clock(child)
    if child.written > MAX_REPORT_BYTES:
      child.flooded = True
      if child.status is None:  # Once reaped, its number may be another's.
        child.kill()
      return


def _restart_clock(child):
  """A report that grows says that a call is over; all have a time together."""
  deadline = time.monotonic() + child.timeout_s
  child.deadline = min(deadline, child.last_deadline)


def _reply(child):
  """The zygote's view, clock and exit first; then what the child wrote."""
  seconds = time.monotonic() - child.start
  seen, text = frames.REPORTED, b""
  if child.timed_out:
    seen = frames.TIMED_OUT
  elif child.flooded:
    seen = frames.NO_REPORT
  elif os.WIFSIGNALED(child.status):
    seen, text = frames.SIGNALLED, b"%d" % os.WTERMSIG(child.status)
  elif child.status != 0:
    seen = frames.NO_REPORT
  if seen in (frames.TIMED_OUT, frames.REPORTED):
    head = frames.pack_reply(child.number, seconds, seen, child.written)
    return head, child.report, child.written
  os.close(child.report)
  return (
    frames.pack_reply(child.number, seconds, seen, len(text)) + text,
    None,
    0,
  )


def settle(walls, memory_mb, library_names, paths):
  """Makes this process what every child starts from; returns its walls.

  Standard input and output become /dev/null, no module is left that programs
  may not have, and no object here is looked at by their garbage collector.
  """
  preload.load()
  libraries.load(library_names, paths)
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
  return layers


def main():
  """Takes the pipes off descriptors 0 and 1, walls itself in, serves."""
  requests, replies = os.dup(0), os.dup(1)
  walls = frozenset(sys.argv[1].split(","))
  names, paths = sys.argv[3].split(), sys.argv[4].split(os.pathsep)
  layers = settle(walls, int(sys.argv[2]), names, paths)
  os.write(replies, frames.pack_hello(layers))
  zygote = os.getpid()
  try:
    task = serve(requests, replies)
    if task is not None:
      _become_program(*task, walls, zygote)
  finally:
    os._exit(0 if os.getpid() == zygote else 70)


if __name__ == "__main__":
  main()
