"""Packing: many sequences of different lengths into fixed-shape rows.

The life of a sequence here:
1. prompt and completion ids are joined; targets are the ids shifted by one;
2. sequences are packed into rows of `row_length`, first-fit, longest first;
3. rows are padded to a multiple of `rows_multiple`; `update.py` cuts them into
   micro-batches [A, B, S].
"""

import dataclasses
from collections.abc import Hashable, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Float32, Int32, Shaped, UInt

from azr_jax import types
from azr_jax.models.config import ExpertShape

GROUP_MEAN = "group_mean"
AGGREGATIONS = (
  "token_mean",
  "sequence_mean",
  "sequence_sum",
  "fixed_length",
  GROUP_MEAN,
  "row_mean",
)
# Maximum sequences per row. cuDNN's packed attention needs a fixed number.
MAX_SEQUENCES_PER_ROW = 32
# Aggregations that average each sequence's sum over tokens. In the others, the
# weights of all tokens add up to 1.
SUMS = ("sequence_sum", "fixed_length")
# The dtype of each field of `types.Batch` that is packed.
_DTYPES = {
  "tokens": np.int32,
  "targets": np.int32,
  "positions": np.int32,
  "segment_ids": np.int32,
  "loss_mask": np.float32,
  "loss_weights": np.float32,
  "regularizer_weights": np.float32,
  "advantages": np.float32,
  "rewards": np.float32,
  "sampled_logprobs": np.float32,
  "repetition": np.float32,
}


@dataclasses.dataclass(frozen=True)
class TrainingExample:
  """One training sequence.

  Attributes:
    token_ids: prompt and completion.
    loss_mask: true on ids that the model is trained to write.
    advantage: the advantage of each of these ids; 0 if a critic estimates it.
    logprobs: sampling log-probabilities (0 on the prompt).
    repetition_onset: the id from which the sequence repeats itself, or None.
    group: sequences of the same group are averaged together by `group_mean`.
    reward: the reward of the sequence. Only a critic needs it.
    experts: the experts of its first tokens, as in `types.Completion`.
    teacher_ids: the teacher's prompt and the same completion; None if no
      teacher reads it.
  """

  token_ids: Int32[np.ndarray, " S"]
  loss_mask: Bool[np.ndarray, " S"]
  advantage: float
  logprobs: Float32[np.ndarray, " S"]
  repetition_onset: int | None = None
  group: Hashable = None
  reward: float = 0.0
  experts: UInt[np.ndarray, "_S L choices"] | None = None
  teacher_ids: Int32[np.ndarray, " T"] | None = None

  @property
  def teacher_length(self) -> int:
    """The inputs of the teacher; 0 without one."""
    return 0 if self.teacher_ids is None else len(self.teacher_ids) - 1


@dataclasses.dataclass(frozen=True)
class RouterReplay:
  """Packs the experts of sampled tokens.

  Attributes:
    num_layers: L.
    experts: the experts of each layer.
  """

  num_layers: int
  experts: ExpertShape

  def empty(self, rows: int, length: int) -> UInt[np.ndarray, "B S L choices"]:
    """Returns rows whose routers choose for themselves.

    They are zeros, for which memory is only reserved: most rows stay empty.
    """
    shape = rows, length, self.num_layers, self.experts.per_token
    return np.zeros(shape, self.experts.index_dtype)

  def put(
    self,
    columns: UInt[np.ndarray, "S L choices"],
    sequence: TrainingExample,
  ) -> None:
    """Writes the experts of a sequence's inputs, as far as they are known."""
    if sequence.experts is not None:
      known = sequence.experts[: len(columns)]
      # The pages' last head may have padding.
      known = known[..., : self.experts.per_token]
      count = self.experts.count
      columns[: len(known)] = np.where(known < count, known + 1, 0)


def from_trajectory(
  trajectory: types.Trajectory, advantage: float
) -> TrainingExample:
  """Joins a trajectory's prompt and completion into one sequence."""
  prompt = np.asarray(trajectory.prompt.token_ids, np.int32)
  completion = trajectory.completion
  prompt_length = len(prompt)
  return TrainingExample(
    token_ids=np.concatenate([prompt, completion.token_ids]),
    loss_mask=np.concatenate(
      [np.zeros(prompt_length, bool), completion.loss_mask]
    ),
    advantage=advantage,
    logprobs=np.concatenate(
      [np.zeros(prompt_length, np.float32), completion.logprobs]
    ),
    repetition_onset=(
      None
      if trajectory.repetition_onset is None
      else prompt_length + trajectory.repetition_onset
    ),
    group=trajectory.group_id,
    reward=trajectory.reward,
    experts=completion.experts,
  )


