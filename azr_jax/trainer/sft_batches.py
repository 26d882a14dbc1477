"""The batch of each step of supervised training, from a corpus in order.

Items, which are packed rows or conversations, are taken one after another. Each
epoch after the first has an order of its own.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Protocol

import jax
import numpy as np
from jaxtyping import Int

from azr_jax import types
from azr_jax.learner import packing, update
from azr_jax.learner.packing import TrainingExample
from azr_jax.randomness import streams
from azr_jax.randomness.purposes import Purpose


@dataclasses.dataclass(frozen=True)
class RowShape:
  """The shape of packed rows.

  Attributes:
    length: tokens of a row.
    max_sequences: maximum number of conversations in a row.
    count: B, the rows of a micro-batch.
  """

  length: int
  max_sequences: int
  count: int

  def pack(self, examples: Sequence[TrainingExample]) -> types.Batch:
    """Packs examples into rows [rows, S]."""
    return packing.pack(
      examples,
      row_length=self.length,
      max_sequences_per_row=self.max_sequences,
      rows_multiple=1,
      aggregation="token_mean",  # Over all rows; `_weighted` is per step.
    )


class Batches(Protocol):
  """The batches of a run.

  Attributes:
    per_epoch: steps per epoch, which may be a fraction.
    tokens: ids of the corpus, which hosts compare.
  """

  @property
  def per_epoch(self) -> float: ...
  @property
  def tokens(self) -> Int[np.ndarray, "..."]: ...

  def of_step(self, index: int) -> types.Batch:
    """Returns a step's micro-batches, arrays [A, B, S].

    Args:
      index: the number of the step, from 0.
    """
    ...


@dataclasses.dataclass(frozen=True)
class RowBatches:
  """Batches of a fixed number of packed rows.

  Attributes:
    rows: the corpus, arrays [rows, S].
    count: rows per step.
    seed: the run's seed.
  """

  rows: types.Batch
  count: int
  seed: int

  @property
  def per_epoch(self) -> float:
    """Steps per epoch."""
    return len(self.rows.tokens) / self.count

  @property
  def tokens(self) -> Int[np.ndarray, "rows S"]:
    """Ids of all rows."""
    return np.asarray(self.rows.tokens)

  def of_step(self, index: int) -> types.Batch:
    """Returns a step's rows as one micro-batch [1, B, S]."""
    taken = take(index, self.count, len(self.rows.tokens), self.seed)
    batch = jax.tree.map(lambda x: x[taken], self.rows)
    return update.to_micro_batches(_weighted(batch), self.count)


@dataclasses.dataclass(frozen=True)
class ConversationBatches:
  """Batches of a fixed number of conversations.

  Attributes:
    examples: the corpus.
    count: conversations per step.
    rows: how they are packed.
    micro_batches: A, enough for any step.
    seed: the run's seed.
  """

  examples: Sequence[TrainingExample]
  count: int
  rows: RowShape
  micro_batches: int
  seed: int

  @property
  def per_epoch(self) -> float:
    """Steps per epoch."""
    return len(self.examples) / self.count

  @property
  def tokens(self) -> Int[np.ndarray, " ids"]:
    """Ids of all conversations."""
    return np.concatenate([example.token_ids for example in self.examples])

  def of_step(self, index: int) -> types.Batch:
    """Returns a step's conversations as micro-batches [A, B, S]."""
    taken = take(index, self.count, len(self.examples), self.seed)
    batch = self.rows.pack([self.examples[i] for i in taken.tolist()])
    missing = self.micro_batches * self.rows.count - len(batch.tokens)
    batch = jax.tree.map(lambda x: np.pad(x, ((0, missing), (0, 0))), batch)
    return update.to_micro_batches(_weighted(batch), self.rows.count)


def of_rows(
  examples: Sequence[TrainingExample], rows: RowShape, step_rows: int, seed: int
) -> RowBatches:
  """Returns batches of `rows.count` full rows.

  Examples are packed in groups of about four steps, to keep their order.

  Args:
    examples: the corpus, in order.
    rows: how they are packed.
    step_rows: rows per step without padding to the mesh.
    seed: the run's seed.
  """
  mean = np.mean([len(example.token_ids) for example in examples])
  group = max(1, int(4 * step_rows * rows.length / mean))
  rng = streams.generator(seed, Purpose.CORPUS_ROWS)
  packed = []
  for first in range(0, len(examples), group):
    batch = rows.pack(examples[first : first + group])
    shuffle = rng.permutation(len(batch.tokens))
    packed.append(jax.tree.map(lambda x, s=shuffle: x[s], batch))
  joined = jax.tree.map(lambda *parts: np.concatenate(parts), *packed)
  return RowBatches(joined, rows.count, seed)


def of_conversations(
  examples: Sequence[TrainingExample],
  count: int,
  rows: RowShape,
  steps: int,
  seed: int,
) -> ConversationBatches:
  """Returns batches of `count` conversations, padded to the largest step's.

  Args:
    examples: the corpus, in order.
    count: conversations per step.
    rows: how they are packed.
    steps: steps of the run.
    seed: the run's seed.
  """
  lengths = [len(example.token_ids) - 1 for example in examples]
  most = 1
  for index in range(steps):
    taken = take(index, count, len(examples), seed).tolist()
    packed = packing.assign_rows(
      [lengths[i] for i in taken], rows.length, rows.max_sequences
    )
    most = max(most, math.ceil(len(packed) / rows.count))
  return ConversationBatches(examples, count, rows, most, seed)


def take(
  index: int, count: int, total: int, seed: int
) -> Int[np.ndarray, " count"]:
  """Returns the items of a step.

  Args:
    index: the number of the step, from 0.
    count: items per step.
    total: items per epoch.
    seed: the run's seed.
  """
  positions = np.arange(index * count, (index + 1) * count)
  epochs, places = np.divmod(positions, total)
  taken = places.copy()
  for epoch in np.unique(epochs[epochs > 0]).tolist():
    rng = streams.generator(seed, Purpose.CORPUS_EPOCHS, epoch)
    of_epoch = epochs == epoch
    taken[of_epoch] = rng.permutation(total)[places[of_epoch]]
  return taken


def _weighted(batch: types.Batch) -> types.Batch:
  """Returns rows whose weights give a mean over all trained tokens."""
  weights = batch.loss_mask / max(batch.loss_mask.sum(), 1)
  return batch.replace(loss_weights=weights)
