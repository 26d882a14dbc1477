"""The objects that packages exchange: prompts, trajectories, batches.

The life of a training sample:
1. a system makes a `Prompt`;
2. the sampler samples a `Completion`;
3. the system grades it and makes a `Trajectory`;
4. the packer packs many trajectories into one fixed-shape `Batch`.

Axis letters, in shapes, in names such as `scores_BHST`, and in einsum strings:

| letter | axis | letter | axis |
| --- | --- | --- | --- |
| A | micro-batches of an update | L | layers |
| B | rows computed together | M | pages of a row |
| *B | any axes instead of B | N | new tokens of a call |
| C | tokens of a piece (page, chunk) | P | pages of a pool |
| D | model width | Q | queries of a key head, G x S |
| E | head size | S | tokens of a row (queries) |
| F | MLP width | T | tokens of a context (keys) |
| G | members of a group | U | words of a random key |
| H | query heads | V | vocabulary |
| I | ids that stop a sequence | W | work items of a kernel |
| J | drafts of a token | *A, *L, *S | A, L or S, or no such axis |
| K | key-value heads | X | experts of a layer |

A row is a packed row of the learner, a slot of a decode call, or a sequence of
a prefill call. The groups are the responses to a prompt and the query heads of
a key head. Lower-case names are axes that few modules share, such as `seeds`
and `items` in `evals/`. After an underscore (`_G`), sizes may differ from array
to array.
"""

import dataclasses
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import flax.struct
import jax
import numpy as np
from jaxtyping import Array, Bool, Float32, Int32, UInt

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
# The same structure, with each parameter's `NamedSharding`.
Shardings: TypeAlias = dict[str, Any]
# The same structure, with shape and dtype, boxed with the logical axis names.
BoxedParams: TypeAlias = dict[str, Any]
# Metric path -> scalar on the device.
Metrics: TypeAlias = dict[str, Float32[Array, ""]]
# Logical parameter axis -> mesh axis, or None to replicate it.
Rules: TypeAlias = Mapping[str, str | None]

# A pseudo finish reason: the completion continues in a later step. Such a
# completion is neither graded nor trained on.
PAUSED = "paused"


@dataclasses.dataclass(frozen=True)
class Prompt:
  """The input of the model.

  Attributes:
    text: the prompt as text.
    token_ids: the token ids of the prompt.
    task: data for the grader, such as the task type, the role and the reference
      answer. The sampler never reads it.
    prefill: the end of the prompt that counts as the start of the response.
      Tools see it in front of the first response, and so does `begun`. "" if
      the model writes the whole response.
    question_end: the index in `text` where the question ends. A teacher's
      prompt says more there, or before `text` if nothing follows. 0 if unknown.
  """

  text: str
  token_ids: tuple[int, ...]
  task: Any = None
  prefill: str = ""
  question_end: int = 0

  def begun(self, completion: "Completion") -> "Completion":
    """Returns a completion of this prompt whose text starts with `prefill`."""
    if not self.prefill:
      return completion
    text = f"{self.prefill}{completion.text}"
    return dataclasses.replace(completion, text=text)


@dataclasses.dataclass(frozen=True)
class Completion:
  """A response sampled for a prompt.

  Attributes:
    token_ids: the ids exactly as sampled, including the stop token.
    logprobs: each id's log-probability when it was sampled.
    loss_mask: false on ids that the model did not write.
    finish_reason: `stop` if it ended by itself; `length` or `turns` if a limit
      of tokens or turns ended it; or `PAUSED`.
    text: the decoded ids, for parsers. Never tokenized again.
    versions: the number of updates behind the parameters that sampled each id;
      None if unknown.
    experts: the experts that each token of prompt and completion got in each
      layer, except for the last token, which the model never read. Perhaps of
      the first tokens alone. None if unknown.
  """

  token_ids: Int32[np.ndarray, " S"]
  logprobs: Float32[np.ndarray, " S"]
  loss_mask: Bool[np.ndarray, " S"]
  finish_reason: str
  text: str
  versions: Int32[np.ndarray, " S"] | None = None
  experts: UInt[np.ndarray, "inputs L choices"] | None = None


