"""When drafts are made, and from which tokens."""

from collections.abc import Sequence

import numpy as np

from azr_jax.rollout.drafts import NO_TOKEN
from azr_jax.rollout.sequence import SequenceState
from azr_jax.rollout.speculation_settings import SpeculationSettings


class DraftPolicy:
  """Decides for each call of the decode loop whether drafts pay.

  It knows counts alone and no times, so that two runs of a seed make the same
  calls.
  """

  def __init__(self, settings: SpeculationSettings):
    """Begins with a trial.

    Args:
      settings: when drafts pay.
    """
    self._settings = settings
    self._pause = 0

  def begin_call(self, decoding: int) -> bool:
    """Returns whether the next call of the decode loop has drafts.

    Args:
      decoding: sequences in slots.
    """
    s = self._settings
    if not s.drafts or decoding > s.max_slots:
      return False
    if self._pause:
      self._pause -= 1
      return False
    return True

  def end_call(self, tokens: int, iterations: int) -> None:
    """Notes what a call with drafts gave.

    Args:
      tokens: that all slots got.
      iterations: of the loop, summed over the slots that got tokens in them.
    """
    if tokens < self._settings.min_gain * iterations:
      self._pause = self._settings.pause_calls


def contexts(
  sequences: Sequence[SequenceState | None], size: int
) -> np.ndarray:
  """Returns the tokens from which drafts of each slot are made.

  Args:
    sequences: of the slots.
    size: H, the tokens of a slot.

  Returns:
    int32 [B, T]: the last tokens of the sequence at the end, before them those
    of its siblings, the longest one last; NO_TOKEN between them and where there
    are none.
  """
  found = np.full((len(sequences), size), NO_TOKEN, np.int32)
  for row, sequence in zip(found, sequences, strict=True):
    if sequence is not None:
      _fill(row, sequence)
  return found


def _fill(row: np.ndarray, sequence: SequenceState) -> None:
  """Writes the tokens of a sequence and its siblings into a row."""
  end = len(row)
  siblings = [s for s in sequence.siblings if s is not sequence and s.token_ids]
  siblings.sort(key=lambda s: (-len(s.token_ids), s.sample_index))
  # All samples have the prompt, so siblings are searched without theirs.
  own = sequence.last_ids(end)
  for ids in (own, *(s.token_ids for s in siblings)):
    part = ids[-end:]
    row[end - len(part) : end] = part
    end -= len(part) + 1
    if end <= 0:
      return
