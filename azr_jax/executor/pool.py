"""The pool: jobs in, verdicts out, over a set of zygotes.

The life of a job:
1. `submit` queues one run per requested run; a run goes to the least busy
   zygote that has a free slot, a second run to one with another hash seed;
2. a reader thread per zygote takes the replies;
3. when all runs of a job are in, its verdict is decided here, in the trusted
   process: only text came back, and it is parsed, never evaluated.

A zygote that dies or stops answering is replaced; its runs are tried once
more elsewhere, and end as an error if that zygote dies too.
"""

import collections
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any

from azr_jax.executor import literals
from azr_jax.executor.job import STATUSES, Job, Result

HASH_SEEDS = (1, 2)
SLOTS = 2  # Children at a time per zygote: a loop must not block the rest.
GRACE_S = 3.0  # Past the time limit, an unanswered zygote counts as dead.
START_S = 30.0
_ZYGOTE = pathlib.Path(__file__).with_name("zygote.py")


@dataclasses.dataclass(eq=False)
class _Run:
  """One execution of a job."""

  job: Job
  future: "concurrent.futures.Future[Result]"
  siblings: "list[_Run]"
  seed: int | None  # Hash seed it needs; None takes any.
  tries: int = 0
  deadline: float = 0.0
  result: Result | None = None


class _Zygote:
  """A zygote process as the pool sees it."""

  def __init__(self, seed: int, seccomp: bool):
    self.seed = seed
    self.dead = False
    self.busy: dict[str, _Run] = {}
    self.process = subprocess.Popen(
      [
        sys.executable,
        "-s",
        "-S",
        "-P",
        str(_ZYGOTE),
        "seccomp" if seccomp else "unsafe",
      ],
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      env={
        "PYTHONHASHSEED": str(seed),
        "PATH": "/usr/bin:/bin",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
      },
      cwd="/",
      start_new_session=True,
    )
    hello = self.read_frame(time.monotonic() + START_S)
    if hello is None:
      self.end()
      raise RuntimeError("an executor zygote did not start")
    self.layers: dict[str, Any] = json.loads(hello)

  def free(self) -> int:
    """Slots that can take a run now."""
    return 0 if self.dead else SLOTS - len(self.busy)

  def send(self, payload: bytes) -> bool:
    """Writes a frame; false if the zygote is gone."""
    assert self.process.stdin is not None
    try:
      self.process.stdin.write(len(payload).to_bytes(8, "big") + payload)
      self.process.stdin.flush()
    except (BrokenPipeError, ValueError):
      return False
    return True

  def read_frame(self, deadline: float | None) -> bytes | None:
    """Reads a frame; None at the deadline or when the zygote is gone."""
    header = self._read(8, deadline)
    if header is None:
      return None
    return self._read(int.from_bytes(header, "big"), deadline)

  def _read(self, count: int, deadline: float | None) -> bytes | None:
    assert self.process.stdout is not None
    descriptor = self.process.stdout.fileno()
    data = bytearray()
    while len(data) < count:
      wait = 60.0 if deadline is None else deadline - time.monotonic()
      if wait <= 0:
        return None
      if not select.select([descriptor], [], [], wait)[0]:
        continue
      part = os.read(descriptor, count - len(data))
      if not part:
        return None
      data += part
    return bytes(data)

  def end(self) -> None:
    """Kills the zygote; its children die with it."""
    assert self.process.stdin and self.process.stdout
    self.process.kill()
    self.process.wait()
    for pipe in (self.process.stdin, self.process.stdout):
      try:
        pipe.close()
      except BrokenPipeError:
        pass


