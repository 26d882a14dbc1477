"""Runs the hostile programs in one pool and prints their outcomes as JSON.

  python -m tests.executor.hostile_run [--unsafe] [--disable=landlock,limits]

For each program, `cases` has its verdict, the files that it touched, `held`,
which is whether the verdict is one of those expected, and `sentinel`, which is
whether an honest program that ran next, in all zygotes, gave the right value.
`got_through` names the programs for which one of the two is false. The script
needs only the standard library and the executor, so it runs on a bare Python.
"""

import argparse
import contextlib
import ctypes
import functools
import json
import os
import pathlib
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable

from azr_jax.executor import Executor, Job, Result
from tests.executor.hostile_case import Case
from tests.executor.hostile_programs import CASES

TIMEOUT_S = 0.4
# Touching a page takes microseconds, so programs reach this in time.
MEMORY_MB = 128
LIBRARIES_MB = 800  # The libraries themselves take 600.
WAIT_S = 60.0
LATE_S = 2.0  # CPU time that a program may take beyond the limit of all calls.
SETTLE_S = 3.0  # Processes may take this long to end after the pool is closed.
PREFIX = "azr-hostile-"
KEPT = "kept"
SENTINEL = "def f(x):\n  return [x, len('abc'), sorted({3: 1, 2: 2})]"
_SUBREAPER = 36
_SHOWN_CHARS = 200


class Surroundings:
  """The trusted side: the facts that programs get, and files to attack."""

  def __init__(self) -> None:
    self.watch = pathlib.Path(tempfile.mkdtemp(prefix=PREFIX))
    self._tcp = socket.create_server(("127.0.0.1", 0))
    self._udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    port = self._tcp.getsockname()[1]
    self._udp.bind(("127.0.0.1", port))
    self._abstract = socket.socket(socket.AF_UNIX)
    self._abstract.bind(f"\0{self.watch.name}")
    self._abstract.listen(8)
    self.secret = f"azr-secret-{secrets.token_hex(16)}"
    os.environ["AZR_SECRET"] = self.secret
    self._words = {
      "WATCH": str(self.watch),
      "PREFIX": self.watch.name,
      "TRAINER": str(os.getpid()),
      "PORT": str(port),
      "HOST": os.uname().nodename,
      "SECRET": self.secret,
    }
    self._fresh()

  def fill_in(self, text: str, copy: int = 0) -> str:
    """Replaces the words that `hostile_case.py` lists."""
    for word, value in self._words.items():
      text = text.replace(word, value)
    return text.replace("COPY", str(copy))

  def touched(self) -> list[str]:
    """Returns paths that differ from before, and restores them."""
    folders = ("/", "/tmp", "/dev/shm", os.getcwd())
    created = [
      path
      for folder in sorted(set(folders))
      for path in pathlib.Path(folder).glob(f"{self.watch.name}-*")
    ]
    for path in created:
      path.unlink()
    now = self._look()
    differing = [str(path) for path in created]
    differing += [
      path for path in now | self._before if not self._same(path, now)
    ]
    if differing:
      self._fresh()
    return sorted(differing)

  def close(self) -> None:
    """Removes the folder and closes the sockets."""
    for listening in (self._tcp, self._udp, self._abstract):
      listening.close()
    shutil.rmtree(self.watch)

  def _fresh(self) -> None:
    for path in self.watch.iterdir():
      shutil.rmtree(path) if path.is_dir() else path.unlink()
    self.watch.chmod(0o777)
    (self.watch / KEPT).write_text(KEPT)
    (self.watch / KEPT).chmod(0o666)
    (self.watch / "folder").mkdir(0o777)
    self._before = self._look()

  def _look(self) -> dict[str, tuple]:
    """Returns mode, time and text of everything in the folder, by path."""
    states = {}
    for path in self.watch.iterdir():
      state = path.lstat()
      plain = path.is_file() and not path.is_symlink()
      text = path.read_text() if plain else ""
      states[str(path)] = (state.st_mode, state.st_mtime_ns, text)
    return states

  def _same(self, path: str, now: dict[str, tuple]) -> bool:
    return now.get(path) == self._before.get(path)


