"""Turns the trajectories of a step into the batch of its update."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import TypeAlias

import jax
import numpy as np

from azr_jax import types
from azr_jax.learner import advantages, packing, update
from azr_jax.randomness import streams
from azr_jax.randomness.purposes import Purpose
from azr_jax.trainer.teacher_prompts import TeacherPrompts

# Trajectories -> trajectories and metrics.
Shape: TypeAlias = Callable[
  [Sequence[types.Trajectory]],
  tuple[list[types.Trajectory], dict[str, float]],
]


@dataclasses.dataclass(frozen=True)
class Batching:
  """The host's part of a step between rollouts and update.

  Attributes:
    shape_rewards: penalizes or masks overlong responses.
    drops_equal_groups: whether `drop_equal_groups` drops anything.
    estimator: as in `advantages.estimate`, or `advantages.GAE`.
    normalize_advantages: whether advantages get mean 0 and deviation 1.
    pass_k: responses per set of `advantages.PASS_K`.
    row_length: tokens per row.
    max_sequences_per_row: maximum sequences per row.
    micro_rows: the rows of a micro-batch, padded to the mesh.
    max_micro_batches: the number of micro-batches that a batch is padded to.
    aggregation: one of `packing.AGGREGATIONS`, for the loss.
    regularizer_aggregation: the same for the entropy and KL terms.
    group_mean_size: sequences that `packing.GROUP_MEAN` averages together; 0
      averages whole groups.
    minibatches: number of parts that get an optimizer step each.
    seed: the run's seed, for the order of rows.
    replay: packs the experts of sampled tokens; None without router replay.
    teacher: writes the teacher's prompts; None without distillation.
  """

  shape_rewards: Shape
  drops_equal_groups: bool
  estimator: str
  normalize_advantages: bool
  pass_k: int
  row_length: int
  max_sequences_per_row: int
  micro_rows: int
  max_micro_batches: int
  aggregation: str
  regularizer_aggregation: str
  group_mean_size: int
  minibatches: int
  seed: int
  replay: packing.RouterReplay | None = None
  teacher: TeacherPrompts | None = None

  def drop_equal_groups(
    self, trajectories: Sequence[types.Trajectory]
  ) -> tuple[Sequence[types.Trajectory], dict[str, float]]:
    """Drops groups whose rewards are equal; returns metrics, too.

    Keeps all trajectories without `drops_equal_groups`, or if all groups are
    equal, because an update needs a batch.
    """
    if not self.drops_equal_groups:
      return trajectories, {}
    differ = advantages.groups_differ(
      [t.reward for t in trajectories], [t.group_id for t in trajectories]
    )
    pairs = zip(trajectories, differ, strict=True)
    kept = [t for t, keep in pairs if keep] or trajectories
    dropped = len(trajectories) - len(kept)
    fraction = dropped / max(len(trajectories), 1)
    return kept, {"groups/dropped_fraction": fraction}

  @functools.partial(jax.profiler.annotate_function, name="advantages")
  def estimate_advantages(
    self, trajectories: Sequence[types.Trajectory]
  ) -> list[float] | None:
    """Returns the advantage of each trajectory.

    None with `GAE`: the critic estimates them on the device, from rewards.
    """
    if self.estimator == advantages.GAE:
      return None
    return [
      float(advantage)
      for advantage in advantages.estimate(
        self.estimator,
        [t.reward for t in trajectories],
        [t.group_id for t in trajectories],
        [int(t.completion.loss_mask.sum()) for t in trajectories],
        self.normalize_advantages,
        self.pass_k,
        [t.in_loss for t in trajectories],
      )
    ]

  @functools.partial(jax.profiler.annotate_function, name="pack")
  def pack(
    self,
    trajectories: Sequence[types.Trajectory],
    values: Sequence[float] | None,
    step: int,
  ) -> types.Batch:
    """Packs the trajectories into micro-batches, on the host.

    Args:
      trajectories: the trajectories to train on.
      values: the advantage of each trajectory. None packs rewards.
      step: seeds the order of the rows.

    Returns:
      A batch of NumPy arrays [A, B, S]: micro-batches of packed rows.

    Raises:
      RuntimeError: the sampler's log-probabilities are not finite.
    """
    for one in trajectories:
      if not np.isfinite(one.completion.logprobs).all():
        raise RuntimeError(
          f"step {step}: the sampler's log-probabilities are not finite: "
          "weights, cache or a device are damaged; the step is not saved"
        )
    sequences = packing.from_trajectories(trajectories, values)
    if self.teacher is not None:
      sequences = self.teacher.added(sequences, trajectories)
    return self._micro_batches(
      sequences,
      rng=streams.generator(self.seed, Purpose.PACKING, step),
      for_critic=values is None,
      teacher_row_length=self.teacher.row_length if self.teacher else 0,
    )

  def pack_to_score(
    self, trajectories: Sequence[types.Trajectory]
  ) -> tuple[types.Batch, list[list[int]]]:
    """Packs trajectories that are only scored, with advantages 0.

    Returns:
      A batch as from `pack`, and the trajectory indices of each row that holds
      any, in order.
    """
    sequences = packing.from_trajectories(trajectories, None)
    rows = packing.assign_rows(
      [len(sequence.token_ids) - 1 for sequence in sequences],
      self.row_length,
      self.max_sequences_per_row,
    )
    return self._micro_batches(sequences), rows

  def _micro_batches(
    self,
    sequences: Sequence[packing.TrainingExample],
    rng: np.random.Generator | None = None,
    for_critic: bool = False,
    teacher_row_length: int = 0,
  ) -> types.Batch:
    """Packs sequences into micro-batches [A, B, S]."""
    if self.group_mean_size:
      sequences = packing.in_parts(sequences, self.group_mean_size)
    pack = functools.partial(packing.pack, sequences, rng=rng)
    if rng is not None and self.minibatches > 1:
      pack = functools.partial(
        packing.pack_minibatches,
        sequences,
        self.minibatches,
        self.micro_rows,
        rng,
      )
    batch = pack(
      row_length=self.row_length,
      max_sequences_per_row=self.max_sequences_per_row,
      rows_multiple=self.micro_rows * self.max_micro_batches,
      aggregation=self.aggregation,
      regularizer_aggregation=self.regularizer_aggregation,
      for_critic=for_critic,
      replay=self.replay,
      teacher_row_length=teacher_row_length,
    )
    return update.to_micro_batches(batch, self.micro_rows)