def from_trajectories(
  trajectories: Sequence[types.Trajectory], advantages: Sequence[float] | None
) -> list[TrainingExample]:
  """Returns the sequences of the trajectories that are in the loss.

  The others count in no aggregation of `loss_weights`.

  Args:
    trajectories: the graded completions.
    advantages: one advantage per trajectory. None if a critic estimates them.
  """
  if advantages is None:
    advantages = [0.0] * len(trajectories)
  return [
    from_trajectory(trajectory, advantage)
    for trajectory, advantage in zip(trajectories, advantages, strict=True)
    if trajectory.in_loss
  ]


def in_parts(
  sequences: Sequence[TrainingExample], size: int
) -> list[TrainingExample]:
  """Splits groups into parts that `group_mean` averages by themselves.

  Args:
    sequences: the training examples.
    size: sequences of a part, in their given order; the last part of a group
      may have fewer.

  Returns:
    The same sequences, whose `group` also names their part.
  """
  counts: dict[Hashable, int] = {}
  parts = []
  for sequence in sequences:
    number = counts.get(sequence.group, 0)
    counts[sequence.group] = number + 1
    part = (sequence.group, number // size)
    parts.append(dataclasses.replace(sequence, group=part))
  return parts


def loss_weights(
  sequences: Sequence[TrainingExample],
  rows: Sequence[Sequence[int]],
  aggregation: str,
  fixed_length: int,
) -> list[float]:
  """Returns the weight of each trained token, per sequence.

  With n sequences, of which sequence i has m_i trained tokens, the loss is a
  sum over tokens with these weights:

    token_mean: 1 / (m_1 + ... + m_n);
    sequence_mean: 1 / (n m_i), so that every sequence weighs the same (AZR,
      eq. 9);
    sequence_sum: 1 / n, so that long sequences weigh more (ORZ, eq. 2 and 3);
    fixed_length: 1 / (n `fixed_length`);
    group_mean: 1 / (g m), with g groups, where i's group has m trained tokens:
      one token mean per task and role of AZR, or per micro-batch of them
      (`in_parts`);
    row_mean: 1 / (r m), with r rows, where i's row has m trained tokens:
      a token mean in each packed row, as in ORZ's published code.

  Args:
    sequences: the training examples.
    rows: the sequence indices of each row, from `assign_rows`.
    aggregation: one of `AGGREGATIONS`.
    fixed_length: the length that `fixed_length` divides by.

  Raises:
    ValueError: the aggregation is unknown.
  """
  counts = [int(sequence.loss_mask.sum()) for sequence in sequences]
  if aggregation == "token_mean":
    return _mean_of_means(counts, [0] * len(counts))
  if aggregation == "sequence_mean":
    return [1.0 / (len(counts) * max(count, 1)) for count in counts]
  if aggregation == "sequence_sum":
    return [1.0 / len(counts) for _ in counts]
  if aggregation == "fixed_length":
    return [1.0 / (len(counts) * fixed_length) for _ in counts]
  if aggregation == GROUP_MEAN:
    return _mean_of_means(counts, [sequence.group for sequence in sequences])
  if aggregation == "row_mean":
    row_of = {
      index: row for row, members in enumerate(rows) for index in members
    }
    return _mean_of_means(counts, [row_of[i] for i in range(len(counts))])
  raise ValueError(
    f"aggregation={aggregation!r}: expected one of {AGGREGATIONS}"
  )


def _mean_of_means(
  counts: Sequence[int], groups: Sequence[Hashable]
) -> list[float]:
  """Returns the weights of a mean over groups of the mean over their tokens.

  Args:
    counts: trained tokens of each sequence.
    groups: the group of each sequence. Groups without trained tokens do not
      count.
  """
  tokens: dict[Hashable, int] = {}
  for count, group in zip(counts, groups, strict=True):
    if count:
      tokens[group] = tokens.get(group, 0) + count
  return [
    1.0 / (len(tokens) * tokens[group]) if count else 0.0
    for count, group in zip(counts, groups, strict=True)
  ]


def assign_rows(
  lengths: Sequence[int],
  row_length: int,
  max_sequences_per_row: int,
  teacher_lengths: Sequence[int] = (),
  teacher_row_length: int = 0,
) -> list[list[int]]:
  """Returns the sequence indices of each row, by first-fit decreasing.

  Args:
    lengths: tokens of each sequence.
    row_length: tokens of a row.
    max_sequences_per_row: maximum sequences per row.
    teacher_lengths: tokens that the teacher reads of each sequence, 0 if none;
      () without a teacher.
    teacher_row_length: tokens of the teacher's row, which must hold the same
      sequences.

  Raises:
    ValueError: a sequence is longer than a row.
  """
  rows: list[list[int]] = []
  free: list[int] = []
  teacher_free: list[int] = []
  theirs = teacher_lengths or [0] * len(lengths)
  for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
    length = lengths[index]
    if length > row_length:
      raise ValueError(
        f"a sequence of {length} tokens does not fit learner.row_length="
        f"{row_length}; expected at most the row length"
      )
    if theirs[index] > teacher_row_length:
      raise ValueError(
        f"a teacher's sequence of {theirs[index]} tokens does not fit "
        f"distill.row_length={teacher_row_length}; expected at most the row "
        "length"
      )
    for row, free_tokens in enumerate(free):
      if (
        length <= free_tokens
        and theirs[index] <= teacher_free[row]
        and len(rows[row]) < max_sequences_per_row
      ):
        rows[row].append(index)
        free[row] -= length
        teacher_free[row] -= theirs[index]
        break
    else:
      rows.append([index])
      free.append(row_length - length)
      teacher_free.append(teacher_row_length - theirs[index])
  return rows


def pack(
  sequences: Sequence[TrainingExample],
  *,
  row_length: int,
  rows_multiple: int,
  aggregation: str,
  regularizer_aggregation: str = "token_mean",
  rng: np.random.Generator | None = None,
  max_sequences_per_row: int = MAX_SEQUENCES_PER_ROW,
  for_critic: bool = False,
  replay: RouterReplay | None = None,
  teacher_row_length: int = 0,
) -> types.Batch:
  """Packs the sequences into rows.

  Args:
    sequences: training examples of at most `row_length` + 1 ids.
    row_length: tokens per row.
    rows_multiple: empty rows are added until the row count is a multiple of
      this.
    aggregation: one of `AGGREGATIONS`; becomes the batch's loss weights.
    regularizer_aggregation: the same for the entropy and KL terms.
    rng: shuffles the rows, which matters when several optimizer steps each take
      some of them. None keeps the order of `assign_rows`.
    max_sequences_per_row: maximum sequences per row.
    for_critic: whether the batch has rewards instead of advantages.
    replay: the model's layers and experts, with router replay; None without.
    teacher_row_length: tokens per row of the teacher; 0 leaves it out.

  Returns:
    A batch of NumPy arrays [rows, row_length].
  """
  rows = assign_rows(
    [len(s.token_ids) - 1 for s in sequences],
    row_length,
    max_sequences_per_row,
    [s.teacher_length for s in sequences] if teacher_row_length else (),
    teacher_row_length,
  )
  if rng is not None:
    rows = [rows[index] for index in rng.permutation(len(rows)).tolist()]
  num_rows = max(len(rows), 1)
  num_rows += -num_rows % rows_multiple
  arrays: dict[str, Any] = {
    name: np.zeros((num_rows, row_length), dtype)
    for name, dtype in _DTYPES.items()
  }
  if replay is not None:
    arrays["experts"] = replay.empty(num_rows, row_length)
  unused = "advantages" if for_critic else "rewards"
  arrays[unused] = None
  weights = loss_weights(sequences, rows, aggregation, row_length)
  regularizer_weights = loss_weights(
    sequences, rows, regularizer_aggregation, row_length
  )
  for row, members in enumerate(rows):
    start = 0
    for segment, index in enumerate(members, start=1):
      columns = _columns(
        sequences[index], segment, weights[index], regularizer_weights[index]
      )
      stop = start + len(columns["tokens"])
      for name, column in columns.items():
        if name != unused:
          arrays[name][row, start:stop] = column
      if replay is not None:
        replay.put(arrays["experts"][row, start:stop], sequences[index])
      start = stop
  if teacher_row_length:
    arrays["teacher"] = _pack_teacher(
      sequences, rows, (num_rows, row_length), teacher_row_length
    )
  return types.Batch(**arrays)


def _pack_teacher(
  sequences: Sequence[TrainingExample],
  rows: Sequence[Sequence[int]],
  shape: tuple[int, int],
  length: int,
) -> types.TeacherRows:
  """Packs what the teacher reads of the sequences of each row.

  Args:
    sequences: the training examples.
    rows: the sequence indices of each row, from `assign_rows`.
    shape: number of rows and tokens of the policy's rows.
    length: tokens of the teacher's rows.
  """
  tokens, positions, segment_ids = np.zeros((3, shape[0], length), np.int32)
  places, mask = np.zeros(shape, np.int32), np.zeros(shape, np.float32)
  for row, members in enumerate(rows):
    start = own_start = segment = 0
    for index in members:
      sequence, ids = sequences[index], sequences[index].teacher_ids
      own_stop = own_start + len(sequence.token_ids) - 1
      if ids is not None:
        count, segment = sequence.teacher_length, segment + 1
        stop = start + count
        tokens[row, start:stop] = ids[:-1]
        positions[row, start:stop] = np.arange(count)
        segment_ids[row, start:stop] = segment
        # Both sequences end with the completion.
        own = np.arange(own_start, own_stop)
        written = sequence.loss_mask[1:]
        places[row, own[written]] = own[written] + stop - own_stop
        mask[row, own[written]] = 1.0
        start = stop
      own_start = own_stop
  arrays: dict[str, Any] = {
    "tokens": tokens,
    "positions": positions,
    "segment_ids": segment_ids,
    "places": places,
    "mask": mask,
  }
  return types.TeacherRows(**arrays)


def pack_minibatches(
  sequences: Sequence[TrainingExample],
  minibatches: int,
  micro_rows: int,
  rng: np.random.Generator,
  *,
  rows_multiple: int,
  **how: Any,
) -> types.Batch:
  """Packs random parts of the sequences, each for one optimizer step.

  Each part is aggregated by itself. Its rows fill whole micro-batches, and the
  empty rows of the batch come last.

  Args:
    sequences: as for `pack`.
    minibatches: number of parts, whose sizes differ by at most 1. A part
      without sequences has no rows.
    micro_rows: rows of a micro-batch.
    rng: draws the parts.
    rows_multiple: as for `pack`.
    **how: other arguments of `pack`.

  Returns:
    A batch of NumPy arrays [rows, row_length], with `minibatch`.
  """
  order = rng.permutation(len(sequences)).tolist()
  parts = []
  for number, members in enumerate(np.array_split(order, minibatches), start=1):
    if len(members):
      part = pack(
        [sequences[index] for index in members.tolist()],
        rows_multiple=micro_rows,
        rng=rng,
        **how,
      )
      numbers = np.full_like(part.tokens, number)
      parts.append(part.replace(minibatch=numbers))
  if not parts:
    empty = pack(sequences, rows_multiple=rows_multiple, **how)
    return empty.replace(minibatch=np.zeros_like(empty.tokens))

  def joined(*arrays: Shaped[np.ndarray, "_rows _S ..."]) -> np.ndarray:
    rows = np.concatenate(arrays)
    widths = [(0, -len(rows) % rows_multiple), *[(0, 0)] * (rows.ndim - 1)]
    return np.pad(rows, widths)

  return jax.tree.map(joined, *parts)


def _columns(
  sequence: TrainingExample,
  segment: int,
  weight: float,
  regularizer_weight: float,
) -> dict[str, Shaped[np.ndarray, " S"]]:
  """Returns one sequence's entries in each array of a batch."""
  length = len(sequence.token_ids) - 1
  mask = sequence.loss_mask[1:].astype(np.float32)
  # Target t is id t + 1, so the repetition begins one target earlier.
  repetition_onset = (
    length
    if sequence.repetition_onset is None
    else sequence.repetition_onset - 1
  )
  return {
    "tokens": sequence.token_ids[:-1],
    "targets": sequence.token_ids[1:],
    "positions": np.arange(length),
    "segment_ids": np.full(length, segment),
    "loss_mask": mask,
    "loss_weights": mask * weight,
    "regularizer_weights": mask * regularizer_weight,
    "advantages": mask * sequence.advantage,
    "rewards": mask * sequence.reward,
    "sampled_logprobs": mask * sequence.logprobs[1:],
    "repetition": np.arange(length) >= repetition_onset,
  }
