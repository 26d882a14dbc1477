"""Runs a command of azr_jax as several local processes, like on a pod.

  python launch/local_multiprocess.py --processes=2 --devices=4 -- \\
      azr_jax.train --config=configs/azr.py:tiny --workdir=DIR

Each process has `--devices` virtual CPU devices and joins the others through
`jax.distributed`. Every output line starts with the number of its process. When
a process fails, the others get `--grace` seconds to report what they waited
for, and are then killed.
"""

import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time

from absl import flags

from azr_jax.cli import front
from azr_jax.cli.errors import UsageError

PROCESSES = flags.DEFINE_integer(
  "processes", 2, "Number of processes.", lower_bound=1
)
DEVICES = flags.DEFINE_integer(
  "devices", 4, "Virtual CPU devices per process.", lower_bound=1
)
GRACE = flags.DEFINE_float(
  "grace", 60.0, "Seconds from a failure until the other processes are killed."
)
DRY_RUN = flags.DEFINE_bool(
  "dry_run", False, "Print the commands without running them."
)


def main(argv: list[str]) -> None:
  """Starts the processes and waits for them."""
  if len(argv) < 2:
    raise UsageError("expected a module and its flags after --")
  commands = _commands(argv[1], argv[2:])
  device_count = f"--xla_force_host_platform_device_count={DEVICES.value}"
  xla_flags = f"{os.environ.get('XLA_FLAGS', '')} {device_count}".strip()
  variables = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": xla_flags}
  # XLA sizes its thread pool by NPROC. Each device needs a thread, because
  # devices wait for each other in collectives.
  variables["NPROC"] = os.environ.get("NPROC", str(2 * DEVICES.value))
  if DRY_RUN.value:
    settings = " ".join(f"{k}={shlex.quote(v)}" for k, v in variables.items())
    for command in commands:
      print(settings, shlex.join(command))
    return
  sys.exit(_run(commands, os.environ | variables))


def _commands(module: str, arguments: list[str]) -> list[list[str]]:
  """Returns the command of each process, with a free port to meet at."""
  with socket.socket() as probe:
    probe.bind(("localhost", 0))
    port = probe.getsockname()[1]
  return [
    [sys.executable, "-m", module, *arguments]
    + [f"--coordinator_address=localhost:{port}"]
    + [f"--num_processes={PROCESSES.value}", f"--process_id={index}"]
    for index in range(PROCESSES.value)
  ]


def _run(commands: list[list[str]], environment: dict[str, str]) -> int:
  """Runs the commands concurrently.

  Returns:
    The exit status of the first process that failed, or 0.
  """
  running = [
    subprocess.Popen(
      command,
      env=environment,
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      text=True,
      errors="replace",
    )
    for command in commands
  ]
  for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda n, _: [p.send_signal(n) for p in running])
  readers = [
    threading.Thread(target=_show, args=pair) for pair in enumerate(running)
  ]
  for reader in readers:
    reader.start()
  failed = 0
  deadline = float("inf")
  while any(process.poll() is None for process in running):
    codes = [process.poll() for process in running]
    failed = failed or next((code for code in codes if code), 0)
    if failed:
      deadline = min(deadline, time.monotonic() + GRACE.value)
    if time.monotonic() > deadline:
      for process in running:
        process.kill()
    time.sleep(0.1)
  for reader in readers:
    reader.join()
  return failed or next((p.returncode for p in running if p.returncode), 0)


def _show(index: int, process: subprocess.Popen) -> None:
  """Prints a process's output with its number at the start of each line."""
  assert process.stdout is not None
  for line in process.stdout:
    if line.startswith("[Gloo]"):  # printed once per connection
      continue
    print(f"[{index}] {line}", end="", flush=True)


if __name__ == "__main__":
  front.run(__doc__, main, takes_arguments=True)
