"""Programs that must fail: every start runs them to test the sandbox."""

from azr_jax.executor.job import Job, Result

_ATTEMPTS = {
  "read_files": "os.open('/etc/hostname', os.O_RDONLY)",
  "write_files": "os.open('/tmp/azr_jax', os.O_WRONLY | os.O_CREAT)",
  "fork": "os.fork()",
  "exec": "os.execv('/bin/true', ['true'])",
  "signals": "os.kill(os.getppid(), 0)",
  "descriptors": "os.dup(1)",
  "sleep": "sys.modules['time'].sleep(0.001)",
  # Clock of the process 1, in the numbering of the kernel.
  "clocks_of_others": "sys.modules['time'].clock_gettime((~1 << 3) | 2)",
  "process_numbers": "os.getpid() or denied()",
  "shared_wake": "library().syscall(futex, word, 1, 1, 0, 0, 0) + 1 or denied()",
  "priority_inheritance": (
    "library().syscall(futex, word, 136, 0, 0, 0, 0) + 1 or denied()"
  ),
  "page_merging": "library().madvise(page, 4096, 12) + 1 or denied()",
}
_ATTEMPT = """
def f():
  import sys
  os = sys.modules["os"]
  try:
    {}
  except PermissionError:
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


def timeout_s(job: Job) -> float:
  """Returns a job's time limit: short for the loop, which must reach it."""
  return 0.2 if job.id == "endless" else 10.0


def held(result: Result) -> bool:
  """Returns whether the attempt of the job was denied."""
  if result.id == "flood":
    return result.status == "error"
  if result.id == "endless":
    return result.status == "timeout"
  return result.outputs == ("'denied'",)