class Executor:
  """A pool of sandboxed Python processes; see executor/README.md.

  Thread-safe; a context manager. Closing it leaves no process.
  """

  def __init__(
    self,
    workers: int,
    timeout_s: float,
    memory_mb: int,
    unsafe: bool = False,
  ):
    """Starts the zygotes and proves their walls.

    Args:
      workers: programs to run at the same time, about the cores to spare.
      timeout_s: wall-clock seconds per program, all its inputs together.
      memory_mb: address space per program.
      unsafe: run without seccomp, where the kernel has none.

    Raises:
      RuntimeError: a wall that must stand does not.
    """
    self._timeout_s = timeout_s
    self._memory_mb = memory_mb
    self._seccomp = not unsafe
    self._lock = threading.Condition()
    self._queue: collections.deque[_Run] = collections.deque()
    self._closed = False
    self._serial = 0
    self._counts: collections.Counter[str] = collections.Counter()
    self._zygotes: list[_Zygote] = []
    self._threads: list[threading.Thread] = []
    try:
      for _ in range(workers):
        for seed in HASH_SEEDS:
          self._zygotes.append(_Zygote(seed, self._seccomp))
    except RuntimeError:
      for zygote in self._zygotes:
        zygote.end()
      raise
    for place in range(len(self._zygotes)):
      thread = threading.Thread(target=self._serve, args=(place,), daemon=True)
      thread.start()
      self._threads.append(thread)
    try:
      self._layers = self._prove_layers()
    except BaseException:
      self.close()
      raise

  def __enter__(self) -> "Executor":
    return self

  def __exit__(self, *exception: object) -> None:
    self.close()

  def submit(self, job: Job) -> "concurrent.futures.Future[Result]":
    """Queues a job; the future holds its `Result`."""
    future: concurrent.futures.Future[Result] = concurrent.futures.Future()
    siblings: list[_Run] = []
    for index in range(job.runs):
      seed = None if job.runs == 1 else HASH_SEEDS[index % len(HASH_SEEDS)]
      siblings.append(_Run(job, future, siblings, seed))
    with self._lock:
      if self._closed:
        raise RuntimeError("the executor is closed")
      self._queue.extend(siblings)
      self._dispatch()
    return future

  def map(self, jobs: Iterable[Job]) -> list[Result]:
    """Runs the jobs; results in order."""
    return [future.result() for future in [self.submit(job) for job in jobs]]

  def counters(self) -> dict[str, int]:
    """Verdicts by status since the start, and their sum as `programs`."""
    with self._lock:
      counts = {status: self._counts[status] for status in STATUSES}
    return counts | {"programs": sum(counts.values())}

  def layers(self) -> dict[str, Any]:
    """Which walls stand: seccomp, landlock, namespaces, unprivileged."""
    return dict(self._layers)

  def processes(self) -> list[int]:
    """Process ids of the zygotes."""
    with self._lock:
      return [zygote.process.pid for zygote in self._zygotes]

  def close(self) -> None:
    """Ends every process; jobs under way fail with `CancelledError`."""
    with self._lock:
      if self._closed:
        return
      self._closed = True
      runs = list(self._queue)
      self._queue.clear()
      for zygote in self._zygotes:
        runs += zygote.busy.values()
        zygote.process.kill()
    for thread in self._threads:
      thread.join()
    for zygote in self._zygotes:
      zygote.end()
    for run in runs:
      run.future.cancel()

  def _dispatch(self) -> None:
    """Sends queued runs to free slots; the lock is held."""
    skipped: list[_Run] = []
    free = sum(zygote.free() for zygote in self._zygotes)
    while self._queue and free > 0 and not self._closed:
      run = self._queue.popleft()
      fitting = [
        zygote
        for zygote in self._zygotes
        if zygote.free() and run.seed in (None, zygote.seed)
      ]
      if not fitting:
        skipped.append(run)
        if len(skipped) > 64:
          break
        continue
      self._start(min(fitting, key=lambda z: len(z.busy)), run)
      free -= 1
    self._queue.extendleft(reversed(skipped))

  def _start(self, zygote: _Zygote, run: _Run) -> None:
    self._serial += 1
    name = str(self._serial)
    run.tries += 1
    run.deadline = time.monotonic() + self._timeout_s + GRACE_S
    zygote.busy[name] = run
    request = {
      "id": name,
      "code": run.job.code,
      "inputs": run.job.inputs,
      "entry": run.job.entry,
      "forbidden": run.job.forbidden,
      "timeout_s": self._timeout_s,
      "memory_mb": self._memory_mb,
    }
    zygote.send(json.dumps(request).encode("ascii"))

  def _serve(self, place: int) -> None:
    """Takes one zygote's replies; replaces it when it dies."""
    while True:
      zygote = self._zygotes[place]
      with self._lock:
        if self._closed:
          return
        deadlines = [run.deadline for run in zygote.busy.values()]
      deadline = min(deadlines, default=time.monotonic() + 1.0)
      reply = zygote.read_frame(deadline)
      if reply is not None:
        self._take(zygote, json.loads(reply))
        continue
      alive = zygote.process.poll() is None
      if alive and (not deadlines or time.monotonic() < deadline):
        continue
      self._replace(place, zygote)

  def _take(self, zygote: _Zygote, reply: dict[str, Any]) -> None:
    with self._lock:
      run = zygote.busy.pop(reply["id"])
      self._dispatch()
    run.result = _read_report(run.job, reply)
    self._finish(run)

  def _finish(self, run: _Run) -> None:
    """Decides the job once its last run is in."""
    with self._lock:
      results = [sibling.result for sibling in run.siblings]
      if any(result is None for result in results) or run.future.done():
        return
      verdict = _agree([result for result in results if result is not None])
      self._counts[verdict.status] += 1
    if run.future.set_running_or_notify_cancel():
      run.future.set_result(verdict)

  def _replace(self, place: int, dead: _Zygote) -> None:
    """Puts a new zygote in a dead one's place and re-queues its runs."""
    dead.end()
    with self._lock:
      if self._closed:
        return
      dead.dead = True
      lost = list(dead.busy.values())
    again = [run for run in lost if run.tries < 2]
    fresh = _Zygote(dead.seed, self._seccomp)
    with self._lock:
      self._zygotes[place] = fresh
      if self._closed:
        fresh.end()
        return
      self._queue.extendleft(again)
      self._dispatch()
    for run in lost:
      if run not in again:
        run.result = Result(run.job.id, "error", (), "WorkerDied", 0.0)
        self._finish(run)

  def _prove_layers(self) -> dict[str, Any]:
    """Tries what must fail; raises if a wall that must stand does not."""
    layers = dict(self._zygotes[0].layers) | {"seccomp": self._seccomp}
    for name, code in _PROOFS.items():
      result = self.submit(Job(id=name, code=code, inputs=("",))).result()
      held = result.outputs == ("'denied'",)
      if self._seccomp and not held:
        raise RuntimeError(
          f"executor self-test: a program could {name} ({result.status} "
          f"{result.error}); expected it to be denied. On a system without "
          "seccomp, ask for executor.unsafe=True by name."
        )
      layers[f"denies_{name}"] = held
    with self._lock:
      self._counts.clear()
    return layers


