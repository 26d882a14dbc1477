"""Section `azr.appendix`: what the paper tried besides its method."""

import dataclasses

from azr_jax.config.settings import Settings, setting
from azr_jax.systems.azr.appendix import rewriting
from azr_jax.systems.azr.appendix.intrinsic import AGGREGATIONS, INTRINSIC


@dataclasses.dataclass(frozen=True)
class AppendixSettings(Settings):
  """Everything here is off by default, as in the paper's runs."""

  reference_draw: str = setting(
    "uniform",
    "references of a proposer; recent: newer tasks are likelier (D.3)",
    one_of=("uniform", "recent"),
  )
  seeds: str = setting(
    "", "programs to start from: a file, tfds:NAME or hf:OWNER/NAME (D.3)"
  )
  composite_chance: float = setting(
    0.0,
    "probability that a proposer must build on programs of the buffer (D.2)",
    paper="D.2 tried 0.5",
    at_least=0,
    at_most=1,
  )
  composite_most: int = setting(
    3, "most programs to build on (D.2)", paper="3", at_least=1
  )
  strip: tuple[str, ...] = setting(
    (),
    "what is removed from proposed programs (D.5)",
    some_of=rewriting.STRIPPED,
  )
  intrinsic: tuple[str, ...] = setting(
    (),
    "rewards of a proposal for its program (D.4)",
    some_of=tuple(INTRINSIC),
  )
  intrinsic_weights: tuple[float, ...] = setting(
    (),
    "the weight of each of them",
    accepts=(
      lambda v: all(weight > 0 for weight in v),
      "a tuple of numbers above 0",
    ),
  )
  aggregation: str = setting(
    "sum",
    "how they join learnability: eq. 11, 12, 13, 14",
    one_of=tuple(AGGREGATIONS),
  )

  @property
  def weights(self) -> dict[str, float]:
    """The weight of each intrinsic reward, by its name."""
    return dict(zip(self.intrinsic, self.intrinsic_weights, strict=True))

  def check(self) -> None:
    """Refuses weights that do not match the rewards."""
    if len(self.intrinsic_weights) != len(self.intrinsic):
      raise self.invalid(
        "intrinsic_weights", f"one for each of intrinsic={self.intrinsic!r}"
      )
