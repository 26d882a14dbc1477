"""The zygote: a small process that forks one child per program.

It is started by exec with `python -s -S -P zygote.py LAYERS MEMORY_MB LIBRARIES
PATHS`, never forked from a process that holds JAX. The life of a request:
1. it arrives on the request pipe (`frames.py`);
2. a child is forked, enters its sandbox, and runs the program on all inputs;
3. the zygote waits for the child's output, its end, or a limit
   (`stopwatch.py`). At a limit it kills the child. Then it reaps it;
4. the zygote's observations and the child's report go out on the reply pipe.

While it has children, the zygote sends a heartbeat every second, so the pool
need not know how long a program may take on a busy machine.

The zygote never runs untrusted code itself, and exits when the request pipe
closes. It holds no reference answer, program or report (`relay.py`), because a
child can read everything that the zygote held at the fork. After a fork, every
page that the zygote writes to is copied, so it does little: the child unpacks
its own request, and the pool parses the report.
"""

import gc
import os
import select
import signal
import sys
import time
from collections.abc import Sequence
from typing import NoReturn

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import clocks
import frames
import hiding
import kernel
import libraries
import preload
import program
import relay
import stopwatch
from forbidden import RULES_OF_PROPOSALS

# Seconds between checks that the parent is alive: a fork of the parent may keep
# the request pipe open after the parent's death.
PARENT_CHECK_S = 5.0
HEARTBEAT_S = 1.0  # Seconds between heartbeats while there are children.
OWN_MODULES = (
  "ctypes _ctypes clocks frames hiding kernel libraries preload program relay "
  "arguments canonical forbidden independence stopwatch system_calls"
).split()
MAX_REPORT_BYTES = program.MAX_REPORT_CHARS + (1 << 16)


class Child:
  """A running program, and the file with its report so far.

  Attributes:
    number: the request's number.
    limits: CPU seconds per call and of all calls, and seconds of sleep.
    pid, process: the child's process id and pidfd.
    pipe: the descriptor to read the report from.
    stopwatch: how much of its limits the child has used.
    report, written: the report file's descriptor, and the bytes in it.
    closed: whether the pipe has reached its end.
    status: the exit status; None until the child is reaped.
    cpu_s: the child's CPU seconds, set when it is reaped.
    slept_s: for how many seconds the child slept, set if it ended by itself.
    limit: the limit in `frames.LIMITS` at which the child was killed, or None.
    flooded: whether the child wrote too much.
  """

  def __init__(
    self,
    number: int,
    limits: Sequence[float],
    pid: int,
    pipe: int,
    process: int,
  ) -> None:
    self.number = number
    self.limits = limits
    self.pid = pid
    self.pipe = pipe
    self.process = process
    self.stopwatch = stopwatch.Stopwatch(pid, *limits)
    self.report = relay.memory_file()
    self.written = 0
    self.closed = False
    self.status: int | None = None
    self.cpu_s = self.slept_s = 0.0
    self.limit: int | None = None
    self.flooded = False

  def kill(self) -> None:
    """Kills the child, which cannot have forked."""
    os.kill(self.pid, signal.SIGKILL)

  def reap(self) -> None:
    """Waits for the child to exit, and stores its status and CPU time."""
    _, self.status, usage = os.wait4(self.pid, 0)
    self.cpu_s = usage.ru_utime + usage.ru_stime


def serve(request_pipe: int, reply_pipe: int) -> list[int] | None:
  """Serves requests until the request pipe closes or the parent dies.

  Returns None in the zygote. In a child, returns its task: a list of the
  request's file, the pipe for the report, and the limit on CPU seconds. The
  child leaves this function before it runs the program, which could otherwise
  read the variables here.
  """
  os.set_blocking(request_pipe, False)
  os.set_blocking(reply_pipe, False)
  parent = os.getppid()
  requests, replies = relay.Requests(request_pipe), relay.Replies(reply_pipe)
  children: list[Child] = []
  poll = select.poll()
  poll.register(request_pipe, select.POLLIN)
  next_heartbeat = time.monotonic() + HEARTBEAT_S
  while os.getppid() == parent and not requests.closed:
    poll.register(reply_pipe, select.POLLOUT if replies.waiting else 0)
    ready = _wait(poll, children, next_heartbeat)
    if request_pipe in ready:
      for number, limits, file in requests.take():
        pid, pipe = _fork()
        if pid == 0:
          run_s = limits[1]
          return [file, pipe, int(run_s) + 2]
        os.close(file)
        process = os.pidfd_open(pid)
        child = Child(number, limits, pid, pipe, process)
        children.append(child)
        poll.register(child.pipe, select.POLLIN)
        poll.register(child.process, select.POLLIN)
    for child in list(children):
      _handle_child(child, ready, poll)
      if child.status is not None:
        children.remove(child)
        replies.add(*_reply(child, child.status))
    if children and time.monotonic() >= next_heartbeat:
      next_heartbeat = time.monotonic() + HEARTBEAT_S
      # Heartbeats must not pile up while the pool does not read.
      if not replies.waiting:
        replies.add(frames.pack_heartbeat())
    replies.flush()
  for child in children:
    child.kill()
    child.reap()
  return None


def _wait(
  poll: select.poll, children: list[Child], next_heartbeat: float
) -> set[int]:
  """Waits for a pipe, a child's end, a limit, or the next heartbeat.

  Returns the descriptors that are ready.
  """
  now = time.monotonic()
  until = [child.stopwatch.next_check() for child in children]
  until.append(next_heartbeat if children else now + PARENT_CHECK_S)
  wait_ms = max(0.0, min(until) - now) * 1000
  return {descriptor for descriptor, _ in poll.poll(wait_ms + 1)}