class Run:
  """Runs cases in a pool, which is replaced only if it is harmed.

  Attributes:
    pool: the executor.
    surroundings: the trusted side.
    outcomes: verdict and checks by the case's name.
    files: all paths that cases touched.
  """

  def __init__(
    self,
    start: Callable[[], Executor],
    surroundings: Surroundings,
    libraries: tuple[str, ...],
  ):
    self._start = start
    self._libraries = libraries
    self.pool = start()
    self.surroundings = surroundings
    self.outcomes: dict[str, dict[str, object]] = {}
    self.files: list[str] = []
    self._sentinels = 0

  def together(self, names: list[str]) -> None:
    """Runs cases at the same time, then the sentinel."""
    for name in names:
      self._before(CASES[name])
    futures = {
      name: [self.pool.submit(job) for job in self._jobs(CASES[name])]
      for name in names
    }
    results = {
      name: [future.result(WAIT_S) for future in waiting]
      for name, waiting in futures.items()
    }
    files, sentinel = self.surroundings.touched(), self._sentinel()
    self.files += files
    for name in names:
      self.outcomes[name] = self._outcome(CASES[name], results[name], files)
      self.outcomes[name]["sentinel"] = sentinel
    if not sentinel:
      self.pool.close()
      self.pool = self._start()

  def _before(self, case: Case) -> None:
    if case.before:
      code = self.surroundings.fill_in(case.before)
      inputs = (repr(self.surroundings.secret),)
      job = Job(
        self.surroundings.secret,
        code,
        inputs,
        runs=3,
        libraries=self._libraries,
      )
      self.pool.submit(job).result(WAIT_S)  # Any verdict will do.

  def _jobs(self, case: Case) -> list[Job]:
    fill_in = self.surroundings.fill_in
    return [
      Job(
        self.surroundings.secret,
        fill_in(case.code),
        tuple(fill_in(text, copy) for text in case.inputs),
        runs=case.runs,
        forbidden=case.forbidden,
        per_call=case.shares,
        libraries=self._libraries,
      )
      for copy in range(case.copies)
    ]

  def _outcome(
    self, case: Case, results: list[Result], files: list[str]
  ) -> dict[str, object]:
    """Returns the outcome of the first copy that did not hold, or of any."""

    def held(result: Result) -> bool:
      expected = case.held(result.status, result.error, result.outputs)
      return expected and result.cpu_s < _max_s(case)

    worst = min(results, key=held)
    shown = [text and text[:_SHOWN_CHARS] for text in worst.outputs[:9]]
    return {
      "status": worst.status,
      "error": worst.error,
      "outputs": shown,
      "files": files,
      "held": held(worst) and not files,
    }

  def _sentinel(self) -> bool:
    """Returns whether a program that did not run before gives its value."""
    self._sentinels += 1
    number = self._sentinels
    job = Job(
      "sentinel",
      SENTINEL,
      (str(number),),
      runs=3,
      libraries=self._libraries,
    )
    outputs = self.pool.submit(job).result(WAIT_S).outputs
    return outputs == (f"[{number}, 3, [2, 3]]",)


def _max_s(case: Case) -> float:
  """Returns the CPU time after which a case's verdict is too late."""
  return TIMEOUT_S * max(1, len(case.inputs)) + LATE_S


def batches(names: list[str]) -> list[list[str]]:
  """Returns one batch per case, and a last batch of the cases that time out."""
  slow = [name for name in names if "timeout" in CASES[name].statuses]
  return [[name] for name in names if name not in slow] + [slow]


def descendants() -> dict[int, str]:
  """Returns command lines of living descendants, by process id."""
  parents: dict[int, int] = {}
  for entry in pathlib.Path("/proc").glob("[0-9]*/stat"):
    try:
      state, parent = entry.read_text().rpartition(")")[2].split()[:2]
    except OSError:
      continue
    if state != "Z":
      parents[int(entry.parent.name)] = int(parent)
  family = {os.getpid()}
  while new := {p for p in parents if parents[p] in family} - family:
    family |= new
  return {pid: _command_line(pid) for pid in family - {os.getpid()}}


def _command_line(pid: int) -> str:
  try:
    return pathlib.Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
  except OSError:
    return "?"


def left_processes(settle_s: float) -> list[str]:
  """Returns command lines of processes that do not end, and kills them."""
  end = time.monotonic() + settle_s
  while descendants() and time.monotonic() < end:
    time.sleep(0.02)
  left = descendants()
  for pid in left:
    with contextlib.suppress(ProcessLookupError):
      os.kill(pid, signal.SIGKILL)
  return sorted(left.values())


def main() -> None:
  """Reads the flags, runs the cases, prints one JSON object."""
  parser = argparse.ArgumentParser(
    prog="tests.executor.hostile_run",
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  parser.add_argument("--unsafe", action="store_true", help="without seccomp")
  parser.add_argument("--disable", default="", help="other layers to leave out")
  parser.add_argument("--only", default="", help="names of cases")
  parser.add_argument(
    "--libraries", default="", help="libraries that every zygote has loaded"
  )
  parser.add_argument(
    "--settle_s",
    type=float,
    default=SETTLE_S,
    help="seconds that processes may take to end",
  )
  flags = parser.parse_args()
  names = [name for name in flags.only.split(",") if name] or list(CASES)
  # A process that escapes becomes a child of this one, so it is seen.
  ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
  with contextlib.closing(Surroundings()) as surroundings:
    report = report_on(
      names,
      flags.unsafe,
      flags.disable,
      flags.libraries,
      flags.settle_s,
      surroundings,
    )
  sys.stdout.write(json.dumps(report, indent=1) + "\n")


def report_on(
  names: list[str],
  unsafe: bool,
  disabled: str,
  libraries: str,
  settle_s: float,
  surroundings: Surroundings,
) -> dict[str, object]:
  """Runs cases in a sandbox without some layers; returns the report."""
  start = time.monotonic()
  left_out = [name for name in disabled.split(",") if name]
  loaded = tuple(name for name in libraries.split(",") if name)
  memory_mb = LIBRARIES_MB if loaded else MEMORY_MB
  start_pool = functools.partial(
    Executor, 1, TIMEOUT_S, memory_mb, unsafe=unsafe, disabled_layers=left_out
  )
  run = Run(start_pool, surroundings, loaded)
  for batch in batches(names):
    run.together(batch)
  layers = run.pool.layers()
  run.pool.close()
  return {
    "layers": layers,
    "left_processes": left_processes(settle_s),
    "left_files": run.files + surroundings.touched(),
    "got_through": [
      name
      for name, outcome in run.outcomes.items()
      if not (outcome["held"] and outcome["sentinel"])
    ],
    "seconds": time.monotonic() - start,
    "cases": run.outcomes,
  }


if __name__ == "__main__":
  main()
