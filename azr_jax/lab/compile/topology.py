"""Named TPU slices and GPU servers, to compile for without having them."""

import importlib.util
import pathlib
from typing import Any

import jax
from jax.experimental import topologies

from azr_jax.parallel import chips
from azr_jax.parallel.chips import Chip

# Files that describe a GPU to XLA, named as in `chips.GPUS`.
_TARGETS = pathlib.Path(__file__).parents[2] / "assets" / "gpus"
# Autotuning needs the GPU itself.
_GPU_OPTIONS = {"xla_gpu_autotune_level": "0"}


def chip_of(name: str) -> Chip:
  """Returns the device type of a topology, e.g. v5p:4x4x2 or h200:8.

  Raises:
    ValueError: the device is unknown, or the name has no shape.
  """
  kind, colon, shape = name.partition(":")
  known = chips.TPUS | chips.GPUS
  if kind not in known or not colon or not shape:
    raise ValueError(
      f"topology={name!r}: expected CHIP:SHAPE, e.g. v5e:8x8 or v5p:4x4x2, "
      f"with a chip of {tuple(chips.TPUS)}, or GPU:NUMBER, e.g. h200:8, with a "
      f"GPU of {tuple(chips.GPUS)}"
    )
  return known[kind]


def devices(name: str) -> list[jax.Device]:
  """Returns the devices of a topology, for which programs can be compiled.

  Args:
    name: a TPU slice or the GPUs of one server, e.g. v5p:4x4x2 or h200:8.

  Raises:
    ValueError: the topology does not exist.
    ModuleNotFoundError: the compiler is not installed.
  """
  chip_of(name)
  kind, _, shape = name.partition(":")
  if kind in chips.GPUS:
    return _gpus(name, kind, shape)
  if importlib.util.find_spec("libtpu") is None:
    raise ModuleNotFoundError("the TPU compiler is missing", name="libtpu")
  options: dict[str, Any] = {}
  if shape in ("1", "1x1", "1x1x1"):
    # By default a host has four chips.
    options["chips_per_host_bounds"] = [1, 1, 1]
  if kind == "v4":  # Both cores of a chip act as one device, as on real slices.
    options["chip_config_name"] = "megacore"
  try:
    description = topologies.get_topology_desc(
      platform="tpu", topology_name=name, **options
    )
  except jax.errors.JaxRuntimeError as error:
    raise ValueError(f"topology={name!r}: {error}") from None
  return list(description.devices)


def _gpus(name: str, kind: str, number: str) -> list[jax.Device]:
  """Returns the GPUs of one server."""
  if not number.isdecimal() or int(number) < 1:
    raise ValueError(
      f"topology={name!r}: expected the number of GPUs, e.g. {kind}:8"
    )
  if importlib.util.find_spec("jax_cuda13_plugin") is None:
    raise ModuleNotFoundError(
      "the GPU compiler is missing", name="jax_cuda13_plugin"
    )
  description = topologies.get_topology_desc(
    platform="cuda",
    topology_name=kind,
    target_config=(_TARGETS / f"{kind}.txtpb").read_text("utf-8"),
    topology=f"1x1x{number}",
  )
  return list(description.devices)


def compiler_options(name: str) -> dict[str, str]:
  """Returns the XLA options that compiling for a topology requires."""
  return dict(_GPU_OPTIONS) if name.partition(":")[0] in chips.GPUS else {}
