"""Tests the advice on rows of an update."""

import jax
import numpy as np
import pytest
from jax.sharding import Mesh

from azr_jax.lab.compile import row_fill
from azr_jax.learner.settings import LearnerSettings
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.parallel.settings import MeshSettings


def mesh_of(**sizes):
  """Returns an abstract mesh of any size, on repeated devices."""
  shape = [sizes.get(axis, 1) for axis in mesh_lib.AXES]
  devices = np.resize(np.array(jax.devices()[:1]), shape)
  return Mesh(devices, mesh_lib.AXES)


def advice(lengths, row_length=14240, micro_rows=32, config=None, **sizes):
  c = LearnerSettings(row_length=row_length, micro_rows=micro_rows)
  return row_fill.advice(lengths, c, config or MeshSettings(), mesh_of(**sizes))


# A step of AZR: 384 sequences of 2,048 tokens, six in a row of 14,240.
STEP = [2048] * 384


def test_a_pod_s_rows_are_mostly_padding():
  found = advice(STEP, fsdp=256)
  assert "75% of the rows" in found and "64 of 256" in found
  # 64 shards of four devices each: the next multiple of 4 x 128 tokens, and
  # seven sequences of 2,047 in 14,336.
  assert "mesh.context=4 learner.row_length=14336 would fill" in found


def test_minibatches_share_no_rows():
  c = LearnerSettings(row_length=256, micro_rows=4, minibatches=4)
  found = row_fill.advice([200] * 4, c, MeshSettings(), mesh_of())
  assert "75% of the rows" in found and "4 of 16" in found


def test_full_rows_need_no_advice():
  assert advice(STEP, fsdp=32) == ""
  assert advice(STEP, fsdp=64) == ""


def test_the_smallest_context_that_fills_enough_is_named():
  """57 rows on 128 shards: two devices a row, 57 of 64."""
  found = advice([14240] * 57, fsdp=128)
  assert "55% of the rows" in found
  assert "mesh.context=2 learner.row_length=14336 would fill 89%" in found


def test_a_fixed_axis_shrinks_with_the_context():
  fixed = MeshSettings(data=1, fsdp=256)
  assert "mesh.context=4 mesh.fsdp=64" in advice(STEP, config=fixed, fsdp=256)
  rest = MeshSettings(data=-1, fsdp=256)
  assert "mesh.fsdp" not in advice(STEP, config=rest, fsdp=256)


def test_too_many_rows_of_a_micro_batch_are_lowered():
  found = advice([200] * 8, row_length=256, micro_rows=64, fsdp=4)
  assert found.endswith(
    "(8 of 64 hold sequences): learner.micro_rows=4 would fill 100%"
  )


@pytest.mark.parametrize("platform", ["gpu", "cuda"])
def test_gpus_keep_whole_rows(monkeypatch, platform):
  monkeypatch.setattr(mesh_lib, "platform", lambda mesh: platform)
  assert advice(STEP, fsdp=256).endswith("(64 of 256 hold sequences)")
