"""The program that each of the two real processes in hosts_test.py runs.

python hosts_program.py SCENARIOS PORT PROCESS FOLDER

SCENARIOS is a comma-separated list. The scenarios run in order, and the program
writes a JSON object: scenario -> its result. For the scenario `service`, FOLDER
is the address of a Ray cluster.
"""

import datetime
import json
import pathlib
import sys
import threading
import time

import jax
import numpy as np

from azr_jax.configs import azr
from azr_jax.executor import Executor, Job
from azr_jax.executor.settings import ExecutorSettings
from azr_jax.parallel import hosts as hosts_lib
from azr_jax.parallel.shared_jobs import SharedJobs
from azr_jax.run import checksums, growing_file, session, storage
from azr_jax.run import folder as run_folder
from azr_jax.run.growing_file import GrowingFile
from azr_jax.trainer import build

_DATE = datetime.datetime(2026, 1, 30)


def error_of(function, *arguments):
  try:
    function(*arguments)
  except Exception as error:  # noqa: BLE001 - the test compares its text.
    return f"{type(error).__name__}: {error}"
  return None


def exchange(hosts):
  """Exchanges messages, compares arrays, and raises an error on both."""
  long = hosts_lib.MESSAGE_BYTES + 17
  mine = bytes([65 + hosts.index]) * (long if hosts.index else 3)
  parts = hosts.all_gather("letters", mine)
  error = ValueError("no room") if hosts.index else None
  return {
    "devices": jax.device_count(),
    "names": hosts.names,
    "lengths": [len(part) for part in parts],
    "letters": sorted({chr(byte) for part in parts for byte in part}),
    "nothing": [len(part) for part in hosts.all_gather("nothing", b"")],
    "any": hosts.any_of_each("any", [hosts.index == 1, False]),
    "same": error_of(hosts.assert_equal_arrays, "rows", np.arange(3)),
    "differ": error_of(
      hosts.assert_equal_arrays, "rows", np.arange(3) + hosts.index
    ),
    "shape": error_of(
      hosts.assert_equal_arrays, "rows", np.zeros((2, 1 + hosts.index))
    ),
    "on_all": error_of(hosts.raise_on_all, "lock", error),
  }


def make_data(hosts):
  """Builds data in turn; then `make` fails on one process or the other."""
  folder = pathlib.Path(sys.argv[4])

  def make(failing=None):
    if hosts.index == failing:
      raise OSError("disk is gone")
    path = folder / "data"
    if hosts.is_primary:
      path.write_text("made once")
    return path.read_text()

  return {
    "made": hosts.primary_first("data", make),
    "first": error_of(hosts.primary_first, "data", lambda: make(0)),
    "second": error_of(hosts.primary_first, "data", lambda: make(1)),
    "again": hosts.primary_first("data", make),
  }


def damaged(hosts):
  """Opens a run whose newest checkpoint is damaged, on both processes."""
  folder = pathlib.Path(sys.argv[4]) / "damaged"
  run = session.Run(folder, hosts, threading.Event(), _DATE)
  with run.open_checkpoints(2) as checkpoints:
    step = run.latest_step(checkpoints)
    return {"step": step, "steps": checkpoints.steps()}


def save(hosts):
  """Saves a step on both processes, each of which sums up its own part."""
  folder = pathlib.Path(sys.argv[4]) / "saved"
  run = session.Run(folder, hosts, threading.Event(), _DATE)
  with run.open_checkpoints(2) as checkpoints:
    checkpoints.save(1, {"weights": np.arange(4.0)}, {})
  saved = folder / "checkpoints" / "1"
  files = [path for path in saved.rglob("*") if path.is_file()]
  parts = []
  for path in sorted(saved.glob("checksums_*.txt")):
    lines = path.read_text().splitlines()[1:]
    parts.append([line.split(" ", 2)[2] for line in lines])
  return {
    "parts": parts,
    "files": sorted(str(path.relative_to(saved)) for path in files),
    "damage": checksums.find_damage(saved),
  }


