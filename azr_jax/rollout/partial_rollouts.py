"""Partial rollouts: groups that are paused where a step's budget is spent.

With `rollout.step_tokens = b` a step ends when each of its sequences has ended
or got b tokens. The life of a group:
1. a step samples it. If one of its sequences got b tokens and has not ended,
   the group is paused when none of its sequences decodes any more;
2. the step's batch is the groups whose sequences have all ended;
3. the next step plays the paused group again, from its item: sequences that
   have ended come as they are, and paused ones have their tokens read by the
   new parameters and go on. Each token keeps its log-probability and version.

A paused group is JSON values, in memory as in a checkpoint, so a run that was
killed goes on as one that was not. A sequence of at most `max_tokens` is
sampled in at most ceil(`max_tokens` / b) steps.

Paper: Kimi k1.5 (arXiv 2501.12599). There the segments of earlier steps may be
left out of the loss; here all tokens of a group are trained on when it has
ended, and `learner.correction` weighs those of older parameters.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from azr_jax import types
from azr_jax.rollout.sequence import Request, SequenceState

# A sequence as `sequence_to_json` writes it, with the policy's `call`.
Saved = dict[str, Any]
# A call of the policy, the number of its prompt, and the sample's.
CallSample = tuple[int, int, int]


class GroupPaused(Exception):
  """A sequence of a prompt is paused, and no other one decodes.

  Attributes:
    number: of the prompt in its call, or calls.
  """

  def __init__(self, number: int):
    super().__init__(f"prompt {number} goes on in the next step")
    self.number = number


@dataclasses.dataclass(frozen=True)
class PausedGroup:
  """A group that the next step goes on with.

  Attributes:
    item: from which its system plays it again, as a JSON value.
    sequences: all that was sampled for it.
  """

  item: Any
  sequences: Sequence[Saved]

  @property
  def tokens(self) -> int:
    """How many tokens the model wrote in it."""
    return sum(sum(saved["loss_mask"]) for saved in self.sequences)


@dataclasses.dataclass
class PartialRollouts:
  """The paused groups of a step.

  Attributes:
    step_tokens: tokens after which a sequence is paused; 0: none is.
    carried: groups of the step before.
    paused: groups for the next step.
    ended: samples that had ended when their group was paused.
    budgets: how often a sequence may have got `step_tokens` in the step.
  """

  step_tokens: int = 0
  carried: Sequence[PausedGroup] = ()
  paused: Sequence[PausedGroup] = ()
  ended: set[CallSample] = dataclasses.field(default_factory=set)
  budgets: int = 1

  @property
  def items(self) -> list[Any]:
    """The items of the groups of the step before."""
    return [group.item for group in self.carried]

  def metrics(self, num_ended: int) -> dict[str, float]:
    """Returns what was carried over and what is paused.

    Args:
      num_ended: sequences that ended in the step.
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
  """Returns the sequences of a request, all ended or paused.

  Args:
    call: of the policy that made the request.
    request: made by it.
    futures: of its completions.
  """
  return [
    {
      "call": call,
      **sequence_to_json(sequence_of(request, sample, future.result())),
    }
    for sample, future in enumerate(futures)
  ]


def restore(
  saved: Saved, key_data: np.ndarray, prompt_seed: int
) -> SequenceState:
  """Returns a sequence that goes on with the random numbers of another step.

  Args:
    saved: of an earlier step, or of this one.
    key_data: uint32 [U], the random key of its call in this step.
    prompt_seed: of its prompt in this step.
  """
  return sequence_from_json({**saved, "key": key_data, "seed": prompt_seed})


def sequence_of(
  request: Request, sample: int, completion: types.Completion
) -> SequenceState:
  """Returns the sequence of a completion.

  Args:
    request: of the completion's prompt.
    sample: index of the completion among those of the prompt.
    completion: has versions; a paused one becomes a sequence without a finish
      reason.
  """
  assert completion.versions is not None
  is_paused = completion.finish_reason == types.PAUSED
  return SequenceState(
    request,
    sample,
    token_ids=completion.token_ids.tolist(),
    logprobs=completion.logprobs.tolist(),
    loss_mask=completion.loss_mask.tolist(),
    versions=completion.versions.tolist(),
    finish_reason=None if is_paused else completion.finish_reason,
  )


def sequence_to_json(sequence: SequenceState) -> dict[str, Any]:
  """Returns a sequence as JSON values; its prompt is not among them."""
  request = sequence.request
  return {
    "key": request.key_data.tolist(),
    "seed": int(request.seed),
    "sample": sequence.sample_index,
    "tokens": sequence.token_ids,
    "logprobs": sequence.logprobs,
    "loss_mask": [int(one) for one in sequence.loss_mask],
    "versions": sequence.versions,
    "finish": sequence.finish_reason,
  }


def sequence_from_json(row: Mapping[str, Any]) -> SequenceState:
  """Returns a sequence without its prompt; it is for `Stream.restore` alone."""
  key_data = np.asarray(row["key"], np.uint32)
  prompt = types.Prompt("", ())
  request = Request(0, prompt, 1, 1, key_data, row["seed"])
  return SequenceState(
    request,
    row["sample"],
    token_ids=row["tokens"],
    logprobs=row["logprobs"],
    loss_mask=[bool(one) for one in row["loss_mask"]],
    versions=row["versions"],
    finish_reason=row["finish"],
  )
