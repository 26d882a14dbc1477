"""The processes of a run: how they join, wait for each other and exchange.

On a pod every host runs one process of the same program, on the same data and
random draws. Device programs span all of them; what they sampled is the same
on each. Two things differ: each grades its own share of the answers, and only
the first writes files.
"""

import dataclasses
import hashlib
import json
import re
import socket
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import numpy as np
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils

Made = TypeVar("Made")
# Hosts exchange messages of this one shape, however much they have to say, so
# that one compiled program serves all.
MESSAGE_BYTES = 1 << 16
_HEADER_BYTES = 8  # The length of all that is to come.
# How long those that are left wait for one that does not come to the end.
_SHUTDOWN_SECONDS = 30


def join(
  coordinator_address: str | None,
  num_processes: int | None,
  process_id: int | None,
) -> None:
  """Joins the other processes; to be called before any device is looked for.

  Args:
    coordinator_address: HOST:PORT of process 0; like the others, None where
      JAX finds it by itself (Cloud TPU, SLURM, Open MPI, Kubernetes).
    num_processes: how many processes there are.
    process_id: which of them this is, from 0.

  Raises:
    ValueError: something is None that JAX does not find, or the address has
      no port.
    RuntimeError: the others do not come.
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
      shutdown_timeout_seconds=_SHUTDOWN_SECONDS,
    )
  except ValueError as error:
    raise ValueError(
      "the other processes are not known: expected --coordinator_address, "
      "--num_processes and --process_id, where no cluster is found that gives "
      f"them ({error})"
    ) from error


@dataclasses.dataclass
class Hosts:
  """This process among those of its run; a single one waits for nobody.

  Every process must call `barrier`, `gather` and what is built on them in the
  same order.

  Attributes:
    timeout_s: seconds that the others are waited for.
  """

  timeout_s: float

  def __post_init__(self) -> None:
    self.index = jax.process_index()
    self.count = jax.process_count()
    self.names = (socket.gethostname(),)
    self.names = tuple(
      name.decode() for name in self.gather("start", self.names[0].encode())
    )

  @property
  def is_primary(self) -> bool:
    """Whether this is the process that writes files and reports."""
    return self.index == 0

  def barrier(self, what: str) -> None:
    """Waits until every process has come to the same point.

    Args:
      what: a name for the point, for the error.

    Raises:
      TimeoutError: a process did not come in time; the message names it.
      RuntimeError: the processes lost touch, for instance because one died.
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
          f"{self.name(self.index)} lost touch with the others at {what!r}: "
          f"look at their logs\n{error}"
        ) from error
      raise TimeoutError(
        f"{late} did not come to {what!r} in "
        f"{self.timeout_s:g} s (hosts.timeout_s); {self.name(self.index)} "
        f"waited: look at the log of that host\n{error}"
      ) from error

  def name(self, index: int) -> str:
    """A process by its number and host."""
    host = self.names[index] if index < len(self.names) else "host not known"
    return f"process {index} ({host})"

  def _late(self, error: str) -> str:
    """Names the processes that a barrier's error says were missing."""
    _, _, after = error.partition("timed out task names:")
    listed = re.match(r"[\s\d,]*", after)
    late = re.findall(r"\d+", listed.group()) if listed else []
    return ", ".join(self.name(int(i)) for i in late)

  def gather(self, what: str, mine: bytes) -> list[bytes]:
    """What every process gave, in their order, to all of them.

    Args:
      what: as for `barrier`.
      mine: any number of bytes.

    Raises:
      TimeoutError: as `barrier`.
    """
    if self.count == 1:
      return [mine]
    rest = len(mine).to_bytes(_HEADER_BYTES, "little") + mine
    received = np.empty((self.count, 0), np.uint8)
    lengths = [0] * self.count
    while received.shape[1] < _HEADER_BYTES + max(lengths):
      # Devices wait for each other without a limit, so hosts meet before.
      self.barrier(what)
      message = np.zeros(MESSAGE_BYTES, np.uint8)
      part, rest = rest[:MESSAGE_BYTES], rest[MESSAGE_BYTES:]
      message[: len(part)] = np.frombuffer(part, np.uint8)
      parts = np.asarray(multihost_utils.process_allgather(message))
      received = np.concatenate([received, parts], axis=1)
      lengths = [
        int.from_bytes(row[:_HEADER_BYTES].tobytes(), "little")
        for row in received
      ]
    return [
      row[_HEADER_BYTES : _HEADER_BYTES + length].tobytes()
      for row, length in zip(received, lengths, strict=True)
    ]

  def any(self, what: str, mine: bool) -> bool:
    """Whether any process says so."""
    return b"yes" in self.gather(what, b"yes" if mine else b"no")

  def raise_on_all(self, what: str, error: Exception | None) -> None:
    """Raises on every process what one of them met with.

    Raises:
      RuntimeError: another process has an error; here it is `error` itself.
    """
    texts = self.gather(what, repr(error).encode() if error else b"")
    if error is not None:
      raise error
    for index, text in enumerate(texts):
      if text:
        raise RuntimeError(
          f"{what}: {self.name(index)} failed: {text.decode()}"
        )

  def primary_first(self, what: str, make: Callable[[], Made]) -> Made:
    """What `make` gives; the first process makes it before the others.

    For what is written to a disk that all of them see, and then found there.

    Raises:
      RuntimeError: it failed on the first, and this is another.
    """
    made, error = None, None
    if self.is_primary:
      try:
        made = make()
      except Exception as caught:  # noqa: BLE001 - every host must hear of it.
        error = caught
    self.raise_on_all(what, error)
    return make() if made is None else made

  def assert_equal_arrays(self, what: str, *arrays: np.ndarray) -> None:
    """Checks that every process holds the same arrays.

    They sample from the same seeds, so anything else is a fault: another
    version of the code or of a file, or a draw that depends on the process.

    Raises:
      RuntimeError: the arrays differ; the message names the processes.
    """
    if self.count == 1:
      return
    digest = hashlib.blake2b(digest_size=16)
    for array in arrays:
      digest.update(repr((array.shape, array.dtype)).encode())
      digest.update(np.ascontiguousarray(array).data)
    digests = self.gather(what, digest.digest())
    most = max(digests, key=digests.count)
    others = [i for i, other in enumerate(digests) if other != most]
    if others:
      raise RuntimeError(
        f"{what}: {', '.join(map(self.name, others))} and the other processes "
        "do not hold the same; expected one version of code, config and files "
        "on all hosts"
      )

  def assert_equal(self, what: str, value: Any) -> None:
    """`assert_equal_arrays` for anything that JSON can hold."""
    text = json.dumps(value, sort_keys=True)
    self.assert_equal_arrays(what, np.frombuffer(text.encode(), np.uint8))
