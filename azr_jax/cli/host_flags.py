"""Flags that join a command to the other processes of its run."""

from collections.abc import Callable

from absl import flags

from azr_jax.cli import compilation_cache
from azr_jax.parallel import hosts


def define() -> Callable[[], None]:
  """Defines the flags.

  Returns:
    A function that joins the other processes if the flags ask for it, and then
    enables the compilation cache.
  """
  distributed = flags.DEFINE_bool(
    "distributed",
    False,
    "Join the other processes of the run. On Cloud TPU, SLURM, Open MPI and "
    "Kubernetes, JAX finds them; elsewhere, set the next three flags.",
  )
  coordinator_address = flags.DEFINE_string(
    "coordinator_address", None, "HOST:PORT of process 0."
  )
  num_processes = flags.DEFINE_integer(
    "num_processes", None, "Number of processes in the run.", lower_bound=1
  )
  process_id = flags.DEFINE_integer(
    "process_id", None, "Index of this process, from 0.", lower_bound=0
  )

  def join() -> None:
    address = coordinator_address.value, num_processes.value, process_id.value
    if distributed.value or any(value is not None for value in address):
      hosts.join(*address)
    compilation_cache.enable()

  return join
