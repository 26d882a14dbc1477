"""Kernels of experts in MXFP4 read as the floats that they stand for."""

import numpy as np
import pytest
import safetensors.numpy

from azr_jax.models import mxfp4, safetensors_io

# X, in, out.
SHAPE = 2, 96, 6
INDEX = slice(0, 2), slice(30, 70), slice(1, 6)


def write(folder):
  """Writes a packed kernel and a bias; returns blocks and scales."""
  rng = np.random.default_rng(0)
  blocks = rng.integers(0, 256, (2, 6, 3, 16), np.uint8)
  scales = rng.integers(110, 135, (2, 6, 3), np.uint8)
  safetensors.numpy.save_file(
    {"up_blocks": blocks, "up_scales": scales, "up_bias": np.ones(3)},
    folder / "model.safetensors",
  )
  return blocks, scales


def dequantizing(folder):
  return mxfp4.dequantizing(safetensors_io.SafetensorsReader(folder))


def test_a_range_of_a_kernel_has_its_values(tmp_path):
  """By the bits of each weight: a sign, two of exponent, one of mantissa."""
  blocks, scales = write(tmp_path)
  reader = dequantizing(tmp_path)
  assert {*reader.names()} == {"up", "up_bias"}
  assert reader.shape("up") == SHAPE and reader.shape("up_bias") == (3,)
  want = np.zeros(SHAPE)
  for x, i, o in np.ndindex(*SHAPE):
    byte = int(blocks[x, o, i // 32, i % 32 // 2])
    bits = byte >> 4 if i % 2 else byte & 15
    sign, exponent, mantissa = bits >> 3, bits >> 1 & 3, bits & 1
    value = (
      (1 + mantissa / 2) * 2 ** (exponent - 1) if exponent else mantissa / 2
    )
    scale = 2.0 ** (int(scales[x, o, i // 32]) - 127)
    want[x, i, o] = (-1) ** sign * value * scale
  np.testing.assert_array_equal(reader.read("up", INDEX), want[INDEX])
  np.testing.assert_array_equal(reader.read("up_bias", (slice(1, 3),)), [1, 1])


def test_parts_that_do_not_match_are_refused(tmp_path):
  blocks, scales = write(tmp_path)
  safetensors.numpy.save_file(
    {"up_blocks": blocks, "up_scales": scales[:, :5]},
    tmp_path / "model.safetensors",
  )
  with pytest.raises(ValueError, match=r"up_scales \(2, 5, 3\): expected"):
    dequantizing(tmp_path).shape("up")


@pytest.mark.slow
def test_transformers_dequantizes_the_same(tmp_path):
  import torch
  from transformers.integrations import mxfp4 as theirs

  parts = [torch.tensor(x) for x in write(tmp_path)]
  want = theirs.convert_moe_packed_tensors(*parts, dtype=torch.float32)
  got = dequantizing(tmp_path).read("up", tuple(slice(0, n) for n in SHAPE))
  np.testing.assert_array_equal(got, want.numpy())
