"""Splits a gain into changed styles of answers and better answers.

With s_k the share of answers that have style k, a_k the accuracy of these
answers, and 0 and 1 for before and after, the accuracy is the sum of s_k a_k.
The gain is exactly the sum of two parts (Kitagawa 1955):

  shares  sum over k of (s_k1 - s_k0) * (a_k0 + a_k1) / 2
  within  sum over k of (a_k1 - a_k0) * (s_k0 + s_k1) / 2

A style that one side never uses has no accuracy there. It gets the other
side's, so all that it adds counts as a changed share.

Errors come from a bootstrap over items, the same items on both sides. Seeds and
the sampling of answers are fixed.
"""

import collections
import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from jaxtyping import Float

from azr_jax.evals import record_files, score_files
from azr_jax.evals.score_files import ScoredModel
from azr_jax.evals.styles import StyleRule

# The style of an item whose prompt was too long, and of rare styles.
NO_ANSWER, OTHERS = "(no answer)", "(others)"
# Maximum number of random weights in memory at a time.
_CHUNK = 1 << 22


@dataclasses.dataclass(frozen=True)
class StyledItem:
  """The answers to an item.

  Attributes:
    subset: the subset of the item; "" if there are none.
    question: identifies the item, besides its id.
    styles: the style of each answer.
    correct: whether each answer is correct.
  """

  subset: str
  question: str
  styles: tuple[str, ...]
  correct: tuple[bool, ...]


_MISSING = StyledItem("", "", (NO_ANSWER,), (False,))


@dataclasses.dataclass(frozen=True)
class StyleTable:
  """The answers of one model, as fractions of each item's answers.

  Attributes:
    shares: the answers in each style.
    right: the correct answers in each style.
  """

  shares: Float[np.ndarray, "items styles"]
  right: Float[np.ndarray, "items styles"]


# A number and its standard error.
Estimate = tuple[float, float]


@dataclasses.dataclass(frozen=True)
class Decomposition:
  """A gain and its parts, with standard errors over items.

  Attributes:
    items: the number of items.
    styles: the names of the styles.
    accuracy: the accuracy of each model: before, after, and perhaps told.
    share: the share of each style, by model.
    within: the accuracy of the answers in each style, by model. None if a model
      never uses a style.
    gain: accuracy after minus before.
    from_shares: the part of the gain that comes from changed shares.
    from_within: the part that comes from changes within styles.
    change_within: after minus before of `within`, by style.
    told_gain: accuracy told minus before; None without a told model.
    beyond_told: accuracy after minus told; None without a told model.
  """

  items: int
  styles: tuple[str, ...]
  accuracy: tuple[Estimate, ...]
  share: tuple[tuple[Estimate, ...], ...]
  within: tuple[tuple[Estimate | None, ...], ...]
  gain: Estimate
  from_shares: Estimate
  from_within: Estimate
  change_within: tuple[Estimate | None, ...]
  told_gain: Estimate | None = None
  beyond_told: Estimate | None = None


def read(
  model: ScoredModel, benchmark: str, rule: StyleRule | None
) -> dict[str, StyledItem]:
  """Returns the answers to a benchmark's items, by item id.

  Answers of several folders (seeds) are joined.

  Args:
    model: the folders of `azr_jax.evaluate`.
    benchmark: the name of the benchmark.
    rule: names the styles. None uses the styles in the records.

  Raises:
    ValueError: the records have no styles, or the rule fails.
  """
  questions, _ = score_files.read_items(model, benchmark)
  styles: dict[str, list[str]] = {id_: [] for id_ in questions}
  correct: dict[str, list[bool]] = {id_: [] for id_ in questions}
  subsets: dict[str, str] = {}
  for folder in model.folders:
    path = folder / f"{benchmark}.jsonl"
    for record in record_files.read(path):
      if rule is None and "styles" not in record:
        raise ValueError(
          f"{path} has no styles: expected scores with evaluate.style, or "
          "--style"
        )
      id_ = str(record["id"])
      styles[id_] += rule(record) if rule else record["styles"]
      correct[id_] += record["correct"]
      subsets[id_] = str(record.get("subset", ""))
  return {
    id_: StyledItem(
      subsets[id_], question, tuple(styles[id_]), tuple(correct[id_])
    )
    for id_, question in questions.items()
  }


