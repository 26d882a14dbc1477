"""The remat policy that `auto` chooses for a device's memory."""

import types

import numpy as np
import pytest
from jax.sharding import Mesh
from typed import stand_in

from azr_jax.models import presets
from azr_jax.models import remat as remat_lib
from azr_jax.parallel import mesh as mesh_lib

GIB = 1 << 30


GPU = stand_in(
  Mesh,
  devices=np.array([types.SimpleNamespace(platform="gpu")]),
  shape=dict.fromkeys(mesh_lib.AXES, 1),
)


@pytest.mark.parametrize(
  "others, expected",
  [
    ({}, "none"),
    ({"references": 1}, "dots"),
    ({"critic_size": 12.0}, "attention"),
    ({"critic_size": 12.0, "state_size": 4.0}, "dots"),
    ({"row_length": 1024}, "dots"),
  ],
)
def test_other_arrays_leave_less_room(others, expected):
  found = remat_lib.choose(
    "auto",
    presets.PRESETS["qwen2.5-1.5b"],
    *("bfloat16", GPU, 16 * 1024, 2048, 68 * GIB),
    inlined=True,
    sampler_bytes=0.0,
    **others,
  )
  assert found == expected


@pytest.mark.parametrize(
  "gib, inlined, sampler_gib, expected",
  [
    (80, True, 0, "none"),
    (80, False, 0, "dots"),
    (64, True, 0, "dots"),
    (80, True, None, "attention"),
    (80, True, 15, "dots"),
    (80, True, 24, "attention"),
    (40, True, 0, "attention"),
    (33, True, 0, "full"),
    (None, True, 0, "full"),
  ],
)
def test_what_is_recomputed_follows_memory(gib, inlined, sampler_gib, expected):
  """An update of 16 x 1,024 tokens; `none` takes 60 GiB by the compiler."""
  found = remat_lib.choose(
    "auto",
    presets.PRESETS["qwen2.5-1.5b"],
    "bfloat16",
    GPU,
    16 * 1024,
    2048,
    None if gib is None else gib * GIB,
    inlined=inlined,
    sampler_bytes=None if sampler_gib is None else sampler_gib * GIB,
  )
  assert found == expected


@pytest.mark.parametrize(
  "sampler_gib, expected", [(19.5, "dots"), (45, "attention"), (80, "full")]
)
def test_an_update_on_tpus_keeps_products_beside_the_sampler(
  sampler_gib, expected
):
  """A row of Qwen2.5-7B on each of 32 devices of 95 GiB.

  By the compiler, `dots` takes 52.1 GiB, and 2.45 s where `attention` takes
  2.81 s.
  """
  tpu = stand_in(
    Mesh,
    devices=np.array([types.SimpleNamespace(platform="tpu")]),
    shape=dict.fromkeys(mesh_lib.AXES, 1) | {"fsdp": 32},
  )
  found = remat_lib.choose(
    "auto",
    presets.PRESETS["qwen2.5-7b"],
    *("bfloat16", tpu, 32 * 14240, 1024, 95 * GIB),
    inlined=False,
    sampler_bytes=sampler_gib * GIB,
  )
  assert found == expected
