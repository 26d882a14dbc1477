"""Which snapshots the sampler holds, with places that need no device."""

from typing import cast

import pytest
from typed import stand_in

from azr_jax.models.adapters import Lora
from azr_jax.rollout.adapter_ref import AdapterRef
from azr_jax.rollout.adapter_table import AdapterTable
from azr_jax.rollout.stream import Stream
from azr_jax.rollout.weights import Weights
from azr_jax.verbs.residents import Residents, Snapshot


class Table:
  """Places for two adapters."""

  def __init__(self):
    self.free, self.count = [1, 2], 0

  @property
  def num_free(self):
    return len(self.free)

  def add(self, params, lora):
    del params, lora
    self.count += 1
    return AdapterRef(self.free.pop(0), self.count)

  def remove(self, ref):
    self.free.append(ref.index)


@pytest.fixture(name="table")
def make_table():
  return Table()


@pytest.fixture(name="residents")
def make_residents(table):
  stream = stand_in(Stream, weights=Weights({}), suspend=lambda: None)
  return Residents(stream, cast(AdapterTable, table), {})


def adapter():
  return Snapshot({}, Lora(2, 4.0))


def test_a_forgotten_snapshot_leaves_after_its_last_use(residents, table):
  used, idle, third = adapter(), adapter(), adapter()
  residents.acquire(used)
  residents.acquire(idle)
  residents.release(idle)
  residents.forget(idle)
  residents.forget(used)
  assert table.num_free == 1  # A request in flight still samples the other.
  residents.release(used)
  residents.acquire(third)
  assert table.num_free == 1 and {*residents._loaded} == {third}


def test_whole_models_wait_for_adapters_and_leave_when_forgotten(
  residents, table
):
  whole, one = Snapshot({}, None), adapter()
  residents.acquire(one)
  assert residents.acquire(whole) is None
  residents.release(one)
  assert residents.acquire(whole) is not None
  assert table.num_free == 2  # Adapters belong to the base.
  assert residents.acquire(residents.base) is None
  residents.forget(whole)
  residents.release(whole)
  assert residents.acquire(residents.base) is not None
  assert residents._whole is residents.base
