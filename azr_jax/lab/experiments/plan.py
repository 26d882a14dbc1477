"""An experiment's plan: the question, the runs, and what would refute it.

`experiments/NAME/experiment.toml` is written before the first run and contains
everything that decides the answer. Its tables:

| table | content |
| --- | --- |
| top level | question, claim, source, refuted_if, seeds, analysis, core_hours |
| `[text]` | texts by name, for values that occur more than once |
| `[set]` | config keys of every arm of `azr_jax.train` |
| `[rehearse]` | config keys of every arm in a rehearsal |
| `[[prepare]]` | a command that makes an input of arms, e.g. a start model |
| `[arms.NAME]` | a config, the keys that define the arm, and a command |
| `[scores.NAME]` | a benchmark that finished runs are scored on |
| `[outcomes.NAME]` | a score, or the mean of a metric between two steps |
| `[[comparisons]]` | two arms, an outcome, and the claimed difference |
| `[panels]` | titles and metrics of the figure's curves |
| `[transition]` | an outcome against what the arms vary, in lines |
| `[[amended]]` | a change made after runs had started, and why |

In a value, `{NAME}` stands for the folder of the preparation NAME, or for the
text NAME. In a key of an arm, `{next:ARM}` stands for the folder of ARM's run
with the next seed; the last seed takes the first.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

from azr_jax.config.settings import Settings, setting

# Claims about a difference, arm minus base.
HIGHER, LOWER, NOT_LOWER = "higher", "lower", "not_lower"
CLAIMS = (HIGHER, LOWER, NOT_LOWER)

# Prefix of a reference to another arm's run with the next seed.
NEXT = "next:"
_NEXT_ARM = re.compile(rf"\{{{NEXT}(\w+)\}}")

# The base of a comparison with the model that runs start from.
START = "start"

# How two arms are compared over their seeds.
TWO_SAMPLES, PAIRED_SEEDS = "two_samples", "paired_seeds"
ANALYSES = (TWO_SAMPLES, PAIRED_SEEDS)

# What an arm may run: reinforcement learning, or supervised training.
TRAIN, SUPERVISED = "azr_jax.train", "azr_jax.sft"
COMMANDS = (TRAIN, SUPERVISED)


@dataclasses.dataclass(frozen=True)
class PlanSettings(Settings):
  """The top level of a plan."""

  question: str = setting("", "the question, in one sentence", required=True)
  claim: str = setting("", "the claimed answer", required=True)
  source: str = setting(
    "", "source of the claim: paper, arXiv id, section", required=True
  )
  refuted_if: str = setting("", "what would refute the claim", required=True)
  seeds: tuple[int, ...] = setting(
    (0, 1, 2),
    "config.seed of each arm's runs",
    required=True,
    accepts=(lambda v: len({*v}) == len(v), "different seeds"),
  )
  analysis: str = setting(
    TWO_SAMPLES,
    "how two arms are compared: their seeds are two independent samples, or "
    "run i of both arms is a pair",
    choices=ANALYSES,
  )
  core_hours: float = setting(
    1.0, "budget of all runs and scores, in core-hours", above=0
  )
  confidence: float = setting(
    0.95, "confidence of the intervals; alpha is 1 minus it", above=0, below=1
  )
  power: float = setting(
    0.8,
    "probability of detecting the smallest detectable difference",
    above=0,
    below=1,
  )
  dropped: str = setting("", "what the source runs that this omits, and why")


@dataclasses.dataclass(frozen=True)
class Preparation(Settings):
  """A command that runs once, before the arms that read its folder."""

  name: str = setting("", "the NAME that `{NAME}` refers to", required=True)
  command: str = setting("", "the module to run", required=True)
  arguments: tuple[str, ...] = setting(
    (), "its flags; {folder} is the preparation's folder"
  )
  rehearsal: tuple[str, ...] = setting((), "additional flags in a rehearsal")
  output: str = setting(
    "",
    "file or folder that exists in its folder once it has succeeded",
    required=True,
  )


@dataclasses.dataclass(frozen=True)
class ScoreSettings(Settings):
  """A benchmark of finished runs, and of the model that they start from."""

  config: str = setting(
    "", "config of azr_jax.evaluate, FILE:VARIANT", required=True
  )
  benchmark: str = setting("", "name of the benchmark", required=True)
  arguments: tuple[str, ...] = setting(
    (), "additional flags of azr_jax.evaluate"
  )
  arms: tuple[str, ...] = setting((), "arms to score; () scores all")
  start: str = setting("", "a start model to score once; '' for none")


@dataclasses.dataclass(frozen=True)
class OutcomeSettings(Settings):
  """A number per run: a score over items, or a metric's mean over steps."""

  title: str = setting("", "column title, with the unit", required=True)
  score: str = setting("", "name in [scores]; '' uses the metric")
  k: int = setting(1, "k of the score's pass@k", minimum=1)
  items: str = setting(
    "", "prefix of the ids of the score's items that count; '' counts all"
  )
  metric: str = setting("", "metric in metrics.jsonl; '' uses the score")
  minus: str = setting("", "metric of the same run to subtract; '' for none")
  first_step: int = setting(1, "first step of the metric's mean", minimum=1)
  last_step: int = setting(1, "last step of the metric's mean", minimum=1)

  def check(self) -> None:
    """Rejects conflicting values."""
    if bool(self.score) == bool(self.metric):
      raise self.invalid("metric", "either a metric or a score")
    if self.items and not self.score:
      raise self.invalid("items", "'' with a metric")
    if self.first_step > self.last_step:
      raise self.invalid("last_step", f"at least first_step={self.first_step}")


