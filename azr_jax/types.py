"""The objects that cross package borders: what is asked, answered, learned.

The life of a training sample:
1. a system makes a `Prompt`;
2. the sampler answers it with a `Completion`;
3. the system grades it and makes a `Trajectory`;
4. the packer lays many trajectories into one fixed-shape `Batch`.
"""

import dataclasses
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import flax.struct
import numpy as np

# A leaf of a device pytree: an array, or its sharding or abstract shape.
Leaf = Any
# The parameters of a model: a nested dictionary of arrays.
Params = Any

FINISH_REASONS = ("stop", "length", "turns")


@dataclasses.dataclass(frozen=True)
class Prompt:
  """What the model is asked.

  `task` is whatever the grader needs later (task type, role, gold); the
  sampler never looks at it.
  """

  text: str
  token_ids: tuple[int, ...]
  task: Any = None


@dataclasses.dataclass(frozen=True)
class Completion:
  """What was sampled for a prompt.

  Attributes:
    token_ids: int32 [S], the ids exactly as sampled, with the stop token.
    logprobs: float32 [S], log-probability of each id when it was sampled.
    loss_mask: bool [S], false on ids that the model did not write.
    finish_reason: one of `FINISH_REASONS`.
    text: the decoded ids, for parsers; never tokenised again.
  """

  token_ids: np.ndarray
  logprobs: np.ndarray
  loss_mask: np.ndarray
  finish_reason: str
  text: str


@dataclasses.dataclass(frozen=True)
class Trajectory:
  """A graded completion.

  `group_id` names the trajectories that share a reward baseline: the
  (task, role) pair for TRR++, the prompt for GRPO and RLOO. `repeats_from` is
  the token from which the completion only repeats itself, for metrics.
  """

  prompt: Prompt
  completion: Completion
  reward: float
  group_id: Hashable
  metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)
  repeats_from: int | None = None


@dataclasses.dataclass(frozen=True)
class RolloutBatch:
  """What one step collected: the trajectories to learn from, and metrics."""

  trajectories: Sequence[Trajectory]
  metrics: dict[str, float]


class Batch(flax.struct.PyTreeNode):
  """Packed sequences: arrays [rows, length], several sequences a row.

  Position t of a row holds token t and, in `targets`, the token after it of
  the same sequence; every per-token array describes the *target*.

  Attributes:
    tokens: int32, the input ids.
    targets: int32, the id to predict at each position.
    positions: int32, position inside its own sequence.
    segment_ids: int32, 1, 2, ... per sequence in a row; 0 is padding.
    loss_mask: float32, 1 where the target was written by the model.
    loss_weights: float32, the weight of each target in the loss; they hold
      the aggregation (token mean, sequence mean, fixed length).
    regularizer_weights: float32, likewise in the entropy and KL terms.
    advantages: float32.
    old_logprobs: float32, log-probability of the target when sampled.
    repetition: float32, 1 where the target repeats what stands before it; for
      metrics.
  """

  tokens: Leaf
  targets: Leaf
  positions: Leaf
  segment_ids: Leaf
  loss_mask: Leaf
  loss_weights: Leaf
  regularizer_weights: Leaf
  advantages: Leaf
  old_logprobs: Leaf
  repetition: Leaf
