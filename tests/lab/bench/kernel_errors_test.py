"""Tests that wrong kernels are reported, and correct ones are not."""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from azr_jax.lab.bench import kernel_errors
from azr_jax.lab.bench.commands import kernels
from azr_jax.models import attention, page_kernel, presets
from azr_jax.parallel import mesh as mesh_lib

CONFIG = presets.PRESETS["azr-tiny"]
ARRAYS = ["outputs", "query_gradients", "key_gradients", "value_gradients"]
ONE_DEVICE = {"data": 1, "fsdp": 1, "tensor": 1}


@pytest.fixture
def mesh():
  return mesh_lib.make_mesh(ONE_DEVICE, jax.devices()[:1])


def across_sequences(q, k, v, segment_ids):
  """Attends to earlier sequences, too."""
  return attention.xla_attention(q, k, v, jnp.ones_like(segment_ids))


def without_a_last_token(q, k, v, segment_ids):
  """Drops a row's last token, which no other result depends on."""
  out = attention.xla_attention(q, k, v, segment_ids)
  last = jnp.sum(segment_ids[0] > 0) - 1
  return out.at[0, last].set(0)


def not_a_number(q, k, v, segment_ids):
  return attention.xla_attention(q, k, v, segment_ids) * jnp.nan


@pytest.mark.parametrize(
  ("kernel", "wrong"),
  [
    (attention.xla_attention, []),
    (across_sequences, ARRAYS),
    (without_a_last_token, ARRAYS),
    (not_a_number, ARRAYS),
  ],
)
def test_training_names_the_arrays_that_are_wrong(
  mesh, monkeypatch, kernel, wrong
):
  monkeypatch.setitem(attention.BACKENDS, "other", lambda *_: kernel)
  segments = kernels._segments(rows=2, row_length=48, sequences=3)
  found = kernel_errors.training(
    mesh, CONFIG, "bfloat16", segments, "other", repeats=1
  )
  assert found["kernel"] == "other" and found["wrong"] == wrong
  for name in ARRAYS:
    assert 1e-4 < found[f"{name}_error_plain"] < 1e-2
    assert found[f"{name}_error_plain"] < found[f"{name}_worst_plain"] < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("tokens", [1, 4])
def test_decoding_by_live_pages_is_as_exact_as_by_the_loop(mesh, tokens):
  found = kernel_errors.decoding(
    mesh,
    CONFIG,
    "bfloat16",
    [0, 1, 128, 300],
    page_size=128,
    tokens=tokens,
    repeats=1,
    interpret=True,
  )
  assert found["kernel"] == "live pages" and found["wrong"] == []
  assert found["rows"] == 4 and found["cached_tokens"] == 429
  assert 1e-4 < found["outputs_error"] < 1e-2
  assert found["bandwidth_fraction"] > 0


def all_of_a_last_page(live):
  return live.replace(seen=jnp.where(live.seen > 0, 128, 0))


def one_page_less(live):
  """Skips a page of the longest row, which the mean error hides."""
  return live.replace(seen=live.seen.at[2].set(0))


@pytest.mark.parametrize(
  ("change", "lengths"),
  [
    (all_of_a_last_page, [40, 90]),
    pytest.param(one_page_less, [3000, *[1] * 15], marks=pytest.mark.slow),
  ],
)
@pytest.mark.slow
def test_decoding_names_a_kernel_that_reads_other_tokens(
  mesh, monkeypatch, change, lengths
):
  live_pages = page_kernel.live_pages
  monkeypatch.setattr(
    page_kernel, "live_pages", lambda *given: change(live_pages(*given))
  )
  found = kernel_errors.decoding(
    mesh,
    CONFIG,
    "bfloat16",
    lengths,
    128,
    repeats=1,
    interpret=True,
  )
  assert found["wrong"] == ["outputs"]


def test_packed_rows_have_sequences_and_padding():
  segments = kernels._segments(rows=50, row_length=64, sequences=4)
  assert segments.shape == (50, 64) and segments.dtype == np.int32
  assert set(np.unique(segments)) == {0, 1, 2, 3, 4}
  for row in segments:
    used = row[row > 0]
    assert (np.diff(used) >= 0).all() and not row[len(used) :].any()


@pytest.mark.slow
def test_the_command_measures_what_its_flags_say():
  """A CPU has no kernels, so there is nothing to compare plain XLA with."""
  parser = argparse.ArgumentParser()
  kernels.add_flags(parser)
  flags = "--model random:azr-tiny --rows 1 --row_length 64 --slots 40"
  flags += " --cached equal:200 --page_size 64 --repeats 1"
  found = kernels.measure(parser.parse_args(flags.split()))
  assert found["training"]["kernel"] == "xla"
  assert 1e-4 < found["training"]["outputs_error"] < 1e-2
  rows = {name: one["rows"] for name, one in found["decoding"].items()}
  assert rows == {"1": 40, "4": 32}
  for one in found["decoding"].values():
    assert one["kernel"] == "loop" and "wrong" not in one
    assert one["cached_tokens"] == 200 * one["rows"]
    assert 1e-4 < one["outputs_error"] < 1e-2