@dataclasses.dataclass(frozen=True)
class ArmComparison(Settings):
  """A claim about the difference between two arms, which may fail."""

  outcome: str = setting("", "name in [outcomes]", required=True)
  arm: str = setting("", "name in [arms]", required=True)
  base: str = setting(
    "",
    "arm to compare with, or 'start', the model that the score's runs start "
    "from; '' compares with 0",
  )
  claim: str = setting(
    HIGHER, "claim about the difference arm - base", choices=CLAIMS
  )
  margin: float = setting(
    0.0,
    "smallest difference that matters; with not_lower, the loss that is "
    "tolerated",
    minimum=0,
  )
  expected_sd: float = setting(
    0.0,
    "standard deviation over seeds of the difference between two runs, from a "
    "pilot or an earlier experiment, for the planned power; 0 if unknown",
    minimum=0,
  )
  primary: bool = setting(
    True, "whether it decides, with Holm's correction over the primary ones"
  )

  def check(self) -> None:
    """Rejects not_lower without a margin, and an arm compared with itself."""
    if self.claim == NOT_LOWER and not self.margin:
      raise self.invalid("margin", f"a number above 0 with {NOT_LOWER!r}")
    if self.arm == self.base:
      raise self.invalid("base", "another arm")


@dataclasses.dataclass(frozen=True)
class Amendment(Settings):
  """A change of the plan after runs had started."""

  when: str = setting(
    "", "the date, and which runs were done by then", required=True
  )
  why: str = setting("", "what was changed, and why", required=True)
  was: str = setting(
    "", "hash of the plan before, as the error message gives it", required=True
  )
  adds: tuple[str, ...] = setting(
    (),
    "arms that were added; their comparisons must not be primary, because "
    "the arms were chosen after seeing results",
  )


@dataclasses.dataclass(frozen=True)
class Arm:
  """A training configuration, run once per seed.

  Attributes:
    config: FILE:VARIANT.
    overrides: value by config key, including `[set]` if the command is `TRAIN`.
    command: the module that trains, one of `COMMANDS`.
  """

  config: str
  overrides: Mapping[str, Any]
  command: str = TRAIN

  def sources(self) -> list[str]:
    """Returns the arms that the overrides name as `{next:ARM}`, sorted."""
    found = _NEXT_ARM.findall(str([*self.overrides.values()]))
    return sorted({*found})


