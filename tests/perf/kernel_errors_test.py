"""Kernels that are right have the errors of plain XLA, and others are named."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from azr_jax.models import attention, page_kernel, presets
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.perf import kernel_errors
from azr_jax.perf.commands import kernels

CONFIG = presets.PRESETS["azr-tiny"]
ARRAYS = ["outputs", "query_gradients", "key_gradients", "value_gradients"]
ONE_DEVICE = {"data": 1, "fsdp": 1, "tensor": 1}


@pytest.fixture
def mesh():
  return mesh_lib.make_mesh(ONE_DEVICE, jax.devices()[:1])


def across_sequences(q, k, v, segment_ids):
  """Attends to the sequences before, too."""
  return attention.xla_attention(q, k, v, jnp.ones_like(segment_ids))


def not_a_number(q, k, v, segment_ids):
  return attention.xla_attention(q, k, v, segment_ids) * jnp.nan


@pytest.mark.parametrize(
  ("kernel", "wrong"),
  [
    (attention.xla_attention, []),
    (across_sequences, ARRAYS),
    (not_a_number, ARRAYS),
  ],
)
def test_training_names_the_arrays_that_are_wrong(
  mesh, monkeypatch, kernel, wrong
):
  monkeypatch.setitem(attention.BACKENDS, "xla", lambda *_: kernel)
  segments = kernels._segments(rows=2, row_length=48, sequences=3)
  found = kernel_errors.training(mesh, CONFIG, "bfloat16", segments, repeats=1)
  assert found["kernel"] == "xla" and found["wrong"] == wrong
  for name in ARRAYS:
    assert 1e-4 < found[f"{name}_error_plain"] < 1e-2


@pytest.mark.parametrize("tokens", [1, 4])
def test_decoding_by_live_pages_is_as_exact_as_by_the_loop(mesh, tokens):
  def measure():
    return kernel_errors.decoding(
      mesh,
      CONFIG,
      "bfloat16",
      [0, 1, 128, 300],
      page_size=128,
      tokens=tokens,
      repeats=1,
      interpret=True,
    )

  found = measure()
  assert found["kernel"] == "live pages" and found["wrong"] == []
  assert 1e-4 < found["outputs_error"] < 1e-2
  assert found["bandwidth_fraction"] > 0


def test_decoding_names_a_kernel_that_reads_too_much(mesh, monkeypatch):
  live_pages = page_kernel.live_pages

  def whole_pages(table, length, page_size):
    live = live_pages(table, length, page_size)
    return live.replace(seen=jnp.where(live.seen > 0, page_size, 0))

  monkeypatch.setattr(page_kernel, "live_pages", whole_pages)
  found = kernel_errors.decoding(
    mesh, CONFIG, "float32", [40, 90], 128, repeats=1, interpret=True
  )
  assert found["wrong"] == ["outputs"]


def test_packed_rows_have_sequences_and_padding():
  segments = kernels._segments(rows=50, row_length=64, sequences=4)
  assert segments.shape == (50, 64) and segments.dtype == np.int32
  assert set(np.unique(segments)) == {0, 1, 2, 3, 4}
  for row in segments:
    used = row[row > 0]
    assert (np.diff(used) >= 0).all() and not row[len(used) :].any()
