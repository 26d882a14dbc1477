"""Programs that the sandbox must stop; the executor runs them at each start."""

from azr_jax.executor.job import Job, Result
from azr_jax.executor.limits import Limits

_ATTEMPTS = {
  "read_files": "os.open('/etc/hostname', os.O_RDONLY)",
  "write_files": "os.open('/tmp/azr_jax', os.O_WRONLY | os.O_CREAT)",
  "fork": "os.fork()",
  "exec": "os.execv('/bin/true', ['true'])",
  "signals": "os.kill(os.getppid(), 0)",
  "descriptors": "os.dup(1)",
  "sleep": "sys.modules['time'].sleep(0.001)",
  "other_process_clocks": "sys.modules['time'].clock_gettime((~1 << 3) | 2)",
  "process_ids": "1 / os.getpid()",
  "shared_futex_wakes": "libc('syscall', FUTEX, bytes(4), 1, 1, 0, 0, 0)",
  "priority_inheritance": "libc('syscall', FUTEX, bytes(4), 136, 0, 0, 0, 0)",
  "page_merging": "libc('madvise', 0, 0, 12)",
}
_ATTEMPT = """
def f():
  import sys
  os = sys.modules["os"]
  FUTEX = 202 if "x86" in sys.implementation._multiarch else 98
  def libc(name, *arguments):
    classes = object.__subclasses__()
    library = next(c for c in classes if c.__name__ == "CDLL")(None)
    if getattr(library, name)(*arguments) == -1:
      raise PermissionError
  try:
    {}
  except (PermissionError, ZeroDivisionError):
    return "denied"
  return "allowed"
"""
_FLOOD = "def f():\n  return 'x' * (1 << 21)\n"
_LOOP = "def f():\n  while True:\n    pass\n"


def jobs() -> list[Job]:
  """Returns one job per attempt; its id names what it tries."""
  programs = {
    name: _ATTEMPT.format(code) for name, code in _ATTEMPTS.items()
  } | {"flood": _FLOOD, "endless": _LOOP}
  return [Job(name, code, ("",)) for name, code in programs.items()]


def limits(job: Job) -> Limits:
  """Returns a job's limits, which are short for the endless loop."""
  seconds = 0.2 if job.id == "endless" else 10.0
  return Limits(call_s=seconds, run_s=seconds, sleep_s=seconds)


def is_denied(result: Result) -> bool:
  """Returns whether the attempt of the job was denied."""
  if result.id == "flood":
    return result.status == "error"
  if result.id == "endless":
    return result.status == "timeout"
  return result.outputs == ("'denied'",)
