"""Which of many weights the sampler holds at the moment.

A sampling client keeps the weights of its creation while training goes on, so
there are more snapshots than a sampler can hold. Adapters share the base and
live in the sampler's stack; whole models replace each other.
"""

import dataclasses

import jax

from azr_jax.models import adapters
from azr_jax.models.adapters import Lora
from azr_jax.rollout.adapter_ref import BASE, AdapterRef
from azr_jax.rollout.adapter_table import AdapterTable
from azr_jax.rollout.stream import Stream
from azr_jax.types import Params, Shardings


@dataclasses.dataclass(frozen=True, eq=False)
class Snapshot:
  """Weights that do not change any more.

  Attributes:
    params: an adapter, float32, stacked; or a whole model without adapters as
      sampling reads it. They are in the host's memory, except for the base.
    lora: the adapter's shape; None if these are all parameters.
  """

  params: Params
  lora: Lora | None


class Residents:
  """Loads snapshots when requests need them, and unloads idle ones.

  Only the thread that samples may call it.
  """

  def __init__(self, stream: Stream, table: AdapterTable, shardings: Shardings):
    """Starts with the weights of the stream.

    Args:
      stream: a stream that nothing samples on yet.
      table: the adapters of its weights.
      shardings: the shardings of its weights.
    """
    self._shardings = adapters.base_of(shardings)
    params = stream.weights.params
    assert params is not None
    self.base = Snapshot(adapters.base_of(params), None)
    self._stream, self._table = stream, table
    self._whole = self.base
    # The loaded adapters, the least recently used first.
    self._loaded: dict[Snapshot, AdapterRef] = {}
    self._users: dict[Snapshot, int] = {}
    # Nobody will ask for these again.
    self._forgotten: set[Snapshot] = set()

  def acquire(self, snapshot: Snapshot) -> AdapterRef | None:
    """Returns where to sample a snapshot; None if it must wait for others.

    Raises:
      ValueError: it is an adapter that does not fit into the stack.
    """
    self._drop_forgotten()
    if snapshot.lora is None:
      ref = self._acquire_whole(snapshot)
    else:
      ref = self._acquire_adapter(snapshot, snapshot.lora)
    if ref is not None:
      self._users[snapshot] = self._users.get(snapshot, 0) + 1
    return ref

  def _acquire_whole(self, snapshot: Snapshot) -> AdapterRef | None:
    if self._whole is not snapshot:
      if self._users:
        return None
      # Adapters belong to the weights that they were loaded with.
      for ref in self._loaded.values():
        self._table.remove(ref)
      self._loaded.clear()
      weights = self._stream.weights
      assert weights.params is not None
      stack = adapters.adapters_of(weights.params)
      self._stream.suspend()
      whole = snapshot.params
      if snapshot is not self.base:
        whole = jax.device_put(whole, self._shardings)
      params = adapters.join(whole, stack)
      weights.restore(params, weights.version + 1)
      self._whole = snapshot
    return BASE

  def _acquire_adapter(
    self, snapshot: Snapshot, lora: Lora
  ) -> AdapterRef | None:
    if self._acquire_whole(self.base) is None:
      return None
    ref = self._loaded.pop(snapshot, None)
    if ref is None:
      if not self._table.num_free:
        idle = next((s for s in self._loaded if s not in self._users), None)
        if idle is None:
          return None
        self._table.remove(self._loaded.pop(idle))
      ref = self._table.add(snapshot.params, lora)
    self._loaded[snapshot] = ref
    return ref

  def release(self, snapshot: Snapshot) -> None:
    """Ends a use of a snapshot that `acquire` returned a place for."""
    self._users[snapshot] -= 1
    if not self._users[snapshot]:
      del self._users[snapshot]

  def forget(self, snapshot: Snapshot) -> None:
    """Frees the place of a snapshot that no new request will use.

    If one in flight uses it, a later call frees it.
    """
    self._forgotten.add(snapshot)
    self._drop_forgotten()

  def _drop_forgotten(self) -> None:
    """Frees the places of forgotten snapshots that nobody uses any more."""
    for snapshot in self._forgotten - self._users.keys():
      self._forgotten.remove(snapshot)
      if snapshot is self._whole:
        self._acquire_whole(self.base)
      if snapshot in self._loaded:
        self._table.remove(self._loaded.pop(snapshot))
