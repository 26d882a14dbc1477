"""How the processes of a run join, wait for each other and exchange data.

On a pod, every host runs one process of the same program, with the same data
and random draws. Device programs span all hosts, so every host holds the same
samples. Hosts differ in two ways: each process grades its own share of the
completions, and only the primary process writes files.
"""

import dataclasses
import hashlib
import json
import re
import socket
from collections.abc import Callable, Sequence
from typing import TypeVar

import jax
import numpy as np
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils
from jaxtyping import Shaped

T = TypeVar("T")
# Messages are exchanged in chunks of this fixed size, so that one compiled
# program serves messages of any length.
MESSAGE_BYTES = 1 << 16
# A message starts with its length.
_HEADER_BYTES = 8
# How long exiting processes wait for the others to exit.
_SHUTDOWN_TIMEOUT_S = 30


def join(
  coordinator_address: str | None,
  num_processes: int | None,
  process_id: int | None,
) -> None:
  """Joins the other processes; call it before JAX initializes its devices.

  Each argument may be None where JAX detects it: on Cloud TPU, SLURM, Open MPI
  and Kubernetes.

  Args:
    coordinator_address: HOST:PORT of process 0.
    num_processes: number of processes.
    process_id: index of this process, from 0.

  Raises:
    ValueError: JAX cannot detect an argument that is None, or the address has
      no port.
    RuntimeError: the other processes did not join in time.
  """
  if coordinator_address and not re.search(r":\d+$", coordinator_address):
    raise ValueError(
      f"coordinator_address={coordinator_address!r}: expected HOST:PORT"
    )
  try:
    jax.distributed.initialize(
      coordinator_address,
      num_processes,
      process_id,
      shutdown_timeout_seconds=_SHUTDOWN_TIMEOUT_S,
    )
  except ValueError as error:
    raise ValueError(
      "the other processes are unknown: expected --coordinator_address, "
      "--num_processes and --process_id, or a cluster where JAX detects them "
      f"({error})"
    ) from error


