"""Section `compiler` of a configuration: XLA options for the learner.

The options apply to individual programs rather than to the process, so a run's
configuration records them and `compile_check` compiles with them.
"""

import dataclasses
from typing import TypeAlias

from jax.sharding import Mesh

from azr_jax.config.settings import Settings, setting

# The `compiler_options` of `jax.jit`; None uses XLA's defaults.
Options: TypeAlias = dict[str, str | bool] | None

_PAIRS = (
  lambda pairs: all("=" in pair for pair in pairs),
  "strings of the form NAME=VALUE",
)


@dataclasses.dataclass(frozen=True)
class CompilerSettings(Settings):
  """XLA options for updates and scoring, by platform."""

  # Makes XLA all-gather the next layer's weights while this layer computes.
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
  # Otherwise fusions may keep float32 where the code rounds to bfloat16, and
  # two programs of the same model would give slightly different values.
  exact_rounding: bool = setting(
    True,
    "round to bfloat16 wherever the code does, even inside XLA fusions",
    expert=True,
  )

  def options(self, mesh: Mesh) -> Options:
    """Returns the options for a mesh's platform."""
    platform = mesh.devices.flat[0].platform
    pairs = {"tpu": self.tpu, "gpu": self.gpu, "cuda": self.gpu}
    options: dict[str, str | bool] = {}
    for pair in pairs.get(platform, ()):
      name, _, value = pair.partition("=")
      options[name] = value
    if self.exact_rounding:
      options.setdefault("xla_allow_excess_precision", False)
    return options or None