def tables(
  models: Sequence[Mapping[str, StyledItem]], num_items: int, min_share: float
) -> tuple[tuple[str, ...], list[str], list[StyleTable]]:
  """Returns the styles, each item's subset, and each model's answers.

  An item that a model did not answer counts as a wrong answer of style
  `NO_ANSWER`.

  Args:
    models: answers by item id, one mapping per model.
    num_items: the number of items, including those that no model answered.
    min_share: a style that is rarer than this in each model joins `OTHERS`.

  Raises:
    ValueError: the models were scored on different items.
  """
  ids = sorted({id_ for items in models for id_ in items})
  if len(ids) > num_items:
    raise ValueError(
      f"records of {len(ids)} items, but scores of {num_items}: expected the "
      "same items; evaluate all with the same --data and --limit"
    )
  subsets = [_subset(id_, models) for id_ in ids]
  # An item without any record still counts.
  unanswered = num_items - len(ids)
  ids += [f"(item without a record {number})" for number in range(unanswered)]
  subsets += [""] * unanswered
  rows = [[items.get(id_, _MISSING) for id_ in ids] for items in models]
  names = _kept_styles(rows, min_share)
  return names, subsets, [_table(items, names) for items in rows]


def _subset(id_: str, models: Sequence[Mapping[str, StyledItem]]) -> str:
  found = [items[id_] for items in models if id_ in items]
  if len({item.question for item in found}) > 1:
    raise ValueError(
      f"item {id_} has different questions: expected scores of the same data"
    )
  return found[0].subset


def _kept_styles(
  models: Sequence[Sequence[StyledItem]], min_share: float
) -> tuple[str, ...]:
  """Returns the styles, sorted; `OTHERS` ends them if some are too rare."""
  largest: dict[str, float] = {}
  for items in models:
    share: dict[str, float] = collections.defaultdict(float)
    for item in items:
      for style in item.styles:
        share[style] += 1 / len(item.styles) / len(items)
    for style, value in share.items():
      largest[style] = max(value, largest.get(style, 0.0))
  kept = sorted(style for style, value in largest.items() if value >= min_share)
  return (*kept, OTHERS) if len(kept) < len(largest) else tuple(kept)


def _table(items: Sequence[StyledItem], names: Sequence[str]) -> StyleTable:
  columns = {style: index for index, style in enumerate(names)}
  shares, right = np.zeros((2, len(items), len(names)))
  for row, item in enumerate(items):
    for style, is_right in zip(item.styles, item.correct, strict=True):
      column = columns.get(style, len(names) - 1)
      shares[row, column] += 1 / len(item.styles)
      right[row, column] += is_right / len(item.styles)
  return StyleTable(shares, right)


