"""Penalizes proposals that resemble others of their step (R-Zero).

Proposals of a task type are clustered by BLEU distance,

  d(x, y) = 1 - (BLEU(x, y) + BLEU(y, x)) / 2,

with average linkage up to a threshold. Each member of cluster C loses
lambda |C| / B, where B counts all proposals of the type in the step.

Paper: R-Zero (arXiv 2508.05004). It clusters questions, splits words at spaces,
and computes BLEU in one direction. Programs have few spaces, so here each word
and each punctuation mark is a token.
"""

import collections
import dataclasses
import math
import re
from collections.abc import Sequence

import numpy as np
import scipy

from azr_jax.config.settings import Settings, setting
from azr_jax.tasks.programs.task import (
  EnvironmentTask,
  InductionTask,
  Task,
  Triplet,
)

_TOKENS = re.compile(r"\w+|[^\w\s]")
# The maximum n-gram order of BLEU.
_MAX_ORDER = 4
# Match count of orders without a match (Chen and Cherry, 2014, method 1).
_SMOOTHING = 0.1


@dataclasses.dataclass(frozen=True)
class RepetitionSettings(Settings):
  """R-Zero's repetition penalty for proposals; AZR has none."""

  penalty: float = setting(
    0.0,
    "lambda, penalty if all proposals of the step are alike; 0 disables it",
    paper="0; R-Zero: 1",
    minimum=0,
  )
  distance: float = setting(
    0.5,
    "maximum mean BLEU distance for merging clusters; R-Zero uses 0.5",
    minimum=0,
    maximum=1,
    expert=True,
  )


def penalties(
  proposed: Sequence[tuple[str, Task | None]], penalty: float, distance: float
) -> list[float]:
  """Returns the penalty of each proposal of a step; 0 without a task.

  Args:
    proposed: (task type, task or None) of each proposal.
    penalty: lambda, the penalty if all proposals of a type are alike.
    distance: the maximum mean BLEU distance for merging clusters.
  """
  lost = [0.0] * len(proposed)
  if not penalty:
    return lost
  members_of: dict[str, list[int]] = {}
  for index, (task_type, _) in enumerate(proposed):
    members_of.setdefault(task_type, []).append(index)
  for members in members_of.values():
    texts = {
      index: text(task)
      for index in members
      if (task := proposed[index][1]) is not None
    }
    sizes = cluster_sizes([*texts.values()], distance)
    for index, size in zip(texts, sizes, strict=True):
      lost[index] = penalty * size / len(members)
  return lost


def text(task: Task) -> str:
  """Returns the part of a task that the proposer wrote."""
  if isinstance(task, InductionTask):
    return "\n".join((*task.inputs, task.message))
  assert isinstance(task, Triplet | EnvironmentTask)
  written = task.input if isinstance(task, Triplet) else task.message
  return f"{task.code}\n{written}"


def cluster_sizes(texts: Sequence[str], distance: float) -> list[int]:
  """Returns the size of each text's cluster.

  Args:
    texts: the texts to cluster.
    distance: the maximum mean distance at which clusters are merged.
  """
  if len(texts) < 2:
    return [1] * len(texts)
  tokens = [_TOKENS.findall(one) for one in texts]
  grams = [_ngrams(one) for one in tokens]
  matrix = np.zeros((len(texts), len(texts)))
  for i in range(len(texts)):
    for j in range(i):
      matrix[i, j] = matrix[j, i] = _distance(grams[i], grams[j])
  pairs = scipy.spatial.distance.squareform(matrix)
  linked = scipy.cluster.hierarchy.linkage(pairs, method="average")
  labels = scipy.cluster.hierarchy.fcluster(
    linked, distance, criterion="distance"
  )
  sizes = collections.Counter(labels.tolist())
  return [sizes[label] for label in labels.tolist()]


def distance_to(text: str, other: str) -> float:
  """Returns the BLEU distance d of two texts, from 0 to 1."""
  grams, others = (_ngrams(_TOKENS.findall(one)) for one in (text, other))
  return _distance(grams, others)


def bleu(candidate: str, reference: str) -> float:
  """Returns the BLEU score of a text for one reference (Papineni et al., 2002).

  This is the geometric mean of the 1- to 4-gram precisions, for as many orders
  as the candidate has. A candidate of c tokens that is shorter than the
  reference of r tokens is multiplied by exp(1 - r / c). An order without a
  match counts as a tenth of a match.
  """
  return _bleu(
    _ngrams(_TOKENS.findall(candidate)), _ngrams(_TOKENS.findall(reference))
  )


_Grams = list[collections.Counter[tuple[str, ...]]]


def _ngrams(tokens: Sequence[str]) -> _Grams:
  """Returns n-gram counts for each order up to the number of tokens."""
  return [
    collections.Counter(zip(*(tokens[i:] for i in range(order)), strict=False))
    for order in range(1, min(_MAX_ORDER, len(tokens)) + 1)
  ]


def _distance(grams: _Grams, others: _Grams) -> float:
  similarity = (_bleu(grams, others) + _bleu(others, grams)) / 2
  return max(1.0 - similarity, 0.0)


def _bleu(candidate: _Grams, reference: _Grams) -> float:
  if not candidate or not reference:
    return float(candidate == reference)
  total = 0.0
  for order, counts in enumerate(candidate):
    others = reference[order] if order < len(reference) else {}
    matches = sum(
      min(count, others.get(gram, 0)) for gram, count in counts.items()
    )
    total += math.log((matches or _SMOOTHING) / counts.total())
  shorter = reference[0].total() / candidate[0].total()
  return math.exp(total / len(candidate) + min(1.0 - shorter, 0.0))
