"""What accelerators can do: memory, bandwidth, matrix rate, links.

From the vendors' public data sheets, as upper bounds for rooflines.
"""

import dataclasses

GIB = 2**30


@dataclasses.dataclass(frozen=True)
class Chip:
  """One accelerator.

  Attributes:
    hbm_bytes: device memory.
    bandwidth: of that memory, bytes per second.
    flops: dense bfloat16 matrix products, operations per second.
    link_bandwidth: to all neighbours together, bytes per second one way.
  """

  hbm_bytes: float
  bandwidth: float
  flops: float
  link_bandwidth: float


TPUS = {
  "v4": Chip(32 * GIB, 1228e9, 275e12, 150e9),
  "v5e": Chip(16 * GIB, 819e9, 197e12, 100e9),
  "v5p": Chip(95 * GIB, 2765e9, 459e12, 300e9),
  "v6e": Chip(32 * GIB, 1640e9, 918e12, 224e9),
}
# `jax.Device.device_kind` -> chip.
BY_KIND = {
  "TPU v4": TPUS["v4"],
  "TPU v5 lite": TPUS["v5e"],
  "TPU v5e": TPUS["v5e"],
  "TPU v5": TPUS["v5p"],
  "TPU v5p": TPUS["v5p"],
  "TPU v6 lite": TPUS["v6e"],
  "TPU v6e": TPUS["v6e"],
  "NVIDIA A100-SXM4-80GB": Chip(80e9, 2039e9, 312e12, 300e9),
  "NVIDIA H100 80GB HBM3": Chip(80e9, 3350e9, 989e12, 450e9),
  "NVIDIA H200": Chip(141e9, 4800e9, 989e12, 450e9),
}
