"""Starts a Ray cluster of CPU machines that verify programs for other runs.

  python launch/ray_executors.py up --hosts=a,b,c [--dry_run]
  python -m azr_jax.train ... --config.executor.backend=ray \\
      --config.executor.address=a:6379
  python launch/ray_executors.py down --hosts=a,b,c

The machines are reached over ssh. Each needs this package with the extra `ray`
in the virtual environment `--environment`. The first machine is Ray's head.
`up` prints the command that joins the run's machine to the cluster without
offering its cores. `status` prints the cluster's resources.
"""

import concurrent.futures
import shlex
import subprocess
import sys

from absl import flags

from azr_jax.cli import front
from azr_jax.cli.errors import UsageError

HOSTS = flags.DEFINE_list(
  "hosts",
  None,
  "ssh names of the machines. The first is the head.",
  required=True,
)
ENVIRONMENT = flags.DEFINE_string(
  "environment", "~/azr_jax_environment", "Virtual environment on the machines."
)
PORT = flags.DEFINE_integer("port", 6379, "Port of the head.")
CPUS = flags.DEFINE_integer(
  "cpus", 0, "Cores per machine for programs; 0 uses all.", lower_bound=0
)
DRY_RUN = flags.DEFINE_bool(
  "dry_run", False, "Print the commands without running them."
)


def main(argv: list[str]) -> None:
  """Runs the command that the first argument names."""
  commands = {"up": up, "down": down, "status": status}
  if len(argv) != 2 or argv[1] not in commands:
    raise UsageError(f"expected one of {', '.join(commands)}")
  sys.exit(commands[argv[1]]())


def up() -> int:
  """Starts the head, then all other machines concurrently."""
  head, *others = HOSTS.value
  cpus = f" --num-cpus={CPUS.value}" if CPUS.value else ""
  # The object store is small, because jobs and verdicts are.
  options = f"--disable-usage-stats --object-store-memory=100000000{cpus}"
  code = _on(head, f"start --head --port={PORT.value} {options}")
  if code:
    return code
  address = f"{head.rpartition('@')[2]}:{PORT.value}"
  code = _on_all(others, f"start --address={address} {options}")
  if not code:
    print(
      "on the machine of the run:\n"
      f"  ray start --address={address} --num-cpus=0\n"
      f"  --config.executor.backend=ray --config.executor.address={address}",
      flush=True,
    )
  return code


def down() -> int:
  """Stops Ray on all machines; runs that use it fail."""
  return _on_all(HOSTS.value, "stop")


def status() -> int:
  """Prints the cluster's resources."""
  return _on(HOSTS.value[0], f"status --address=localhost:{PORT.value}")


def _on(host: str, command: str) -> int:
  """Runs a Ray command on a machine and returns its exit status."""
  remote = f"{ENVIRONMENT.value}/bin/ray {command}"
  # After `--`, ssh does not take a host name for an option.
  shell = ["ssh", "-o", "BatchMode=yes", "--", host, remote]
  print(shlex.join(shell), flush=True)
  if DRY_RUN.value:
    return 0
  code = subprocess.run(shell, check=False).returncode
  if code:
    print(f"{host}: failed with {code}", file=sys.stderr, flush=True)
  return code


def _on_all(hosts: list[str], command: str) -> int:
  """Runs a Ray command on machines. Returns a failed exit status, or 0."""
  with concurrent.futures.ThreadPoolExecutor(16) as pool:
    codes = list(pool.map(lambda host: _on(host, command), hosts))
  return next((code for code in codes if code), 0)


if __name__ == "__main__":
  front.run(__doc__, main, takes_arguments=True)