@dataclasses.dataclass(frozen=True)
class Trajectory:
  """A graded completion.

  Attributes:
    completion: the sampled completion.
    reward: the reward of the whole completion.
    group_id: identifies the trajectories that share a reward baseline: the
      (task, role) pair for TRR++, the prompt for GRPO and RLOO.
    metrics: numbers for the step's metrics.
    repetition_onset: the token from which the completion only repeats itself,
      or None. For metrics.
    in_loss: whether it is trained on. Otherwise its reward only counts in the
      baseline of its group.
    feedback: what the grader says about it, such as a traceback. A teacher
      reads it (`learner/distillation.py`). "" if it says nothing.
    reference: the reference answer of its task, as text; "" if there is none.
  """

  prompt: Prompt
  completion: Completion
  reward: float
  group_id: Hashable
  metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)
  repetition_onset: int | None = None
  in_loss: bool = True
  feedback: str = ""
  reference: str = ""


@dataclasses.dataclass(frozen=True)
class RolloutBatch:
  """The trajectories of one step to train on, and its metrics."""

  trajectories: Sequence[Trajectory]
  metrics: dict[str, float]


class Packed(flax.struct.PyTreeNode):
  """What a decoder reads: packed sequences, perhaps in micro-batches.

  On the host, the arrays are NumPy arrays of the same shapes and dtypes.

  Attributes:
    tokens: the input ids.
    positions: position inside its own sequence.
    segment_ids: 1, 2, ... per sequence in a row; 0 is padding.
  """

  tokens: Int32[Leaf, "*A B S"]
  positions: Int32[Leaf, "*A B S"]
  segment_ids: Int32[Leaf, "*A B S"]


class Rows(Packed):
  """Packed sequences, several a row, with what to predict.

  Position t of a row holds token t and, in `targets`, the id to predict there.

  Attributes:
    targets: the id to predict at each position, or K ids.
  """

  targets: Int32[Leaf, "..."]


class TeacherRows(Packed):
  """The sequences that a teacher reads: other prompts, the same responses.

  A row has the sequences of the batch's row that have a teacher.

  Attributes:
    places: the position in the teacher's row that predicts each target of the
      batch's row; 0 where there is none.
    mask: 1 where the model wrote the target and a teacher predicts it.
  """

  places: Int32[Leaf, "*A B _S"]
  mask: Float32[Leaf, "*A B _S"]


class Batch(Rows):
  """The rows of an update, whose targets are the sequences' next tokens.

  Every per-token array describes the *target*.

  Attributes:
    loss_mask: 1 where the model wrote the target.
    loss_weights: the weight of each target in the loss. They implement the
      aggregation (token mean, sequence mean, fixed length).
    regularizer_weights: the weight of each target in the entropy and KL terms.
    advantages: the advantage of each target; None until a critic estimates it.
    rewards: the reward of each target's sequence, from which a critic estimates
      advantages; None with other estimators, and afterwards.
    sampled_logprobs: log-probability of the target when sampled.
    repetition: 1 where the target repeats earlier tokens; for metrics.
    proximal_logprobs: log-probability of the target under the policy at the
      update's start, from `learner/preparation.py`; None if not scored.
    policy_weights: the weight of each target in the policy loss, if
      `learner.top_entropy_fraction` drops some; None: `loss_weights`.
    chosen: 1 where the policy loss selected the target, based on the whole
      batch; None if the loss does not select.
    minibatch: the number of the optimizer step that trains on the row, from 1;
      0 in empty rows. Rows of a minibatch fill consecutive micro-batches. None
      if one step trains on all rows.
    experts: 1 + the experts that each input token gets in each layer; 0 leaves
      the choice to the router. None without router replay.
    teacher: what the teacher reads; None without distillation.
  """

  loss_mask: Float32[Leaf, "*A B S"]
  loss_weights: Float32[Leaf, "*A B S"]
  regularizer_weights: Float32[Leaf, "*A B S"]
  advantages: Float32[Leaf, "*A B S"] | None
  rewards: Float32[Leaf, "*A B S"] | None
  sampled_logprobs: Float32[Leaf, "*A B S"]
  repetition: Float32[Leaf, "*A B S"]
  proximal_logprobs: Float32[Leaf, "*A B S"] | None = None
  policy_weights: Float32[Leaf, "*A B S"] | None = None
  chosen: Float32[Leaf, "*A B S"] | None = None
  minibatch: Int32[Leaf, "*A B S"] | None = None
  experts: UInt[Leaf, "*A B S L choices"] | None = None
  teacher: TeacherRows | None = None
