"""Compares models on benchmarks, with bootstrap intervals.

Models are paired item by item. A model has one folder per seed, and all folders
must have the same items.
"""

import dataclasses
from collections.abc import Iterator, Sequence

from azr_jax.evals import score_files, statistics
from azr_jax.evals.score_files import ScoredModel
from azr_jax.randomness import streams
from azr_jax.randomness.purposes import Purpose


@dataclasses.dataclass(frozen=True)
class Options:
  """How to compare models.

  Attributes:
    benchmarks: the benchmarks to compare on; () uses all that both models have.
    k: the k of pass@k.
    resamples: the number of bootstrap resamples.
    confidence: the confidence level of the intervals, between 0 and 1.
    seed: the seed of the resamples.
  """

  benchmarks: tuple[str, ...] = ()
  k: int = 1
  resamples: int = 10_000
  confidence: float = 0.95
  seed: int = 0


@dataclasses.dataclass(frozen=True)
class Comparison:
  """Two models compared on one benchmark.

  Attributes:
    num_items: the number of items, which both models have in common.
    first: the score of the first model.
    second: the score of the second model.
    difference: the second score minus the first.
  """

  benchmark: str
  num_items: int
  first: statistics.ModelScore
  second: statistics.ModelScore
  difference: statistics.Difference


def compare(
  first: ScoredModel, second: ScoredModel, options: Options
) -> Iterator[Comparison]:
  """Yields a comparison for each benchmark that both models have.

  Raises:
    ValueError: the models share no benchmark or were scored on different items.
  """
  common = [n for n in first.benchmarks() if n in second.benchmarks()]
  names = options.benchmarks or tuple(common)
  missing = [name for name in names if name not in common]
  if missing or not names:
    raise ValueError(
      f"{first.name} and {second.name}: expected records of "
      f"{' and '.join(missing) or 'a common benchmark'} in each folder; both "
      f"have {common or 'none'}"
    )
  for name in names:
    yield _compare(first, second, name, options)


def _compare(
  first: ScoredModel, second: ScoredModel, name: str, options: Options
) -> Comparison:
  """Compares the models on one benchmark."""
  count = num_items((first, second), name)
  questions, correct_of_first = score_files.read_items(first, name)
  others, correct_of_second = score_files.read_items(second, name)
  different = [
    id_
    for id_ in questions.keys() & others.keys()
    if questions[id_] != others[id_]
  ]
  if different:
    raise ValueError(
      f"{name}: item {min(different)} is another question in {first.name} than "
      f"in {second.name}: expected scores of the same data"
    )
  ids = list(questions | others)
  if len(ids) > count:
    raise ValueError(
      f"{name}: {first.name} and {second.name} have records of {len(ids)} "
      f"items, but scores of {count}: expected the same items; evaluate "
      "both with the same --data and --limit"
    )
  a, b = (
    score_files.values(correct, ids, count, options.k)
    for correct in (correct_of_first, correct_of_second)
  )
  return Comparison(
    name,
    count,
    statistics.estimate(a),
    statistics.estimate(b),
    statistics.difference(
      a,
      b,
      options.resamples,
      options.confidence,
      streams.generator(options.seed, Purpose.RESAMPLES),
    ),
  )


def common_benchmark(models: Sequence[ScoredModel], name: str = "") -> str:
  """Returns the benchmark that all models were scored on.

  Args:
    models: scored models, at least one.
    name: the benchmark to choose if they have several; "" if they have one.

  Raises:
    ValueError: a model lacks it, or there are several to choose from.
  """
  common = [
    one
    for one in models[0].benchmarks()
    if all(one in model.benchmarks() for model in models)
  ]
  if not name and len(common) == 1:
    return common[0]
  if name not in common:
    raise ValueError(
      f"--benchmark={name}: expected one of {common}, on which "
      f"{' and '.join(model.name for model in models)} were scored"
    )
  return name


def num_items(models: Sequence[ScoredModel], name: str) -> int:
  """Returns the number of items that every folder was scored on.

  Raises:
    ValueError: the folders differ.
  """
  counts = {
    str(folder): int(scores[f"{name}/items"])
    for model in models
    for folder, scores in zip(model.folders, model.scores, strict=True)
  }
  if len({*counts.values()}) > 1:
    shown = ", ".join(f"{folder} has {n}" for folder, n in counts.items())
    raise ValueError(
      f"{name}: expected scores of the same items, but {shown}; evaluate all "
      "with the same --limit"
    )
  return next(iter(counts.values()))


def show(comparisons: Sequence[Comparison], confidence: float) -> str:
  """Returns a Markdown table of comparisons, in percent."""
  level = f"{100 * confidence:g} %"
  lines = [
    "| benchmark | items | first | second | difference "
    f"| {level} over items | {level} over items and seeds | better, worse |",
    "|" + " --- |" * 8,
  ]
  for one in comparisons:
    lines.append(
      " | ".join(
        (
          f"| {one.benchmark}",
          str(one.num_items),
          show_estimate(one.first),
          show_estimate(one.second),
          _show_difference(one.difference),
          _show_interval(one.difference.over_items),
          _show_interval(one.difference.over_both),
          f"{one.difference.better}, {one.difference.worse} |",
        )
      )
    )
  return "\n".join(lines)


def show_estimate(one: statistics.ModelScore) -> str:
  """Formats a score in percent with its errors, for a table cell."""
  text = f"{100 * one.mean:.1f} +- {100 * one.item_stderr:.1f}"
  if one.seed_stderr is None:
    return text
  return f"{text} (items) +- {100 * one.seed_stderr:.1f} (seeds)"


def _show_difference(one: statistics.Difference) -> str:
  text = f"{100 * one.mean:+.1f} +- {100 * one.item_stderr:.1f}"
  if one.seed_stderr is None:
    return text
  return f"{text} (items) +- {100 * one.seed_stderr:.1f} (seeds)"


def _show_interval(interval: tuple[float, float] | None) -> str:
  if interval is None:
    return "one seed each"
  low, high = interval
  return f"{100 * low:+.1f} to {100 * high:+.1f}"
