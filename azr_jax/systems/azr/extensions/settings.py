"""Section `azr.appendix`: the experiments of AZR's appendix D."""

import dataclasses

from azr_jax.config.settings import Settings, setting
from azr_jax.systems.azr.extensions import rewriting
from azr_jax.systems.azr.extensions.intrinsic import AGGREGATIONS, INTRINSIC


@dataclasses.dataclass(frozen=True)
class AppendixSettings(Settings):
  """Experiments of appendix D; off by default, as in the paper's main runs."""

  reference_sampling: str = setting(
    "uniform",
    "how to draw references; recent prefers newer tasks (D.3)",
    choices=("uniform", "recent"),
    expert=True,
  )
  seeds: str = setting(
    "",
    "source of seeds: RUN/records/seeds.jsonl, another file, tfds:NAME or "
    "hf:OWNER/NAME",
    paper="none; D.3 tried LeetCodeDataset",
    expert=True,
  )
  composite_prob: float = setting(
    0.0,
    "probability that a proposer must build on buffered programs (D.2)",
    paper="D.2 tried 0.5",
    minimum=0,
    maximum=1,
    expert=True,
  )
  max_components: int = setting(
    3,
    "maximum number of programs to build on",
    paper="3",
    minimum=1,
    expert=True,
  )
  strip: tuple[str, ...] = setting(
    (),
    "parts to strip from proposed programs (D.5)",
    subset_of=rewriting.STRIPPED,
    expert=True,
  )
  intrinsic: tuple[str, ...] = setting(
    (),
    "intrinsic rewards of proposals for their programs (D.4)",
    subset_of=tuple(INTRINSIC),
    expert=True,
  )
  intrinsic_weights: tuple[float, ...] = setting(
    (),
    "weight of each reward in `intrinsic`",
    accepts=(
      lambda v: all(weight > 0 for weight in v),
      "a tuple of numbers above 0",
    ),
    expert=True,
  )
  intrinsic_for: str = setting(
    "valid",
    "proposals that earn intrinsic rewards: all valid ones, or those with a "
    "learnability above 0",
    paper="valid (eq. 11, 14); the published code uses learnable",
    choices=("valid", "learnable"),
    expert=True,
  )
  aggregation: str = setting(
    "sum",
    "how intrinsic rewards combine with learnability: eq. 11, 12, 13, 14",
    choices=tuple(AGGREGATIONS),
    expert=True,
  )

  @property
  def weights(self) -> dict[str, float]:
    """The weight of each intrinsic reward, by its name."""
    return dict(zip(self.intrinsic, self.intrinsic_weights, strict=True))

  def check(self) -> None:
    """Rejects weights that do not match the rewards."""
    if len(self.intrinsic_weights) != len(self.intrinsic):
      raise self.invalid(
        "intrinsic_weights", f"one for each of intrinsic={self.intrinsic!r}"
      )