def _fork() -> tuple[int, int]:
  """Forks; returns the child's pid and this process's end of a pipe."""
  read_fd, write_fd = os.pipe()
  pid = kernel.fork()
  if pid == 0:
    return pid, write_fd
  os.close(write_fd)
  os.set_blocking(read_fd, False)
  return pid, read_fd


def _become_program(
  task: list[int], sandbox_layers: frozenset[str], zygote: int
) -> NoReturn:
  """Enters the sandbox with one open pipe and runs the program."""
  write_fd = task[1]
  run_arguments = _enter_sandbox(task, sandbox_layers, zygote)
  program.run(*run_arguments, write_fd)


def _enter_sandbox(
  task: list[int], sandbox_layers: frozenset[str], zygote: int
) -> tuple[str, tuple[str, ...], str, tuple[str, ...], bool]:
  """Enters the sandbox; returns all arguments of `program.run` but the last.

  Afterwards the program's callers hold no variable that it must not see, such
  as its limits, which distinguish validation from grading.
  """
  file, write_fd, cpu_s = task
  task.clear()
  code, inputs, entry, rules, may_share, shift_s = frames.unpack_program(file)
  kernel.deny_files()  # Needs a descriptor that the next line closes.
  os.closerange(3, write_fd)
  os.closerange(write_fd + 1, 1 << 20)
  kernel.enter_child(sandbox_layers, zygote, cpu_s)
  if shift_s is not None:
    clocks.shift(shift_s)
    hiding.load_nothing_twice()
  if rules:
    hiding.hide(rules)
  return code, inputs, entry, rules, may_share


def _handle_child(child: Child, ready: set[int], poll: select.poll) -> None:
  """Handles a child's output, its end, or a reached limit."""
  if child.pipe in ready:
    _take_output(child)
    if child.closed:  # `poll` would report a closed pipe forever.
      poll.unregister(child.pipe)
  if child.process in ready:
    child.slept_s = child.stopwatch.slept_s()
  else:
    child.limit = child.stopwatch.reached()
    if child.limit is None:
      return
    child.kill()
  if not child.closed:
    poll.unregister(child.pipe)
  poll.unregister(child.process)
  child.reap()
  while not child.closed and _take_output(child):
    pass
  os.close(child.pipe)
  os.close(child.process)


def _take_output(child: Child) -> bool:
  """Moves a child's output into its report; kills the child if it is too long.

  Returns whether there may be more.
  """
  try:
    moved = relay.move(child.pipe, child.report, MAX_REPORT_BYTES)
  except BlockingIOError:
    return False
  if not moved:
    child.closed = True
    return False
  child.written += moved
  child.flooded = child.written > MAX_REPORT_BYTES
  # Once the child is reaped, another process may have its process id.
  if child.status is None:
    if child.flooded:
      child.kill()
    else:
      child.stopwatch.begin_call()
  return not child.flooded


def _reply(child: Child, status: int) -> tuple[bytes, int | None, int]:
  """Returns a reply's first bytes, its report file or None, and the size."""
  ending, text = _ending(child, status), b""
  used = time.monotonic() - child.stopwatch.start, child.cpu_s, child.slept_s
  if ending == frames.REPORTED or ending in frames.LIMITS:
    head = frames.pack_reply(child.number, *used, ending, child.written)
    return head, child.report, child.written
  if ending == frames.SIGNALLED:
    text = b"%d" % os.WTERMSIG(status)
  os.close(child.report)
  head = frames.pack_reply(child.number, *used, ending, len(text))
  return head + text, None, 0


def _ending(child: Child, status: int) -> int:
  """Returns how a child ended, one of the constants in `frames`."""
  if child.limit is not None:
    return child.limit
  if child.flooded:
    return frames.NO_REPORT
  if os.WIFSIGNALED(status):
    # If the zygote is late, the kernel's own CPU limit kills the child.
    _, run_s, _ = child.limits
    return frames.RUN_TIMED_OUT if child.cpu_s > run_s else frames.SIGNALLED
  return frames.REPORTED if status == 0 else frames.NO_REPORT


def prepare_process(
  sandbox_layers: frozenset[str],
  memory_mb: int,
  library_names: Sequence[str],
  paths: Sequence[str],
) -> dict[str, bool]:
  """Prepares the process that children are forked from.

  Redirects the standard streams to /dev/null, removes modules that programs
  must not have, and exempts all objects from garbage collection.

  Returns whether each sandbox layer is active, by name.
  """
  with preload.without_fork_hooks():
    preload.load()
    libraries.load(library_names, paths)
  null = os.open("/dev/null", os.O_RDWR)
  for standard in (0, 1, 2):
    os.dup2(null, standard)
  os.close(null)
  active = kernel.enter_zygote(sandbox_layers, memory_mb << 20)
  program.prepare()
  for name in OWN_MODULES:
    sys.modules.pop(name, None)
  hiding.prepare(RULES_OF_PROPOSALS)
  clocks.prepare(hiding.namespaces())
  sys.path.clear()
  sys.path_importer_cache.clear()
  gc.collect()
  gc.freeze()
  gc.disable()
  return active


def main() -> None:
  """Moves the pipes off descriptors 0 and 1, enters the sandbox, and serves."""
  requests, replies = os.dup(0), os.dup(1)
  sandbox_layers = frozenset(sys.argv[1].split(","))
  names, paths = sys.argv[3].split(), sys.argv[4].split(os.pathsep)
  active = prepare_process(sandbox_layers, int(sys.argv[2]), names, paths)
  os.write(replies, frames.pack_hello(active))
  zygote = os.getpid()
  try:
    task = serve(requests, replies)
    if task is not None:
      _become_program(task, sandbox_layers, zygote)
  finally:
    os._exit(0 if os.getpid() == zygote else 70)


if __name__ == "__main__":
  main()
