"""Peak rates of accelerators: memory, matrix units, links between chips.

The numbers are from the vendors' public data sheets and serve as upper bounds
for rooflines. Those of a TPU are on docs.cloud.google.com/tpu/docs/v4, v5e,
v5p and v6e.
"""

import dataclasses

GIB = 2**30


@dataclasses.dataclass(frozen=True)
class Chip:
  """One accelerator.

  Attributes:
    hbm_bytes: size of the device memory.
    bandwidth: bytes per second of that memory.
    flops: operations per second in dense bfloat16 matrix products.
    link_bandwidth: bytes per second one way, to all neighbours together.
  """

  hbm_bytes: float
  bandwidth: float
  flops: float
  link_bandwidth: float


# These pages give the bandwidth of the links in both directions: 400 (v5e),
# 1200 (v5p) and 800 GB/s (v6e); one way has half of it. A v4 has six links of
# 50 GB/s one way (TPU v4, arXiv 2304.01433); its page has the rate of an
# all-reduce only, 1.1 PB/s over 4096 chips, which is 269 GB/s for each.
TPUS = {
  "v4": Chip(32 * GIB, 1228e9, 275e12, 300e9),
  "v5e": Chip(16 * GIB, 819e9, 197e12, 200e9),
  "v5p": Chip(95 * GIB, 2765e9, 459e12, 600e9),
  "v6e": Chip(32 * GIB, 1640e9, 918e12, 400e9),
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
