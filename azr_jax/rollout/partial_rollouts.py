"""Partial rollouts: groups are paused when a step's token budget is spent.

With `rollout.step_tokens = b`, a step ends once each of its sequences has ended
or sampled b tokens. The life of a group:
1. A step samples it. If a sequence reaches b tokens without ending, the group
   is paused as soon as none of its sequences decodes.
2. The step's batch consists of the groups whose sequences have all ended.
3. The next step rebuilds the prompt and resumes the group. Ended sequences are
   reused as they are; paused ones are prefilled with the new parameters and
   continue. Each token keeps its log-probability and version.

A paused group consists of JSON values, in memory as in a checkpoint, so a
killed run continues as if it had not been interrupted. A sequence of at most
`max_tokens` tokens is sampled in at most ceil(`max_tokens` / b) steps.

Paper: Kimi k1.5 (arXiv 2501.12599). There, segments of earlier steps may be
excluded from the loss. Here a finished group is trained on as a whole, and
`learner.correction` weights tokens sampled from older parameters.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
from jaxtyping import UInt32

from azr_jax import types
from azr_jax.rollout import expert_record
from azr_jax.rollout.expert_record import ExpertRecord
from azr_jax.rollout.sequence import Request, SequenceState
from azr_jax.rollout.tokens import Tokens

# A sequence as written by `sequence_to_json`, with its `call` of the policy.
Saved = dict[str, Any]
# Call of the policy, prompt number, sample index.
CallSample = tuple[int, int, int]


class GroupPaused(Exception):
  """Raised when a sequence of a prompt is paused and none of them decodes.

  Attributes:
    number: the prompt's number in its calls.
  """

  def __init__(self, number: int):
    super().__init__(f"prompt {number} is paused until the next step")
    self.number = number


@dataclasses.dataclass(frozen=True)
class PausedGroup:
  """A group to resume in the next step.

  Attributes:
    item: JSON value from which the system rebuilds the prompt.
    sequences: the group's samples so far.
  """

  item: Any
  sequences: Sequence[Saved]

  @property
  def tokens(self) -> int:
    """Number of tokens that the model wrote in the group."""
    return sum(sum(saved["loss_mask"]) for saved in self.sequences)


@dataclasses.dataclass
class PartialRollouts:
  """The paused groups of a step.

  Attributes:
    step_tokens: number of tokens after which a sequence is paused; 0 never
      pauses.
    carried: groups carried over from the previous step.
    paused: groups to resume in the next step.
    ended: samples that had already ended when their group was paused.
    budgets: how many times a sequence may spend `step_tokens` in the step.
  """

  step_tokens: int = 0
  carried: Sequence[PausedGroup] = ()
  paused: Sequence[PausedGroup] = ()
  ended: set[CallSample] = dataclasses.field(default_factory=set)
  budgets: int = 1

  @property
  def items(self) -> list[Any]:
    """The items of the carried groups."""
    return [group.item for group in self.carried]

  def metrics(self, num_ended: int) -> dict[str, float]:
    """Returns the metrics of carried and paused groups.

    Args:
      num_ended: number of sequences that ended in the step.
    """
    num_paused = sum(
      saved["finish"] is None
      for group in self.paused
      for saved in group.sequences
    )
    return {
      "rollout/partial/paused_fraction": num_paused
      / max(num_paused + num_ended, 1),
      "rollout/partial/paused_groups": float(len(self.paused)),
      "rollout/partial/carried_groups": float(len(self.carried)),
      "rollout/partial/carried_tokens": float(
        sum(group.tokens for group in self.carried)
      ),
      "rollout/partial/budgets": float(self.budgets),
    }


def save(
  call: int, request: Request, futures: "Iterable[Future[types.Completion]]"
) -> list[Saved]:
  """Returns the sequences of a request, all of them ended or paused.

  Args:
    call: the policy call that made the request.
    futures: the futures of the request's completions, all done.
  """
  return [
    {
      "call": call,
      **sequence_to_json(sequence_of(request, sample, future.result())),
    }
    for sample, future in enumerate(futures)
  ]


def restore(
  saved: Saved, key_data: UInt32[np.ndarray, " U"], prompt_number: int
) -> SequenceState:
  """Returns a saved sequence, with the random key of this step.

  Args:
    saved: a sequence of an earlier step or of this one.
    key_data: the data of its call's random key in this step.
    prompt_number: the prompt's number in this step.
  """
  return sequence_from_json({**saved, "key": key_data, "seed": prompt_number})


def sequence_of(
  request: Request, sample: int, completion: types.Completion
) -> SequenceState:
  """Returns the sequence of a completion.

  Args:
    request: the request for the completion's prompt.
    sample: the completion's index among the prompt's samples.
    completion: a completion with versions. A paused one yields a sequence
      without a finish reason.
  """
  assert completion.versions is not None
  is_paused = completion.finish_reason == types.PAUSED
  return SequenceState(
    request,
    sample,
    Tokens(
      completion.token_ids,
      completion.logprobs,
      completion.loss_mask,
      completion.versions,
    ),
    finish_reason=None if is_paused else completion.finish_reason,
    experts=ExpertRecord(completion.experts),
  )


def sequence_to_json(sequence: SequenceState) -> dict[str, Any]:
  """Returns a sequence as JSON values, without its prompt."""
  request, tokens = sequence.request, sequence.tokens
  return {
    "key": request.key_data.tolist(),
    "seed": int(request.prompt_number),
    "sample": sequence.sample_index,
    "tokens": tokens.ids.tolist(),
    "logprobs": tokens.logprobs.tolist(),
    "loss_mask": tokens.loss_mask.astype(int).tolist(),
    "versions": tokens.versions.tolist(),
    "finish": sequence.finish_reason,
    "experts": expert_record.to_json(sequence.experts.take()),
  }


def sequence_from_json(row: Mapping[str, Any]) -> SequenceState:
  """Returns a sequence without its prompt, for `Stream.restore` only."""
  key_data = np.asarray(row["key"], np.uint32)
  prompt = types.Prompt("", ())
  request = Request(0, prompt, 1, 1, key_data, row["seed"])
  return SequenceState(
    request,
    row["sample"],
    Tokens(
      np.asarray(row["tokens"], np.int32),
      np.asarray(row["logprobs"], np.float32),
      np.asarray(row["loss_mask"], bool),
      np.asarray(row["versions"], np.int32),
    ),
    finish_reason=row["finish"],
    experts=expert_record.from_json(row.get("experts")),
  )
