"""Section `compiler` of a configuration: options of XLA for the learner.

They are given to each program, not to the process, so a run's configuration
records them and `compile_check` compiles with them.
"""

import dataclasses
from typing import TypeAlias

from jax.sharding import Mesh

from azr_jax.config.settings import Settings, setting

# The `compiler_options` of `jax.jit`; None means XLA's defaults.
Options: TypeAlias = dict[str, str | bool] | None

_PAIRS = (
  lambda pairs: all("=" in pair for pair in pairs),
  "texts of the form NAME=VALUE",
)


@dataclasses.dataclass(frozen=True)
class CompilerSettings(Settings):
  """Options of XLA for updates and scoring, by platform."""

  # XLA all-gathers the weights of the next layer while this layer computes.
  tpu: tuple[str, ...] = setting(
    (
      "xla_enable_async_all_gather=true",
      "xla_tpu_enable_async_collective_fusion=true",
      "xla_tpu_enable_async_collective_fusion_fuse_all_gather=true",
      "xla_tpu_enable_async_collective_fusion_multiple_steps=true",
    ),
    "XLA options on TPUs, as NAME=VALUE",
    accepts=_PAIRS,
    expert=True,
  )
  gpu: tuple[str, ...] = setting(
    (), "XLA options on GPUs, as NAME=VALUE", accepts=_PAIRS, expert=True
  )
  # Otherwise a fusion keeps float32 where the code rounds to bfloat16, so two
  # programs of one model give slightly different values.
  exact_rounding: bool = setting(
    True,
    "round to bfloat16 wherever the code does, whatever XLA fuses",
    expert=True,
  )

  def options(self, mesh: Mesh) -> Options:
    """Returns the options for the platform of a mesh."""
    platform = mesh.devices.flat[0].platform
    pairs = {"tpu": self.tpu, "gpu": self.gpu, "cuda": self.gpu}
    options: dict[str, str | bool] = {}
    for pair in pairs.get(platform, ()):
      name, _, value = pair.partition("=")
      options[name] = value
    if self.exact_rounding:
      options.setdefault("xla_allow_excess_precision", False)
    return options or None
