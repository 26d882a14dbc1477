"""Section `azr.appendix`: the experiments of AZR's appendix D."""

import dataclasses

from azr_jax.config.settings import Settings, setting
from azr_jax.systems.azr.extensions import rewriting
from azr_jax.systems.azr.extensions.intrinsic import AGGREGATIONS, INTRINSIC


@dataclasses.dataclass(frozen=True)
class AppendixSettings(Settings):
  """The experiments, all off by default, as in the paper's main runs."""

  reference_sampling: str = setting(
    "uniform",
    "how references are drawn; recent prefers newer tasks (D.3)",
    choices=("uniform", "recent"),
    expert=True,
  )
  seeds: str = setting(
    "",
    "seeds: RUN/records/seeds.jsonl, another file, tfds:NAME or hf:OWNER/NAME",
    paper="none; D.3 tried LeetCodeDataset",
    expert=True,
  )
  composite_prob: float = setting(
    0.0,
    "probability that a proposer must build on programs of the buffer (D.2)",
    paper="D.2 tried 0.5",
    minimum=0,
    maximum=1,
    expert=True,
  )
  max_components: int = setting(
    3,
    "maximum number of programs to build on (D.2)",
    paper="3",
    minimum=1,
    expert=True,
  )
  strip: tuple[str, ...] = setting(
    (),
    "parts that are removed from proposed programs (D.5)",
    subset_of=rewriting.STRIPPED,
    expert=True,
  )
  intrinsic: tuple[str, ...] = setting(
    (),
    "rewards of a proposal for its program (D.4)",
    subset_of=tuple(INTRINSIC),
    expert=True,
  )
  intrinsic_weights: tuple[float, ...] = setting(
    (),
    "the weight of each of `intrinsic`",
    accepts=(
      lambda v: all(weight > 0 for weight in v),
      "a tuple of numbers above 0",
    ),
    expert=True,
  )
  intrinsic_for: str = setting(
    "valid",
    "proposals that earn them: all valid ones, or those with eq. 4 above 0",
    paper="valid (eq. 11, 14); the published code has learnable",
    choices=("valid", "learnable"),
    expert=True,
  )
  aggregation: str = setting(
    "sum",
    "how they are combined with learnability: eq. 11, 12, 13, 14",
    choices=tuple(AGGREGATIONS),
    expert=True,
  )

  @property
  def weights(self) -> dict[str, float]:
    """The weight of each intrinsic reward, by its name."""
    return dict(zip(self.intrinsic, self.intrinsic_weights, strict=True))

  def check(self) -> None:
    """Refuses weights that are not one for each reward."""
    if len(self.intrinsic_weights) != len(self.intrinsic):
      raise self.invalid(
        "intrinsic_weights", f"one for each of intrinsic={self.intrinsic!r}"
      )
