"""The objects that cross package borders: prompts, trajectories, batches.

The life of a training sample:
1. a system makes a `Prompt`;
2. the sampler samples a `Completion`;
3. the system grades it and makes a `Trajectory`;
4. the packer packs many trajectories into one fixed-shape `Batch`.

Axis letters, in shapes, in names such as `scores_BHST`, and in einsum strings:

| letter | axis | letter | axis |
| --- | --- | --- | --- |
| A | micro-batches of an update | L | layers |
| B | rows of a batch, or slots | M | pages of a row |
| C | tokens of a chunk, or of a page | N | trajectories, or new tokens |
| D | model width | P | pages of a pool |
| E | head size | Q | queries of a key head, G x S |
| F | MLP width | R | rows of a cache, or of a prefill |
| G | group: responses, or query heads of a key head | S | tokens (queries) |
| H | query heads | T | keys, or tokens of a context |
| I | ids that stop a sequence | U | words of a random key |
| J | drafts of a token | V | vocabulary |
| K | key-value heads | W | work items of a kernel |

A word in lower case names an axis of one module alone.
"""

import dataclasses
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import flax.struct
import jax
import numpy as np

if TYPE_CHECKING:
  Leaf: TypeAlias = jax.Array
else:
  # A leaf of a tree of device arrays. Trees of the same structure also hold
  # arrays of the host, abstract shapes, or shardings.
  Leaf: TypeAlias = (
    jax.Array | np.ndarray | jax.ShapeDtypeStruct | jax.sharding.Sharding
  )

# The parameters of a model: nested dictionaries of arrays, by module name.
Params: TypeAlias = dict[str, Any]
# The same dictionaries with, for each parameter, its `NamedSharding`.
Shardings: TypeAlias = dict[str, Any]
# The same with its shape and dtype, boxed with the names of its logical axes.
BoxedParams: TypeAlias = dict[str, Any]
# Metric path -> float32 scalar on the device.
Metrics: TypeAlias = dict[str, jax.Array]
# Logical parameter axis -> mesh axis, or None to replicate it.
Rules: TypeAlias = Mapping[str, str | None]

# Stands for a finish reason in a completion that goes on in a later step, which
# nobody grades or trains on.
PAUSED = "paused"


@dataclasses.dataclass(frozen=True)
class Prompt:
  """The input of the model.

  Attributes:
    text: the prompt as text.
    token_ids: the token ids of the prompt.
    task: data that the grader needs, such as the task type, the role and the
      reference answer; the sampler never looks at it.
  """

  text: str
  token_ids: tuple[int, ...]
  task: Any = None


@dataclasses.dataclass(frozen=True)
class Completion:
  """A response that was sampled for a prompt.

  Attributes:
    token_ids: int32 [S], the ids exactly as sampled, with the stop token.
    logprobs: float32 [S], log-probability of each id when it was sampled.
    loss_mask: bool [S], false on ids that the model did not write.
    finish_reason: `stop`: it ended by itself; `length` or `turns`: a limit of
      tokens, or of turns, ended it; or `PAUSED`.
    text: the decoded ids, for parsers; never tokenised again.
    versions: int32 [S], how many updates had made the parameters that each id
      was sampled with; None: it is not known.
  """

  token_ids: np.ndarray
  logprobs: np.ndarray
  loss_mask: np.ndarray
  finish_reason: str
  text: str
  versions: np.ndarray | None = None


@dataclasses.dataclass(frozen=True)
class Trajectory:
  """A graded completion.

  Attributes:
    prompt: the prompt.
    completion: the sampled completion.
    reward: the grade of the whole completion.
    group_id: names the trajectories that share a reward baseline: the (task,
      role) pair for TRR++, the prompt for GRPO and RLOO.
    metrics: numbers for the metrics of the step.
    repetition_onset: the token from which the completion only repeats itself;
      None: it does not. For metrics.
    in_loss: whether it is trained on; otherwise its reward is in the baseline
      of its group alone.
  """

  prompt: Prompt
  completion: Completion
  reward: float
  group_id: Hashable
  metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)
  repetition_onset: int | None = None
  in_loss: bool = True


@dataclasses.dataclass(frozen=True)
class RolloutBatch:
  """The trajectories of one step to train on, and its metrics."""

  trajectories: Sequence[Trajectory]
  metrics: dict[str, float]


class Batch(flax.struct.PyTreeNode):
  """Packed sequences: arrays [B, S] or [A, B, S], several sequences a row.

  Position t of a row holds token t and, in `targets`, the token after it of
  the same sequence; every per-token array describes the *target*. The host
  packs NumPy arrays of the same shapes and dtypes.

  Attributes:
    tokens: int32, the input ids.
    targets: int32, the id to predict at each position.
    positions: int32, position inside its own sequence.
    segment_ids: int32, 1, 2, ... per sequence in a row; 0 is padding.
    loss_mask: float32, 1 where the target was written by the model.
    loss_weights: float32, the weight of each target in the loss; they hold
      the aggregation (token mean, sequence mean, fixed length).
    regularizer_weights: float32, the weight of each target in the entropy and
      KL terms.
    advantages: float32.
    old_logprobs: float32, log-probability of the target when sampled.
    repetition: float32, 1 where the target repeats earlier tokens; for
      metrics.
    proximal_logprobs: float32, log-probability of the target under the policy
      at the update's start, from `learner/preparation.py`; None: not scored.
    chosen: float32, 1 where the policy loss chose the target by the whole
      batch; None: it chooses none.
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
  proximal_logprobs: Leaf | None = None
  chosen: Leaf | None = None