_PROOFS = {
  name: f"""
def f():
  import sys
  os = sys.modules["os"]
  try:
    {attempt}
  except (OSError, ImportError):
    return "denied"
  return "allowed"
"""
  for name, attempt in {
    "read_files": "os.open('/etc/hostname', os.O_RDONLY)",
    "fork": "os.fork()",
    "signal": "os.kill(os.getppid(), 0)",
    "connect": "__import__('_socket').socket()",
  }.items()
}


def _read_report(job: Job, reply: dict[str, Any]) -> Result:
  """Checks a child's report; a malformed one is an error."""
  seconds = float(reply["seconds"])
  if "report" not in reply:
    return Result(job.id, reply["status"], (), reply["error"], seconds)
  forged = Result(job.id, "error", (), "MalformedReport", seconds)
  try:
    report = json.loads(reply["report"])
    status, error = report["status"], report["error"]
    outputs = tuple(report["outputs"])
  except (ValueError, KeyError, TypeError, RecursionError):
    return forged
  texts = all(output is None or isinstance(output, str) for output in outputs)
  if status not in STATUSES or not texts:
    return forged
  if not (error is None or isinstance(error, str)):
    return forged
  whole = len(outputs) == len(job.inputs) and None not in outputs
  if status == "ok" and not whole:
    return forged
  return Result(job.id, status, outputs, error, seconds)


def _agree(results: Sequence[Result]) -> Result:
  """One verdict from independent runs; typed values must agree."""
  first = results[0]
  for other in results[1:]:
    if other.status != first.status:
      for result in (first, other):
        if result.status in ("timeout", "blocked", "error"):
          return result
    if first.status == "ok" and not _same_values(first, other):
      return dataclasses.replace(
        first, status="nondeterministic", outputs=(), error="runs differ"
      )
  return first


def _same_values(first: Result, second: Result) -> bool:
  for one, other in zip(first.outputs, second.outputs, strict=True):
    if one == other:
      continue
    try:
      if literals.typed_key(one or "") != literals.typed_key(other or ""):
        return False
    except literals.ParseError:
      return False
  return True
