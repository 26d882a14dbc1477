"""Metrics of sampled text: truncation, repetition, reflection.

The ORZ paper names them without formulas (section 3, figures 3 to 5). The
formulas here are those of its published code.
"""

import re
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Int

from azr_jax import types

# Case-sensitive, as in the published code: "Wait," does not count.
REFLECTIONS = (
  ("wait", re.compile(r"wait,")),
  ("recheck", re.compile(r"recheck[,\s]")),
  ("retry", re.compile(r"retry")),
  ("alternatively", re.compile(r"alternatively,")),
  ("however", re.compile(r"however,")),
)
# A completion ends in a repetition if its tail has at least `_MIN_PERIODS`
# periods of at most `_MAX_PERIOD` tokens and repeats at least `_MIN_REPEATED`.
_MAX_PERIOD = 128
_MIN_PERIODS = 4
_MIN_REPEATED = 16


def repeat_score(text: str) -> float:
  """Returns how repetitive a text is, in [0, 1).

  Sorts the n suffixes of the text and sums the longest common prefix lengths of
  neighbours. The score is 2 / (n (n + 1)) times this sum, and 0 for fewer than
  two characters.
  """
  characters = text.encode("utf-32-le", "surrogatepass")
  codes = np.frombuffer(characters, np.uint32).astype(np.int64)
  n = len(codes)
  if n <= 1:
    return 0.0
  ranks = _prefix_ranks(codes)
  order = np.argsort(ranks[-1], kind="stable")
  first, second = order[:-1], order[1:]
  common = np.zeros(n - 1, np.int64)
  # Skip equal blocks of 2^k characters, from the largest k to the smallest, as
  # in a binary search.
  for level in range(len(ranks) - 1, -1, -1):
    rank, step = ranks[level], 1 << level
    a, b = first + common, second + common
    inside = (a + step <= n) & (b + step <= n)
    same = np.zeros(n - 1, bool)
    same[inside] = rank[a[inside]] == rank[b[inside]]
    common += same * step
  return float(2.0 * common.sum() / (n * (n + 1)))


def _prefix_ranks(
  codes: Int[np.ndarray, " characters"],
) -> list[Int[np.ndarray, " characters"]]:
  """Returns the ranks of every suffix's first 1, 2, 4, ... characters."""
  n = len(codes)
  rank = np.unique(codes, return_inverse=True)[1]
  ranks = [rank]
  step = 1
  while step < n and rank.max() < n - 1:
    after = np.full(n, -1)
    after[:-step] = rank[step:]
    pairs = rank.astype(np.int64) * (n + 1) + after + 1
    rank = np.unique(pairs, return_inverse=True)[1]
    ranks.append(rank)
    step *= 2
  return ranks


def repetition_onset(token_ids: Int[np.ndarray, " S"]) -> int | None:
  """Returns the index from which a completion repeats itself to its end.

  The first period does not count as repeated. Returns None if the completion
  does not end in a repetition.
  """
  n = len(token_ids)
  first = None
  for period in range(1, min(_MAX_PERIOD, n // _MIN_PERIODS) + 1):
    if token_ids[-1] != token_ids[-1 - period]:
      continue
    same = token_ids[period:] == token_ids[:-period]
    breaks = np.flatnonzero(~same)
    onset = period + (int(breaks[-1]) + 1 if len(breaks) else 0)
    if n - onset >= max((_MIN_PERIODS - 1) * period, _MIN_REPEATED):
      first = onset if first is None else min(first, onset)
  return first


def metrics(
  trajectories: Sequence[types.Trajectory],
  prefix: str,
  max_scored: int = 256,
) -> dict[str, float]:
  """Returns text metrics of a step's answers.

  Args:
    trajectories: the answers, optionally with the metrics `correct` and
      `formatted`.
    prefix: the prefix of the metric names, such as `health/orz`.
    max_scored: the maximum number of answers, evenly spaced, whose repetition
      is scored. Scoring a long text takes a tenth of a second.

  Returns:
    The fractions of answers that are truncated, well formed, or contain a
    reflection pattern; the mean repeat score; the mean count of each pattern.
    With grades, also the mean tokens of correct answers, of wrong answers, and
    of correct answers with a pattern.
  """
  completions = [t.completion for t in trajectories]
  texts = [completion.text for completion in completions]
  lengths = np.array([len(c.token_ids) for c in completions], float)
  counts = np.array(
    [[len(p.findall(text)) for _, p in REFLECTIONS] for text in texts]
  )
  reflective = np.any(counts, axis=1)
  chosen = np.linspace(
    0, len(texts) - 1, min(max_scored, len(texts)), dtype=int
  )
  values = {
    "truncated_fraction": np.mean(
      [c.finish_reason != "stop" for c in completions]
    ),
    "repeat_score": np.mean([repeat_score(texts[i]) for i in chosen]),
    "reflective_fraction": np.mean(reflective),
  }
  for (name, _), per_answer in zip(REFLECTIONS, counts.T, strict=True):
    values[f"reflections/{name}"] = np.mean(per_answer)
  if "formatted" in trajectories[0].metrics:
    values["formatted_fraction"] = np.mean(
      [t.metrics["formatted"] for t in trajectories]
    )
  if "correct" in trajectories[0].metrics:
    values |= _lengths_by_grade(trajectories, lengths, reflective)
  return {f"{prefix}/{name}": float(value) for name, value in values.items()}


def _lengths_by_grade(
  trajectories: Sequence[types.Trajectory],
  lengths: Float[np.ndarray, " trajectories"],
  reflective: Bool[np.ndarray, " trajectories"],
) -> dict[str, float]:
  """Returns mean tokens of correct, wrong, and correct reflective answers.

  Args:
    trajectories: the answers, with the metric `correct`.
    lengths: the tokens of each answer.
    reflective: whether each answer has a reflection pattern.
  """
  values = {}
  correct = np.array([t.metrics["correct"] for t in trajectories], bool)
  for name, members in (
    ("correct_tokens", correct),
    ("wrong_tokens", ~correct),
    ("correct_reflective_tokens", correct & reflective),
  ):
    if members.any():
      values[name] = lengths[members].mean()
  return values