@dataclasses.dataclass(frozen=True)
class Transition:
  """An outcome against a number that the arms vary.

  Attributes:
    outcome: name in [outcomes].
    axis: label of the number, with its unit.
    lines: line -> arm -> the arm's number.
  """

  outcome: str
  axis: str
  lines: Mapping[str, Mapping[str, float]]


@dataclasses.dataclass(frozen=True)
class Plan:
  """A whole experiment, as read by `plan_file.read`.

  Attributes:
    name: name of its folder.
    about: the top level of the file.
    preparations: in the order of the file.
    arms: arms by name, in the order of the file.
    scores: scores by name.
    outcomes: outcomes by name.
    comparisons: in the order of the file.
    panels: metric by title of a panel of curves.
    transition: a panel of the figure, or None.
    rehearse: value by config key in a rehearsal.
    amendments: in the order of the file.
    is_rehearsal: whether this is the plan of a rehearsal.
  """

  name: str
  about: PlanSettings
  preparations: Sequence[Preparation]
  arms: Mapping[str, Arm]
  scores: Mapping[str, ScoreSettings]
  outcomes: Mapping[str, OutcomeSettings]
  comparisons: Sequence[ArmComparison]
  panels: Mapping[str, str]
  rehearse: Mapping[str, Any]
  amendments: Sequence[Amendment] = ()
  transition: Transition | None = None
  is_rehearsal: bool = False

  def rehearsal(self) -> "Plan":
    """Returns the plan of a rehearsal, which shows that the commands work.

    It has one seed, the keys of `[rehearse]`, eight items per score, and
    metrics of the first step only.
    """
    return dataclasses.replace(
      self,
      is_rehearsal=True,
      about=dataclasses.replace(self.about, seeds=self.about.seeds[:1]),
      preparations=[
        dataclasses.replace(one, arguments=one.arguments + one.rehearsal)
        for one in self.preparations
      ],
      arms={
        name: dataclasses.replace(
          arm, overrides={**arm.overrides, **self.rehearse}
        )
        for name, arm in self.arms.items()
      },
      scores={
        name: dataclasses.replace(
          score, arguments=(*score.arguments, "--limit=8")
        )
        for name, score in self.scores.items()
      },
      outcomes={
        name: dataclasses.replace(outcome, first_step=1, last_step=1)
        for name, outcome in self.outcomes.items()
      },
    )

  def metrics(self) -> set[str]:
    """Returns the metrics that outcomes and panels read."""
    of_outcomes = {
      name for one in self.outcomes.values() for name in (one.metric, one.minus)
    }
    return (of_outcomes | {*self.panels.values()}) - {""}

  def runs(self) -> list[tuple[str, int]]:
    """Returns (arm, seed) of each run, with every arm's first seed first."""
    return [(arm, seed) for seed in self.about.seeds for arm in self.arms]

  def read_arms(self) -> set[str]:
    """Returns the arms whose runs other arms read."""
    return {name for arm in self.arms.values() for name in arm.sources()}

  def runs_in_order(self) -> list[tuple[str, int]]:
    """Returns `runs`, each after the runs that it reads."""
    found: dict[tuple[str, int], None] = {}
    for arm, seed in self.runs():
      for source in self.arms[arm].sources():
        found[source, self.next_seed(seed)] = None
      found[arm, seed] = None
    return [*found]

  def next_seed(self, seed: int) -> int:
    """Returns the seed after this one; the first one after the last."""
    seeds = self.about.seeds
    return seeds[(seeds.index(seed) + 1) % len(seeds)]

  def scores_of(self, arm: str) -> list[str]:
    """Returns the names of the benchmarks that an arm is scored on."""
    return [
      name
      for name, score in self.scores.items()
      if not score.arms or arm in score.arms
    ]
