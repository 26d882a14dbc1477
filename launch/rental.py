"""The life of a slice: request, wait, run a job, delete.

`Rental` tracks what is billed. `watch.py` keeps a job running on it.
"""

import concurrent.futures
import dataclasses
import os
import pathlib
import tempfile
import time
from collections.abc import Mapping

import costs
import gcloud
import source_archive
import tpu_worker
import variables
from sdk import CommandError, Sdk
from tpu_slice import Slice

ROOT = pathlib.Path(__file__).parents[1]
_MAX_CONNECTIONS = 16


@dataclasses.dataclass
class Rental:
  """A slice, and the known state of its request.

  Attributes:
    tpu: the slice.
    sdk: runs the commands.
    poll_s: seconds between checks of the request.
    variables: the environment variables of a job.
    state: the last known state of the request; "" if there is none.
  """

  tpu: Slice
  sdk: Sdk
  poll_s: float
  variables: Mapping[str, str]
  state: str = costs.UNKNOWN

  def refresh_state(self) -> str:
    """Queries the state of the slice's request; "" if there is none."""
    try:
      state = self.sdk.run(gcloud.state(self.tpu), quiet=True)
    except CommandError as error:
      if "NOT_FOUND" not in str(error) and "not found" not in str(error):
        raise
      state = ""
    self.state = state
    return state

  def ensure(self) -> bool:
    """Waits until the slice exists, requesting it if necessary.

    Returns:
      Whether the slice may be new, with nothing installed on it.

    Raises:
      CommandError: a request made by this call has failed.
      CommandError: a request that this command made has failed.
    """
    is_new = was_requested = False
    printed = ""
    while (state := self.refresh_state()) != "ACTIVE":
      if state == "FAILED" and was_requested:
        raise CommandError(f"the request failed: {self._reason()}", True)
      if state in costs.DEAD:
        self.delete()
        state = ""
      if not state:
        # A command that fails may still have made the request.
        self.state = costs.UNKNOWN
        self.sdk.run(gcloud.create(self.tpu))
        is_new = was_requested = True
        self.state = "ACCEPTED"
        if self.sdk.dry_run:
          break
      elif state != printed:
        print(f"{self.tpu.accelerator} in {self.tpu.zone}: {state}", flush=True)
        printed = state
      time.sleep(self.poll_s)
      # A slice that becomes active from now on is new, even if an earlier
      # command requested it.
      is_new = True
    return is_new

  def _reason(self) -> str:
    """Returns Google Cloud's reason why the request failed."""
    try:
      return self.sdk.run(gcloud.failure(self.tpu)) or "no reason is given"
    except CommandError as error:
      return str(error)

  def delete(self) -> None:
    """Deletes the slice and its request."""
    self.sdk.run(gcloud.delete(self.tpu))
    self.state = ""

  def copy(self) -> None:
    """Copies all files that git does not ignore to all workers; installs."""
    with tempfile.TemporaryDirectory() as folder:
      archive = os.path.join(folder, tpu_worker.ARCHIVE)
      if self.sdk.dry_run:
        archive = os.path.join(tempfile.gettempdir(), tpu_worker.ARCHIVE)
        print(source_archive.command(ROOT, archive))
      else:
        source_archive.write(ROOT, archive)
      self.sdk.run(gcloud.copy(self.tpu, [archive], tpu_worker.ARCHIVE))
    self.shell(tpu_worker.INSTALL)

  def shell(
    self, command: str, worker: str = "all", quiet: bool = False
  ) -> str:
    """Runs a shell command on one or all workers; returns their output."""
    printed = self.sdk.run(gcloud.ssh(self.tpu, command, worker), quiet=quiet)
    self.state = "ACTIVE"
    return printed

  def shell_with_variables(self, command: str, worker: str = "all") -> str:
    """Runs a shell command with the job's variables in the environment.

    ssh to several workers shares one input, so each worker gets its own ssh.
    """
    if not self.variables:
      return self.shell(command, worker)
    with concurrent.futures.ThreadPoolExecutor(_MAX_CONNECTIONS) as pool:
      workers = [worker] if worker != "all" else self._workers()
      printed = list(pool.map(lambda w: self._send(command, w), workers))
    self.state = "ACTIVE"
    return "\n".join(printed)

  def _workers(self) -> list[str]:
    """Returns the indices of all workers; in a dry run, only the first."""
    count = self.sdk.run(gcloud.count(self.tpu))
    if self.sdk.dry_run:
      print("# the next one for each worker, 0, 1, ...")
      return ["0"]
    if not count.isdigit():
      raise CommandError(f"the slice has {count!r} machines: expected a number")
    return [str(index) for index in range(int(count))]

  def _send(self, command: str, worker: str) -> str:
    """Runs a command on a worker, passing the variables on stdin."""
    return self.sdk.run(
      gcloud.ssh(self.tpu, variables.READ_VARIABLES + command, worker),
      text=variables.text(self.variables),
      source=variables.source([*self.variables]),
    )
