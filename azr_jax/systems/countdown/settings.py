"""Section `countdown` of a configuration (Countdown paper, sections 3, 4.1)."""

import dataclasses

from azr_jax.config.settings import Settings, setting
from azr_jax.curricula import curriculum
from azr_jax.curricula.adaptive import AdaptiveSettings
from azr_jax.curricula.bandit import BanditSettings
from azr_jax.curricula.replay import ReplaySettings
from azr_jax.grading import countdown as verifier
from azr_jax.systems.dynamic_sampling import DynamicSamplingSettings
from azr_jax.tasks.countdown import generator
from azr_jax.tasks.countdown import prompts as prompt_lib

CURRICULA = ("uniform", "static", "adaptive", "bandit")
# Validator of bucket weights, with the text of its error.
WEIGHTS = (
  lambda v: not v or (len(v) == 3 and min(v) >= 0 and sum(v) > 0),
  "(), or weights of easy, medium and hard",
)


@dataclasses.dataclass(frozen=True)
class MixSettings(Settings):
  """A second source of puzzles (section 3.2)."""

  puzzles: str = setting("", "file of the second source; empty for none")
  fraction: float = setting(
    0.5,
    "fraction of a batch that comes from the second source",
    paper="0.5",
    minimum=0,
    maximum=1,
    expert=True,
  )
  bucket_weights: tuple[float, ...] = setting(
    (),
    "weights of its easy, medium and hard puzzles; () weights by count",
    paper="(0.10, 0.40, 0.50) for the curriculum mix",
    accepts=WEIGHTS,
  )


@dataclasses.dataclass(frozen=True)
class CountdownSettings(Settings):
  """Puzzle sources, the curriculum over them, and rewards."""

  prompts: int = setting(128, "puzzles per step", paper="128", minimum=1)
  group_size: int = setting(8, "G, responses per puzzle", paper="8", minimum=2)
  dynamic_sampling: DynamicSamplingSettings = DynamicSamplingSettings()
  prompt_format: str = setting(
    "full",
    "prompt format; with prompts.templates, how proposals are read alone",
    choices=prompt_lib.PROMPT_FORMATS,
  )
  verifier: str = setting(
    "strict",
    "verifier rules; published_code accepts what the published verifier does",
    choices=verifier.MODES,
  )
  puzzles: str = setting(
    "", "file of puzzles in the public format; empty generates puzzles"
  )
  data_dir: str = setting(
    "~/.cache/azr_jax/countdown",
    "cache folder of generated puzzles",
    required=True,
    expert=True,
  )
  count: int = setting(
    490_314,
    "number of puzzles to generate",
    paper="490314 to train on",
    minimum=1,
  )
  data_seed: int = setting(
    1,
    "seed for generated puzzles; configs/sft.py uses 0",
    minimum=0,
    expert=True,
  )
  curriculum: str = setting(
    "uniform",
    "curriculum that chooses the puzzles of a step",
    choices=CURRICULA,
    or_named=curriculum.load,
  )
  sizes: tuple[int, ...] = setting(
    generator.COUNTS,
    "allowed numbers per puzzle",
    subset_of=generator.COUNTS,
    required=True,
  )
  difficulty_records: str = setting(
    "",
    "records of azr_jax.evaluate on training puzzles: buckets are by 1 - p of "
    "the scored model, and puzzles without a record are left out; empty: by "
    "the solver",
    paper="empty; section 3.1 defines 1 - p of the SFT model as d_SFT",
    expert=True,
  )
  bucket_limits: tuple[float, ...] = setting(
    (),
    "maximum difficulty of easy puzzles, minimum of hard ones; () splits into "
    "thirds",
    accepts=(
      lambda v: not v or (len(v) == 2 and v[0] < v[1]),
      "(), or two difficulties in rising order",
    ),
    expert=True,
  )
  bucket_weights: tuple[float, ...] = setting(
    (),
    "sampling weights of easy, medium and hard puzzles with curriculum "
    "`uniform`; () weights by count",
    accepts=WEIGHTS,
  )
  adaptive: AdaptiveSettings = AdaptiveSettings()
  bandit: BanditSettings = BanditSettings()
  replay: ReplaySettings = ReplaySettings()
  mix: MixSettings = MixSettings()
  proposals: int = setting(
    0, "puzzles that the policy proposes per step", minimum=0
  )
  references: int = setting(
    2, "reference puzzles in a proposer's prompt", minimum=0, expert=True
  )

  def check(self) -> None:
    """Rejects unused weights, and more proposals than a step has room for."""
    self.dynamic_sampling.check_groups(self, self.group_size)
    if self.bucket_weights and self.curriculum != "uniform":
      raise self.invalid("bucket_weights", "() unless curriculum='uniform'")
    if not self.proposals:
      return
    if self.curriculum != "adaptive":
      raise self.invalid(
        "curriculum",
        "'adaptive' with proposals above 0, because it decides when the policy "
        "proposes",
      )
    if self.proposals > (self.prompts - 1) * self.group_size:
      raise self.invalid(
        "proposals",
        "fewer, to leave room for a solved puzzle in a step of "
        f"prompts={self.prompts} x group_size={self.group_size}",
      )
    if self.references > self.prompts:
      raise self.invalid("references", f"at most prompts={self.prompts}")