def decompose(
  styles: tuple[str, ...],
  models: Sequence[StyleTable],
  resamples: int,
  rng: np.random.Generator,
) -> Decomposition:
  """Splits the gain of the second model over the first.

  Args:
    styles: the names of the styles.
    models: the answers before, after, and perhaps of a third model that was
      told how to begin.
    resamples: the number of bootstrap resamples.
    rng: draws them.
  """
  count = len(models[0].shares)
  rows = np.stack([[m.shares, m.right] for m in models])
  flat = np.moveaxis(rows, 2, 0).reshape(count, -1)
  observed = _quantities(flat.mean(axis=0), len(models))
  chunks: dict[str, list[np.ndarray]] = collections.defaultdict(list)
  size = max(1, _CHUNK // count)
  for start in range(0, resamples, size):
    draws = min(size, resamples - start)
    weights = rng.multinomial(count, np.full(count, 1 / count), size=draws)
    resampled = _quantities(weights @ flat / count, len(models))
    for name, values in resampled.items():
      chunks[name].append(values)
  errors = {name: _deviation(np.concatenate(v)) for name, v in chunks.items()}

  def known(name: str) -> tuple[Estimate, ...]:
    pairs = zip(observed[name].ravel(), errors[name].ravel(), strict=True)
    return tuple((float(x), float(error)) for x, error in pairs)

  def perhaps(name: str) -> tuple[Estimate | None, ...]:
    return tuple(None if math.isnan(one[0]) else one for one in known(name))

  size, told = len(styles), {}
  if len(models) > 2:
    told = {n: known(n)[0] for n in ("told_gain", "beyond_told")}
  starts = range(0, size * len(models), size)
  return Decomposition(
    count,
    styles,
    known("accuracy"),
    tuple(known("share")[i : i + size] for i in starts),
    tuple(perhaps("within")[i : i + size] for i in starts),
    known("gain")[0],
    known("from_shares")[0],
    known("from_within")[0],
    perhaps("change_within"),
    **told,
  )


def _quantities(
  means: Float[np.ndarray, "*B columns"], num_models: int
) -> dict[str, Float[np.ndarray, "..."]]:
  """Returns all estimates, given the means over items of the flat tables."""
  means = means.reshape(*means.shape[:-1], num_models, 2, -1)
  share, right = means[..., 0, :], means[..., 1, :]
  with np.errstate(divide="ignore", invalid="ignore"):
    within = np.where(share > 0, right / share, np.nan)
  s0, s1 = share[..., 0, :], share[..., 1, :]
  a0, a1 = within[..., 0, :], within[..., 1, :]
  change = a1 - a0
  a0, a1 = np.where(s0 > 0, a0, a1), np.where(s1 > 0, a1, a0)
  a0, a1 = np.nan_to_num(a0), np.nan_to_num(a1)
  accuracy = right.sum(axis=-1)
  found = {
    "accuracy": accuracy,
    "share": share,
    "within": within,
    "gain": accuracy[..., 1] - accuracy[..., 0],
    "from_shares": ((s1 - s0) * (a0 + a1) / 2).sum(axis=-1),
    "from_within": ((a1 - a0) * (s0 + s1) / 2).sum(axis=-1),
    "change_within": change,
  }
  if num_models > 2:
    found["told_gain"] = accuracy[..., 2] - accuracy[..., 0]
    found["beyond_told"] = accuracy[..., 1] - accuracy[..., 2]
  return found


def _deviation(
  values: Float[np.ndarray, "resamples ..."],
) -> Float[np.ndarray, "..."]:
  """Returns the standard deviation over resamples that have a value."""
  known = ~np.isnan(values)
  counts = np.maximum(known.sum(axis=0), 1)
  filled = np.where(known, values, 0.0)
  mean = filled.sum(axis=0) / counts
  squares = np.where(known, (values - mean) ** 2, 0.0).sum(axis=0)
  return np.asarray(np.sqrt(squares / np.maximum(counts - 1, 1)))


def by_subset(
  styles: tuple[str, ...],
  subsets: Sequence[str],
  models: Sequence[StyleTable],
  resamples: int,
  rng: np.random.Generator,
) -> Iterator[tuple[str, Decomposition]]:
  """Yields the decomposition of all items (""), then of each subset."""
  yield "", decompose(styles, models, resamples, rng)
  names = [name for name in dict.fromkeys(subsets) if name]
  for name in names if len(names) > 1 else ():
    chosen = np.array([subset == name for subset in subsets])
    part = [StyleTable(m.shares[chosen], m.right[chosen]) for m in models]
    yield name, decompose(styles, part, resamples, rng)


def show(name: str, one: Decomposition, names: Sequence[str]) -> str:
  """Returns Markdown tables of a decomposition, in percent.

  Args:
    name: the head of the first column.
    one: the decomposition.
    names: the names of the models.
  """
  lines = [
    f"| {name} | {' | '.join(names)} |",
    "|" + " --- |" * (1 + len(names)),
  ]
  rows: list[tuple[str, Sequence[Estimate | None]]] = [
    ("accuracy", one.accuracy)
  ]
  for index, style in enumerate(one.styles):
    rows.append((f"share of `{style}`", [m[index] for m in one.share]))
    rows.append((f"accuracy of `{style}`", [m[index] for m in one.within]))
  lines += [f"| {head} | {' | '.join(map(_show, row))} |" for head, row in rows]
  parts: list[tuple[str, Estimate | None]] = [
    ("gain", one.gain),
    ("from changed shares", one.from_shares),
    ("within styles", one.from_within),
    *(
      (f"change of accuracy of `{style}`", change)
      for style, change in zip(one.styles, one.change_within, strict=True)
    ),
  ]
  if one.told_gain is not None:
    parts += [
      (f"{names[2]} - {names[0]}", one.told_gain),
      (f"{names[1]} - {names[2]}", one.beyond_told),
    ]
  lines += ["", f"| {names[1]} - {names[0]} | points |", "| --- | --- |"]
  lines += [f"| {head} | {_show(value, sign='+')} |" for head, value in parts]
  return "\n".join(lines)


def _show(value: Estimate | None, sign: str = "") -> str:
  if value is None:
    return "-"
  mean, error = value
  return f"{100 * mean:{sign}.1f} +- {100 * error:.1f}"
