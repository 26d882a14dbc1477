"""An experiment's plan: what is asked, what is run, and what would refute it.

`experiments/NAME/experiment.toml` is written before the first run, and has
everything that decides the answer. Its tables:

| table | what it has |
| --- | --- |
| top level | question, claim, source, refuted_if, seeds, core_hours |
| `[text]` | texts by name, for values that occur more than once |
| `[set]` | config keys of every arm |
| `[rehearse]` | config keys of every arm in a rehearsal |
| `[[prepare]]` | a command that makes what arms read, such as a start |
| `[arms.NAME]` | a config, and the keys that make the arm |
| `[scores.NAME]` | a benchmark that finished runs are scored on |
| `[outcomes.NAME]` | a score, or a metric between two steps |
| `[[comparisons]]` | two arms, an outcome, what is claimed of it |
| `[panels]` | titles and metrics of the figure's curves |
| `[transition]` | an outcome against what the arms vary, a line for each kind |
| `[[amended]]` | what was changed after runs had begun, and why |

`{NAME}` in a value stands for the folder of the preparation NAME, or for the
text NAME.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from azr_jax.config.settings import Settings, setting

# A comparison claims one of these of the difference: the arm less the base.
HIGHER, LOWER, NOT_LOWER = "higher", "lower", "not_lower"
CLAIMS = (HIGHER, LOWER, NOT_LOWER)


@dataclasses.dataclass(frozen=True)
class About(Settings):
  """The top level of a plan."""

  question: str = setting("", "what is asked, one sentence", required=True)
  claim: str = setting("", "the answer that is claimed", required=True)
  source: str = setting("", "who claims it: paper, arXiv, place", required=True)
  refuted_if: str = setting("", "what would refute it", required=True)
  seeds: tuple[int, ...] = setting(
    (0, 1, 2),
    "config.seed of each arm's runs",
    required=True,
    accepts=(lambda v: len({*v}) == len(v), "different seeds"),
  )
  core_hours: float = setting(
    1.0, "budget of all runs and scores, hours of one core", above=0
  )
  confidence: float = setting(
    0.95, "of the intervals; 1 - this is the error rate", above=0, below=1
  )
  power: float = setting(
    0.8, "chance to see the smallest detectable difference", above=0, below=1
  )
  dropped: str = setting("", "what the source runs and this does not, and why")


@dataclasses.dataclass(frozen=True)
class Preparation(Settings):
  """A command that is run once, before the arms that read its folder."""

  name: str = setting("", "what `{NAME}` refers to", required=True)
  command: str = setting("", "the module that is run", required=True)
  arguments: tuple[str, ...] = setting((), "its flags; {folder}: its folder")
  rehearsal: tuple[str, ...] = setting((), "more flags in a rehearsal")
  output: str = setting(
    "", "what is in the folder when it has succeeded", required=True
  )


@dataclasses.dataclass(frozen=True)
class Score(Settings):
  """A benchmark of finished runs, and of the model they start from."""

  config: str = setting("", "of azr_jax.evaluate, FILE:VARIANT", required=True)
  benchmark: str = setting("", "its name", required=True)
  arguments: tuple[str, ...] = setting((), "more flags of azr_jax.evaluate")
  arms: tuple[str, ...] = setting((), "arms that are scored; (): all")
  start: str = setting("", "a model that is scored once; '': none")


@dataclasses.dataclass(frozen=True)
class Outcome(Settings):
  """A number of each run: a score by items, or a mean metric over steps."""

  title: str = setting("", "column of the table, with its unit", required=True)
  score: str = setting("", "name in [scores]; '': the metric counts")
  k: int = setting(1, "of pass@k of the score", minimum=1)
  items: str = setting(
    "", "start of the ids of the score's items that count; '': all count"
  )
  metric: str = setting("", "metric of metrics.jsonl; '': the score counts")
  minus: str = setting("", "metric of the same run to subtract; '': none")
  first_step: int = setting(1, "first step of the metric's mean", minimum=1)
  last_step: int = setting(1, "last step of the metric's mean", minimum=1)

  def check(self) -> None:
    """Refuses values that do not go together."""
    if bool(self.score) == bool(self.metric):
      raise self.invalid("metric", "either a metric or a score")
    if self.items and not self.score:
      raise self.invalid("items", "'' where a metric counts")
    if self.first_step > self.last_step:
      raise self.invalid("last_step", f"at least first_step={self.first_step}")


@dataclasses.dataclass(frozen=True)
class Comparison(Settings):
  """A claim about one arm and another, which may fail."""

  outcome: str = setting("", "name in [outcomes]", required=True)
  arm: str = setting("", "name in [arms]", required=True)
  base: str = setting("", "the arm to compare with; '': the number 0")
  claim: str = setting(
    HIGHER, "what is claimed of arm less base", choices=CLAIMS
  )
  margin: float = setting(
    0.0,
    "smallest difference that the claim is about; of not_lower: the loss that "
    "is tolerated",
    minimum=0,
  )
  expected_sd: float = setting(
    0.0,
    "standard deviation over seeds of the difference that a pilot or an "
    "earlier experiment had, from which the plan's power follows; 0: unknown",
    minimum=0,
  )
  primary: bool = setting(
    True, "whether it decides, and is corrected for the other primary ones"
  )

  def check(self) -> None:
    """Refuses a claim of equal arms without what it tolerates."""
    if self.claim == NOT_LOWER and not self.margin:
      raise self.invalid("margin", f"a number above 0 with {NOT_LOWER!r}")
    if self.arm == self.base:
      raise self.invalid("base", "another arm")


@dataclasses.dataclass(frozen=True)
class Amendment(Settings):
  """A change of the plan that was made after runs had begun."""

  when: str = setting("", "the date, and which runs were done", required=True)
  why: str = setting("", "what was changed, and the reason", required=True)
  was: str = setting(
    "", "hash of the plan before it, as the error says it", required=True
  )
  adds: tuple[str, ...] = setting(
    (),
    "arms that the plan before it did not have; their comparisons decide "
    "nothing, because they were chosen after a look",
  )


@dataclasses.dataclass(frozen=True)
class Arm:
  """What is trained with each seed.

  Attributes:
    config: FILE:VARIANT.
    overrides: value by config key, those of `[set]` included.
  """

  config: str
  overrides: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Transition:
  """An outcome against a number that the arms vary.

  Attributes:
    outcome: name in [outcomes].
    axis: says what the number is, with its unit.
    lines: for each line, the number of each of its arms.
  """

  outcome: str
  axis: str
  lines: Mapping[str, Mapping[str, float]]


@dataclasses.dataclass(frozen=True)
class Plan:
  """A whole experiment; `plan_file.read` makes it.

  Attributes:
    name: of its folder.
    about: the top level of the file.
    preparations: in the order of the file.
    arms: by name, in the order of the file.
    scores: by name.
    outcomes: by name.
    comparisons: in the order of the file.
    panels: metric by title of a panel of curves.
    transition: a panel of the figure; None: there is none.
    rehearse: value by config key in a rehearsal.
    amendments: in the order of the file.
    is_rehearsal: whether `rehearsal` made it.
  """

  name: str
  about: About
  preparations: Sequence[Preparation]
  arms: Mapping[str, Arm]
  scores: Mapping[str, Score]
  outcomes: Mapping[str, Outcome]
  comparisons: Sequence[Comparison]
  panels: Mapping[str, str]
  rehearse: Mapping[str, Any]
  amendments: Sequence[Amendment] = ()
  transition: Transition | None = None
  is_rehearsal: bool = False

  def rehearsal(self) -> "Plan":
    """Returns the plan of a rehearsal, which shows that its commands work.

    It has one seed, the keys of `[rehearse]`, eight items a score, and means of
    metrics over all steps.
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
        name: Arm(arm.config, {**arm.overrides, **self.rehearse})
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
    """Returns the metrics that are read of runs."""
    of_outcomes = {
      name for one in self.outcomes.values() for name in (one.metric, one.minus)
    }
    return (of_outcomes | {*self.panels.values()}) - {""}

  def runs(self) -> list[tuple[str, int]]:
    """Returns arm and seed of each run, every arm's first seed first."""
    return [(arm, seed) for seed in self.about.seeds for arm in self.arms]

  def scores_of(self, arm: str) -> list[str]:
    """Returns the names of the benchmarks that an arm is scored on."""
    return [
      name
      for name, score in self.scores.items()
      if not score.arms or arm in score.arms
    ]