def lock(hosts):
  """Tries to lock four folders.

  One is free, one holds another config, one is not shared, and one is a file.
  """
  config = azr.get_config("tiny").to_dict()
  folder = pathlib.Path(sys.argv[4])

  def taken(config, folder):
    with run_folder.lock(folder, config, hosts):
      return error_of(hosts.barrier, "inside")

  other = config | {"seed": hosts.index}
  (folder / "file").write_text("not a folder")
  return {
    "free": taken(config, folder / "free"),
    "config": error_of(taken, other, folder / "free"),
    "workdir": error_of(taken, config, folder / str(hosts.index)),
    "refused": error_of(taken, config, folder / "file"),
  }


def records(hosts):
  """Appends lines to a file in a store twice and reads them back."""
  path = storage.resolve(f"file://{sys.argv[4]}/store") / "lines.jsonl"
  seen = []
  for line in ("one", "two"):
    with GrowingFile(path, hosts.is_primary) as file:
      seen.append(file.here.read_text() if file.here.exists() else "")
      hosts.barrier(f"all have read before {line}")
      file.append(f"{line}\n")
    hosts.barrier(f"{line} is written")
  with growing_file.on_this_machine(path) as here:
    return {"before": seen, "text": here.read_text(), "here": str(here)}


def verify(hosts):
  """Runs programs, of which each process takes a share."""
  with Executor(workers=1, timeout_s=3.0, memory_mb=512) as executor:
    jobs = SharedJobs(executor, hosts)

    def square(value):
      job = Job("square", "def f(x):\n  return x * x", (str(value),))
      return lambda pool: pool.submit(job)

    def fail(_):
      raise OSError("no space left")

    futures = [jobs.submit(square(value)) for value in range(7)]
    jobs.wait_all()
    here = executor.counters()["programs"]
    metrics = jobs.metrics()
    jobs.wait_all()  # A round without jobs does not wait.
    nothing_more = jobs.metrics()["executor/programs"]
    jobs.submit(square(1))
    jobs.submit(fail)
    return {
      "outputs": [future.result().outputs[0] for future in futures],
      "here": here,
      "programs": metrics["executor/programs"],
      "early": metrics["time/verdict_early_fraction"],
      "wait": metrics["time/verdict_wait"],
      "nothing_more": nothing_more,
      "failure": error_of(jobs.wait_all),
    }


def service(hosts):
  """Shares the actors of a Ray cluster, each of which takes a whole node."""
  settings = ExecutorSettings(
    backend="ray", address=sys.argv[4], workers=2, memory_mb=256
  )
  with build.build_executor(settings, hosts) as executor:
    job = Job("1", "def f(x):\n  return x + 1", (str(hosts.index),))
    outputs = executor.submit(job).result(60).outputs
    actors = executor.processes()
    hosts.barrier("both have their verdicts")
  return {"service": executor.service, "actors": actors, "outputs": outputs}


def late(hosts):
  """Waits for the second process, which does not arrive in time."""
  if hosts.index:
    time.sleep(6)
    return {}
  start = time.monotonic()
  error = error_of(hosts.all_gather, "the verdicts", b"")
  return {"error": error, "seconds": time.monotonic() - start}


SCENARIOS = {
  "exchange": exchange,
  "make_data": make_data,
  "damaged": damaged,
  "save": save,
  "lock": lock,
  "records": records,
  "verify": verify,
  "late": late,
  "service": service,
}

if __name__ == "__main__":
  scenarios, port, process = sys.argv[1:4]
  hosts_lib.join(f"localhost:{port}", 2, int(process))
  these_hosts = hosts_lib.Hosts(timeout_s=2.0 if scenarios == "late" else 60.0)
  results = {
    name: SCENARIOS[name](these_hosts) for name in scenarios.split(",")
  }
  sys.stdout.write(json.dumps(results) + "\n")
