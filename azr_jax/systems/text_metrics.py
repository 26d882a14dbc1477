"""Signs of health of sampled text: truncation, repetition, reflection.

Definitions are those that the published ORZ code measures (seed 002, section 3
and figures 3-5); the paper names them without formulas.
"""

import re
from collections.abc import Sequence

import numpy as np

from azr_jax import types

# Case-sensitive, as published: a capital "Wait," does not count.
REFLECTIONS = (
  ("wait", re.compile(r"wait,")),
  ("recheck", re.compile(r"recheck[,\s]")),
  ("retry", re.compile(r"retry")),
  ("alternatively", re.compile(r"alternatively,")),
  ("however", re.compile(r"however,")),
)
# Of a tail that counts as repetition: tokens of a period, and periods.
_LONGEST_PERIOD = 128
_PERIODS = 4
_SHORTEST_TAIL = 16


def repeat_score(text: str) -> float:
  """How much of a text repeats itself, in [0, 1).

  2 / (n (n + 1)) times the sum of longest common prefixes of neighbours among
  the n sorted suffixes; 0 for a text of one letter.
  """
  codes = np.frombuffer(text.encode("utf-32-le"), np.uint32).astype(np.int64)
  n = len(codes)
  if n <= 1:
    return 0.0
  ranks = _prefix_ranks(codes)
  order = np.argsort(ranks[-1], kind="stable")
  one, other = order[:-1], order[1:]
  total = np.zeros(n - 1, np.int64)
  # From long prefixes to short ones: where those of 2^k agree, go past them.
  for level in range(len(ranks) - 1, -1, -1):
    rank, step = ranks[level], 1 << level
    a, b = one + total, other + total
    inside = (a + step <= n) & (b + step <= n)
    same = np.zeros(n - 1, bool)
    same[inside] = rank[a[inside]] == rank[b[inside]]
    total += same * step
  return float(2.0 * total.sum() / (n * (n + 1)))


def _prefix_ranks(codes: np.ndarray) -> list[np.ndarray]:
  """Ranks of the prefixes of lengths 1, 2, 4, ... of every suffix."""
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


def repeats_from(token_ids: np.ndarray) -> int | None:
  """Where a completion begins to repeat itself until its end, or None.

  The tail must be at least `_PERIODS` rounds of at most `_LONGEST_PERIOD`
  tokens; the first round is no repetition yet.
  """
  n = len(token_ids)
  best = None
  for period in range(1, min(_LONGEST_PERIOD, n // _PERIODS) + 1):
    if token_ids[-1] != token_ids[-1 - period]:
      continue
    same = token_ids[period:] == token_ids[:-period]
    breaks = np.flatnonzero(~same)
    onset = period + (int(breaks[-1]) + 1 if len(breaks) else 0)
    tail = n - onset
    if tail >= max((_PERIODS - 1) * period, _SHORTEST_TAIL):
      best = onset if best is None else min(best, onset)
  return best


def metrics(
  trajectories: Sequence[types.Trajectory],
  prefix: str,
  most_scored: int,
) -> dict[str, float]:
  """Health of a step's answers.

  Args:
    trajectories: with `correct` and perhaps `formatted` in their metrics.
    prefix: of the names, e.g. `health/orz`.
    most_scored: trajectories whose repetition is scored, evenly chosen, for a
      long text takes a tenth of a second.

  Returns:
    Shares of truncated and of well-formatted answers, mean repeat score,
    counts of reflection patterns per answer, the share of answers with any,
    and tokens of right answers with and without one.
  """
  completions = [t.completion for t in trajectories]
  texts = [completion.text for completion in completions]
  lengths = np.array([len(c.token_ids) for c in completions], float)
  correct = np.array([t.metrics["correct"] for t in trajectories], bool)
  counts = np.array(
    [[len(p.findall(text)) for _, p in REFLECTIONS] for text in texts]
  )
  reflective = counts.any(axis=1)
  chosen = np.linspace(
    0, len(texts) - 1, min(most_scored, len(texts)), dtype=int
  )
  found = {
    "truncated_share": np.mean(
      [c.finish_reason != "stop" for c in completions]
    ),
    "repeat_score": np.mean([repeat_score(texts[i]) for i in chosen]),
    "reflective_share": np.mean(reflective),
  }
  for (name, _), own in zip(REFLECTIONS, counts.T, strict=True):
    found[f"reflections/{name}"] = np.mean(own)
  if "formatted" in trajectories[0].metrics:
    found["formatted_share"] = np.mean(
      [t.metrics["formatted"] for t in trajectories]
    )
  for name, members in (
    ("correct_tokens", correct),
    ("wrong_tokens", ~correct),
    ("correct_reflective_tokens", correct & reflective),
  ):
    if members.any():
      found[name] = lengths[members].mean()
  return {f"{prefix}/{name}": float(value) for name, value in found.items()}
