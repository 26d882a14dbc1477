"""Adds feedback, an answer or a solution to prompts, for the teacher to read.

A teacher that is another model also reads responses without such a text, behind
the policy's own prompt. The added text stands where the question ends
(`types.Prompt.question_end`). It stands in front of the prompt if that place is
unknown or the prompt's end.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from azr_jax import types
from azr_jax.learner.distillation import FEEDBACK, REFERENCE, SUCCESS, TEXT
from azr_jax.learner.packing import TrainingExample
from azr_jax.models.tokenizers import Tokenizer
from azr_jax.text import excerpts

# What stands in place of the middle of a text that is too long.
_GAP = "\n...\n"
# A text that still does not fit after this many cuts is left out.
_MAX_CUTS = 8


@dataclasses.dataclass(frozen=True)
class TeacherPrompts:
  """Writes teacher prompts.

  Attributes:
    tokenizer: the model's tokenizer.
    context: what a prompt adds: some of `distillation.CONTEXTS`. Of several,
      the first that a response has.
    templates: the added text by context, with `distillation.TEXT` in it.
    success_reward: reward from which on a response is successful.
    text_tokens: maximum tokens that a prompt adds.
    row_length: tokens of a packed row.
    vocab_size: number of ids that the teacher has embeddings for. It reads no
      response with another id.
    reads_all: whether a teacher reads responses without a text, too.
  """

  tokenizer: Tokenizer
  context: Sequence[str]
  templates: Mapping[str, str]
  success_reward: float
  text_tokens: int
  row_length: int
  vocab_size: int
  reads_all: bool = False

  def added(
    self,
    sequences: Sequence[TrainingExample],
    trajectories: Sequence[types.Trajectory],
  ) -> list[TrainingExample]:
    """Returns the sequences with what the teacher reads of each.

    Args:
      sequences: one per trajectory in the loss, in the same order.
      trajectories: the trajectories of the step.
    """
    successes = self._successes(trajectories)
    prompts: dict[tuple[int, str, str], Sequence[int] | None] = {}
    found = []
    trained = (t for t in trajectories if t.in_loss)
    for sequence, one in zip(sequences, trained, strict=True):
      context, text = self._told(one, successes)
      ids = None
      if text:
        key = (id(one.prompt), context, text)
        if key not in prompts:
          prompts[key] = self._prompt_ids(one.prompt, context, text)
        ids = prompts[key]
      if ids is None and self.reads_all:
        ids = one.prompt.token_ids
      teacher_ids = None
      completion = one.completion.token_ids
      if ids is not None and completion.max(initial=0) < self.vocab_size:
        teacher_ids = np.concatenate([np.asarray(ids, np.int32), completion])
      found.append(dataclasses.replace(sequence, teacher_ids=teacher_ids))
    return found

  def _told(
    self,
    one: types.Trajectory,
    successes: Mapping[tuple[int, ...], Sequence[types.Trajectory]],
  ) -> tuple[str, str]:
    """Returns the context of a trajectory and its text; "" if it has none."""
    for context in self.context:
      text = ""
      if context == FEEDBACK:
        text = one.feedback
      elif context == REFERENCE:
        text = one.reference
      elif context == SUCCESS:
        others = successes.get(one.prompt.token_ids, ())
        text = next((t.completion.text for t in others if t is not one), "")
      if text.strip():
        return context, text.strip()
    return "", ""

  def _successes(
    self, trajectories: Iterable[types.Trajectory]
  ) -> dict[tuple[int, ...], list[types.Trajectory]]:
    """Returns the successful trajectories of each prompt; {} if unused."""
    found: dict[tuple[int, ...], list[types.Trajectory]] = {}
    if SUCCESS in self.context:
      for one in trajectories:
        if one.reward >= self.success_reward:
          found.setdefault(one.prompt.token_ids, []).append(one)
    return found

  def _prompt_ids(
    self, prompt: types.Prompt, context: str, text: str
  ) -> Sequence[int] | None:
    """Returns the ids of a teacher's prompt; None if no cut makes it fit."""
    template = self.templates[context]
    longest = len(prompt.token_ids) + self.text_tokens
    kept = len(text)
    for _ in range(_MAX_CUTS):
      ids = self.tokenizer.encode_prompt(
        _inserted(
          prompt,
          template.replace(TEXT, excerpts.without_middle(text, kept, _GAP)),
        )
      )
      if len(ids) <= longest:
        return ids
      # Keep less than the share that would fit if tokens were equally long.
      share = self.text_tokens / (len(ids) - len(prompt.token_ids))
      kept = int(0.9 * share * kept)
    return None


def _inserted(prompt: types.Prompt, text: str) -> str:
  """Inserts a text after a prompt's question, or before the prompt.

  It comes before the prompt if the end of the question is unknown or is the end
  of the prompt, as in `12 + 30 =`, so that the response continues the question.
  """
  end = prompt.question_end
  if not end or not prompt.text[end:].strip():
    return f"{text.strip()}\n\n{prompt.text}"
  return prompt.text[:end] + text + prompt.text[end:]
