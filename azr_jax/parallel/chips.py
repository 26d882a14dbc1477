"""Peak rates of accelerators: memory, matrix units, links between chips.

The numbers come from the vendors' public data sheets and serve as upper bounds
for rooflines. The TPU numbers are from docs.cloud.google.com/tpu/docs/v4, v5e,
v5p and v6e.

A TPU's clock rate follows from its data sheet, because a matrix unit of n x n
does n x n multiply-adds per cycle. The TPU compiler estimates the cost of
operations in these cycles (`lab/compile/cost.py`). With libtpu 0.0.42.1, its
estimates imply the following rates for a matrix product of 8192^3, for reading
the weights of a product with 32 rows, and for adding 1 to 1 GiB of data:

| | product, operations/cycle | weights, bytes/cycle | sum, bytes/cycle |
| --- | --- | --- | --- |
| v4, one of two cores | 117,756 (90 % of the sheet) | 422 (72 %) | 226 (39 %) |
| v5e | 115,044 (88 %) | 396 (73 %) | 222 (41 %) |
| v5p | 236,349 (90 %) | 976 (62 %) | 574 (36 %) |
| v6e | 369,231 (70 %) | 789 (84 %) | 379 (40 %) |
"""

import dataclasses

GIB = 2**30


@dataclasses.dataclass(frozen=True)
class Chip:
  """One accelerator.

  Attributes:
    hbm_bytes: size of the device memory.
    bandwidth: bytes per second of the device memory.
    flops: operations per second in dense bfloat16 matrix products.
    link_bandwidth: bytes per second to all neighbours together, one way.
    multipliers: number of multipliers in all matrix units; 0 if unknown.
  """

  hbm_bytes: float
  bandwidth: float
  flops: float
  link_bandwidth: float
  multipliers: int = 0

  @property
  def clock_hz(self) -> float:
    """Cycles per second; 0 if unknown."""
    return self.flops / (2 * self.multipliers) if self.multipliers else 0.0


# The pages give the link bandwidth in both directions: 400 (v5e), 1200 (v5p)
# and 800 GB/s (v6e); one way has half of that. A v4 has six links of 50 GB/s
# one way (TPU v4, arXiv 2304.01433); its page gives only the all-reduce rate,
# 1.1 PB/s over 4096 chips, which is 269 GB/s per chip.
# A v4 or v5p chip has two cores with four matrix units each, a v5e chip has one
# core with four. For v6e we assume four units of 256 x 256, which gives it
# v5p's clock; the compiler's estimates keep them busy for 70 % of a large
# product.
TPUS = {
  "v4": Chip(32 * GIB, 1228e9, 275e12, 300e9, 8 * 128**2),
  "v5e": Chip(16 * GIB, 819e9, 197e12, 200e9, 4 * 128**2),
  "v5p": Chip(95 * GIB, 2765e9, 459e12, 600e9, 8 * 128**2),
  "v6e": Chip(32 * GIB, 1640e9, 918e12, 400e9, 4 * 256**2),
}
# Keys are the names used for renting GPUs; values are from NVIDIA's data
# sheets.
GPUS = {
  "a100": Chip(80e9, 2039e9, 312e12, 300e9),
  "h100": Chip(80e9, 3350e9, 989e12, 450e9),
  "h200": Chip(141e9, 4800e9, 989e12, 450e9),
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
  "NVIDIA A100-SXM4-80GB": GPUS["a100"],
  "NVIDIA H100 80GB HBM3": GPUS["h100"],
  "NVIDIA H200": GPUS["h200"],
}
