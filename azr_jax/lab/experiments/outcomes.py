"""Reads an outcome of an arm's runs, as values by seed and item."""

import dataclasses
import math

import numpy as np
from jaxtyping import Float

from azr_jax.evals import score_files
from azr_jax.lab.experiments import folders
from azr_jax.lab.experiments.folders import Workdir
from azr_jax.lab.experiments.plan import START, OutcomeSettings


@dataclasses.dataclass(frozen=True)
class OutcomeValues:
  """One outcome's values, for the runs of an arm that recorded it.

  Attributes:
    seeds: seeds of the runs.
    items: question by item id, sorted; {} for a metric.
    values: values by seed and item.
  """

  seeds: tuple[int, ...]
  items: dict[str, str]
  values: Float[np.ndarray, "seeds items"]

  def of(self, seeds: tuple[int, ...]) -> Float[np.ndarray, "seeds items"]:
    """Returns the values of the given seeds, in their order."""
    return self.values[[self.seeds.index(seed) for seed in seeds]]


def read(
  workdir: Workdir, arm: str, outcome: OutcomeSettings
) -> OutcomeValues | None:
  """Returns an outcome of an arm or of the start; None if no run has it yet.

  Runs that have not reached the outcome's last step, or have no score yet, are
  left out.
  """
  if outcome.score:
    return _score(workdir, arm, outcome)
  return None if arm == START else _metric(workdir, arm, outcome)


def check_same_items(first: OutcomeValues, second: OutcomeValues) -> None:
  """Raises ValueError if two arms were scored on different items."""
  if first.items != second.items or (
    first.values.shape[1] != second.values.shape[1]
  ):
    raise ValueError(
      f"{len(first.items)} and {len(second.items)} items: expected scores of "
      "the same data"
    )


def _metric(
  workdir: Workdir, arm: str, outcome: OutcomeSettings
) -> OutcomeValues | None:
  found = {
    seed: _mean(folders.read_rows(workdir.run(arm, seed)), outcome)
    for seed in workdir.plan.about.seeds
  }
  known = {seed: x for seed, x in found.items() if not math.isnan(x)}
  if not known:
    return None
  values = np.array([*known.values()])[:, None]
  return OutcomeValues(tuple(known), {}, values)


def _mean(rows: list[dict[str, float]], outcome: OutcomeSettings) -> float:
  """Returns the metric's mean over the steps.

  NaN if the run has not reached `last_step`, or no step has the metric.
  """
  if not rows or rows[-1]["step"] < outcome.last_step:
    return math.nan
  names = [outcome.metric, *([outcome.minus] if outcome.minus else [])]
  values = [
    row[outcome.metric] - (row[outcome.minus] if outcome.minus else 0.0)
    for row in rows
    if outcome.first_step <= row["step"] <= outcome.last_step
    # Steps between evaluations, and other systems, lack the metric.
    if all(name in row for name in names)
  ]
  return float(np.mean(values)) if values else math.nan


def _score(
  workdir: Workdir, arm: str, outcome: OutcomeSettings
) -> OutcomeValues | None:
  if arm == START:
    by_seed = {0: workdir.start_scores(outcome.score)}
  else:
    by_seed = {
      seed: workdir.scores(arm, seed, outcome.score)
      for seed in workdir.plan.about.seeds
    }
  done = {
    s: folder for s, folder in by_seed.items() if folders.is_scored(folder)
  }
  if not done:
    return None
  benchmark = workdir.plan.scores[outcome.score].benchmark
  model = score_files.read_model(",".join(map(str, done.values())))
  num_items = int(model.scores[0][f"{benchmark}/items"])
  questions, correct = score_files.read_items(model, benchmark)
  ids = sorted(id_ for id_ in questions if id_.startswith(outcome.items))
  if outcome.items:
    num_items = len(ids)
    if not ids:
      raise ValueError(
        f"outcome {outcome.title!r}: expected items of {benchmark} whose ids "
        f"start with {outcome.items!r}; there are none"
      )
  values = score_files.values(correct, ids, num_items, outcome.k)
  return OutcomeValues(
    tuple(done), {id_: questions[id_] for id_ in ids}, values
  )
