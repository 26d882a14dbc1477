"""Experts are read from the pages of sequences, in calls of fixed shape."""

import types
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rollout_model import SETTINGS
from typed import present

from azr_jax import types as azr_types
from azr_jax.rollout.build import shapes_of
from azr_jax.rollout.expert_reader import ExpertReader
from azr_jax.rollout.page_pool import CachedTokens
from azr_jax.rollout.sequence import Request, SequenceState

PAGE = SETTINGS.page_size


class Pages:
  """Two devices whose pages hold their own number at each token.

  Attributes:
    tables: the tables of all calls.
  """

  def __init__(self):
    self.tables: list[np.ndarray] = []
    self.shapes = shapes_of(SETTINGS, devices=2)

  def read_experts(self, pool, table):
    """Returns the number of each token's page [rows, entries, 1, 1, 1]."""
    self.tables.append(table)
    by_token = np.repeat(table, PAGE, axis=1).astype(np.uint8)
    return jnp.asarray(by_token[..., None, None, None])


def reader_of(pages):
  cache = types.SimpleNamespace(pool=None)
  return ExpertReader(*cast(Any, (pages, cache)))


def sequence(device, page):
  """Returns a sequence with two tokens in a page."""
  request = Request(
    0, azr_types.Prompt("", (1,)), 1, 8, np.zeros(2, np.uint32), 0
  )
  return SequenceState(request, 0, cached=CachedTokens(device, [page], 2))


@pytest.mark.parametrize("hosts, rows, calls", [(1, 4, 1), (2, 1, 3)])
def test_a_pod_reads_one_row_of_each_device_per_call(
  hosts, rows, calls, monkeypatch
):
  """There, each device gets the experts of all rows."""
  monkeypatch.setattr(jax, "process_count", lambda: hosts)
  pages = Pages()
  reader = reader_of(pages)
  sequences = [sequence(0, 3), sequence(1, 4), sequence(1, 5), sequence(1, 6)]
  for one in sequences:
    reader.note(one)
  reader.flush()
  assert [table.shape for table in pages.tables] == [(2 * rows, 1)] * calls
  found = [present(one.experts.take())[:, 0, 0].tolist() for one in sequences]
  assert found == [[3, 3], [4, 4], [5, 5], [6, 6]]


def test_experts_that_were_read_leave_the_devices():
  """The next call moves them to the host, before anyone takes them."""
  reader = reader_of(Pages())
  first, second = sequences = sequence(0, 3), sequence(0, 4)
  for one in sequences:
    reader.note(one)
    reader.flush()
  calls = [present(one.experts._readings[0].result) for one in sequences]
  # On a CPU, a copy on the host keeps the device's array alive.
  is_on_host = [isinstance(call._array, np.ndarray) for call in calls]
  assert is_on_host == [True, False]
  assert present(first.experts.take()).ravel().tolist() == [3, 3]
  assert present(second.experts.take()).ravel().tolist() == [4, 4]