@dataclasses.dataclass
class Hosts:
  """This process among the processes of its run.

  Every process must call the methods that exchange or wait in the same order. A
  single process never waits.

  Attributes:
    timeout_s: seconds to wait for the other processes.
    index: index of this process, from 0.
    count: number of processes.
    names: the host name of each process.
  """

  timeout_s: float

  def __post_init__(self) -> None:
    self.index = jax.process_index()
    self.count = jax.process_count()
    self.names = (socket.gethostname(),)
    self.names = tuple(
      name.decode() for name in self.all_gather("start", self.names[0].encode())
    )

  @property
  def is_primary(self) -> bool:
    """Whether this process writes files and reports."""
    return self.index == 0

  def barrier(self, what: str) -> None:
    """Waits until every process has reached the same point.

    Args:
      what: name of the point, for the error.

    Raises:
      TimeoutError: a process did not arrive in time; the message names it.
      RuntimeError: the connection broke, for example because a process died.
    """
    if self.count == 1:
      return
    barrier = ocp.multihost.get_barrier_sync_fn()
    try:
      barrier(
        key=re.sub(r"\W", "_", what), timeout_ms=int(1000 * self.timeout_s)
      )
    except jax.errors.JaxRuntimeError as error:
      late = self._late(str(error))
      if not late:
        raise RuntimeError(
          f"{self.name(self.index)} lost the other processes at {what!r}: "
          f"see their logs\n{error}"
        ) from error
      raise TimeoutError(
        f"{late} did not reach {what!r} in "
        f"{self.timeout_s:g} s (hosts.timeout_s); {self.name(self.index)} "
        f"waited: see that host's log\n{error}"
      ) from error

  def name(self, index: int) -> str:
    """Returns a process's index and host, for messages."""
    host = self.names[index] if index < len(self.names) else "unknown host"
    return f"process {index} ({host})"

  def _late(self, error: str) -> str:
    """Returns the names of the processes that a barrier's error lists."""
    _, _, after = error.partition("timed out task names:")
    numbers = re.match(r"[\s\d,]*", after)
    late = re.findall(r"\d+", numbers.group()) if numbers else []
    return ", ".join(self.name(int(index)) for index in late)

  def all_gather(self, what: str, mine: bytes) -> list[bytes]:
    """Exchanges messages between all processes.

    Args:
      what: name of the exchange, for the error.
      mine: this process's message, of any length.

    Returns:
      The messages of all processes, by index.

    Raises:
      TimeoutError: a process did not arrive in time; the message names it.
      RuntimeError: the connection broke, for example because a process died.
    """
    if self.count == 1:
      return [mine]
    rest = len(mine).to_bytes(_HEADER_BYTES, "little") + mine
    received = np.empty((self.count, 0), np.uint8)
    lengths = [0] * self.count
    while received.shape[1] < _HEADER_BYTES + max(lengths):
      # Device collectives have no timeout, so the hosts meet first.
      self.barrier(what)
      chunk = np.zeros(MESSAGE_BYTES, np.uint8)
      part, rest = rest[:MESSAGE_BYTES], rest[MESSAGE_BYTES:]
      chunk[: len(part)] = np.frombuffer(part, np.uint8)
      chunks = np.asarray(multihost_utils.process_allgather(chunk))
      received = np.concatenate([received, chunks], axis=1)
      lengths = [
        int.from_bytes(row[:_HEADER_BYTES].tobytes(), "little")
        for row in received
      ]
    return [
      row[_HEADER_BYTES : _HEADER_BYTES + length].tobytes()
      for row, length in zip(received, lengths, strict=True)
    ]

  def any_of_each(self, what: str, mine: Sequence[bool]) -> list[bool]:
    """Returns, on every process, whether each flag is true on any process."""
    rows = self.all_gather(what, bytes(map(bool, mine)))
    return [any(flags) for flags in zip(*rows, strict=True)]

  def raise_on_all(self, what: str, error: Exception | None) -> None:
    """Raises on every process if any of them has an error.

    Args:
      what: what failed, for the message.
      error: this process's error, which it raises itself; None if it has none.

    Raises:
      RuntimeError: another process has an error; the message shows it.
    """
    texts = self.all_gather(what, repr(error).encode() if error else b"")
    if error is not None:
      raise error
    for index, text in enumerate(texts):
      if text:
        raise RuntimeError(
          f"{what}: {self.name(index)} failed: {text.decode()}"
        )

  def primary_first(self, what: str, make: Callable[[], T]) -> T:
    """Calls `make` on the primary process first, then on the others.

    Use it for data that the first call writes to a shared disk and later calls
    read from there.

    Args:
      what: name of the data, for the error.
      make: creates or reads the data.

    Returns:
      The result of `make` on this process.

    Raises:
      RuntimeError: `make` failed on another process.
    """
    made: list[T] = []
    for turn_of_primary in (True, False):
      error = None
      if self.is_primary == turn_of_primary:
        try:
          made.append(make())
        except Exception as caught:  # noqa: BLE001 - raised on every host.
          error = caught
      self.raise_on_all(what, error)
    return made[0]

  def from_primary(self, what: str, make: Callable[[], str]) -> str:
    """Returns the primary process's result of `make` on every process.

    Args:
      what: name of the text, for the error.
      make: called by the primary process only.

    Raises:
      RuntimeError: `make` failed on the primary process, and this is another.
    """
    text, error = "", None
    if self.is_primary:
      try:
        text = make()
      except Exception as caught:  # noqa: BLE001 - raised on every host.
        error = caught
    self.raise_on_all(what, error)
    return self.all_gather(what, text.encode())[0].decode()

  def assert_equal_arrays(
    self, what: str, *arrays: Shaped[np.ndarray, "..."]
  ) -> None:
    """Checks that every process holds the same arrays.

    Processes sample with the same seeds, so a difference is a fault: another
    version of the code or of a file, or a draw that depends on the process.

    Args:
      what: name of the arrays, for the error.
      *arrays: the arrays; compared by shape, dtype and bytes.

    Raises:
      RuntimeError: the arrays differ; the message names the processes.
    """
    if self.count == 1:
      return
    digest = hashlib.blake2b(digest_size=16)
    for array in arrays:
      digest.update(repr((array.shape, array.dtype)).encode())
      digest.update(np.ascontiguousarray(array).data)
    digests = self.all_gather(what, digest.digest())
    majority = max(digests, key=digests.count)
    differing = [i for i, other in enumerate(digests) if other != majority]
    if differing:
      names = ", ".join(map(self.name, differing))
      raise RuntimeError(
        f"{what}: {names} and the other processes differ; expected the same "
        "code, config and files on all hosts"
      )

  def assert_equal(self, what: str, value: object) -> None:
    """Checks that every process holds the same value.

    Args:
      what: name of the value, for the error.
      value: any JSON value.

    Raises:
      RuntimeError: the values differ; the message names the processes.
    """
    text = json.dumps(value, sort_keys=True)
    self.assert_equal_arrays(what, np.frombuffer(text.encode(), np.uint8))
