"""Lowers the reward of proposals that are like others of their step (R-Zero).

The proposals of a task type are put into clusters by their BLEU distance,

  d(x, y) = 1 - (BLEU(x, y) + BLEU(y, x)) / 2,

merged by average linkage up to a distance. One of cluster C loses
lambda |C| / B, where B counts all proposals of the type in the step.

Paper: R-Zero (arXiv 2508.05004). It clusters questions, whose words are split
at spaces, and computes BLEU in one direction. Programs have few spaces, so here
words and signs are the tokens.
"""

import collections
import dataclasses
import math
import re
from collections.abc import Sequence

import numpy as np
from scipy.cluster import hierarchy
from scipy.spatial import distance as distances

from azr_jax.config.settings import Settings, setting
from azr_jax.tasks.programs.task import InductionTask, Task

_TOKENS = re.compile(r"\w+|[^\w\s]")
# The longest n-grams of BLEU.
_MAX_ORDER = 4
# Matches of an order that has none (method 1 of Chen and Cherry, 2014).
_SMOOTHING = 0.1


@dataclasses.dataclass(frozen=True)
class RepetitionSettings(Settings):
  """R-Zero's repetition penalty of proposals, which AZR does not have."""

  penalty: float = setting(
    0.0,
    "lambda, what a proposal like all others of its step loses; 0: off",
    paper="0; R-Zero: 1",
    minimum=0,
  )
  distance: float = setting(
    0.5,
    "largest mean BLEU distance of clusters that are merged, R-Zero's 0.5",
    minimum=0,
    maximum=1,
    expert=True,
  )


def penalties(
  proposed: Sequence[tuple[str, Task | None]], settings: RepetitionSettings
) -> list[float]:
  """Returns what each proposal of a step loses; 0 without a task.

  Args:
    proposed: (task type, task) of each; None: it has no task.
    settings: lambda, and how near the proposals of a cluster are.
  """
  lost = [0.0] * len(proposed)
  if not settings.penalty:
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
    sizes = cluster_sizes([*texts.values()], settings.distance)
    for index, size in zip(texts, sizes, strict=True):
      lost[index] = settings.penalty * size / len(members)
  return lost


def text(task: Task) -> str:
  """Returns what the proposer wrote of a task."""
  if isinstance(task, InductionTask):
    return "\n".join((*task.inputs, task.message))
  return f"{task.code}\n{task.input}"


def cluster_sizes(texts: Sequence[str], distance: float) -> list[int]:
  """Returns the size of the cluster that each text is in.

  Args:
    texts: the texts.
    distance: clusters are merged while the mean distance of their texts is at
      most this.
  """
  if len(texts) < 2:
    return [1] * len(texts)
  tokens = [_TOKENS.findall(one) for one in texts]
  grams = [_ngrams(one) for one in tokens]
  matrix = np.zeros((len(texts), len(texts)))
  for i in range(len(texts)):
    for j in range(i):
      similarity = (_bleu(grams[i], grams[j]) + _bleu(grams[j], grams[i])) / 2
      matrix[i, j] = matrix[j, i] = max(1.0 - similarity, 0.0)
  linked = hierarchy.linkage(distances.squareform(matrix), method="average")
  labels = hierarchy.fcluster(linked, distance, criterion="distance")
  sizes = collections.Counter(labels.tolist())
  return [sizes[label] for label in labels.tolist()]


def bleu(candidate: str, reference: str) -> float:
  """Returns BLEU of one text with one reference (Papineni et al., 2002).

  It is the geometric mean of the precisions of 1- to 4-grams, of as many orders
  as the candidate has, times exp(1 - r / c) if it is shorter: r and c are the
  numbers of tokens. An order without a match counts as a tenth of one.
  """
  return _bleu(
    _ngrams(_TOKENS.findall(candidate)), _ngrams(_TOKENS.findall(reference))
  )


_Grams = list[collections.Counter[tuple[str, ...]]]


def _ngrams(tokens: Sequence[str]) -> _Grams:
  """Returns the counts of the n-grams of each order that the tokens have."""
  return [
    collections.Counter(zip(*(tokens[i:] for i in range(order)), strict=False))
    for order in range(1, min(_MAX_ORDER, len(tokens)) + 1)
  ]


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
