"""What is recomputed, by the memory of a device."""

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
    ({"reference": True}, "dots"),
    ({"critic": True}, "attention"),
    ({"row_length": 1024}, "dots"),
  ],
)
def test_other_arrays_leave_less_room(others, expected):
  found = remat_lib.choose(
    "auto",
    presets.PRESETS["qwen2.5-1.5b"],
    *("bfloat16", GPU, 16 * 1024, 2048, 70 * GIB),
    inlined=True,
    sampled=False,
    **others,
  )
  assert found == expected


@pytest.mark.parametrize(
  "gib, inlined, sampled, expected",
  [
    (80, True, False, "none"),
    (80, False, False, "dots"),
    (64, True, False, "dots"),
    (80, True, True, "attention"),
    (40, True, False, "attention"),
    (33, True, False, "full"),
    (None, True, False, "full"),
  ],
)
def test_what_is_recomputed_follows_memory(gib, inlined, sampled, expected):
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
    sampled=sampled,
  )
  assert found == expected
