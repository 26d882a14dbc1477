"""Section `rollout.speculation`: drafts that decoding verifies."""

import dataclasses

from azr_jax.config.settings import Settings, setting


@dataclasses.dataclass(frozen=True)
class SpeculationSettings(Settings):
  """How many tokens are drafted, from what, and when that pays."""

  drafts: int = setting(
    0,
    "tokens that are proposed to each slot in an iteration of the decode loop; "
    "0: none",
    minimum=0,
    maximum=16,
  )
  context: int = setting(
    1024,
    "tokens that are searched: the end of the sequence, then its siblings",
    minimum=8,
    expert=True,
  )
  min_match: int = setting(
    2,
    "last tokens that an earlier place must have to be continued",
    minimum=1,
    maximum=8,
    expert=True,
  )
  max_slots: int = setting(
    32,
    "sequences in slots at most, for drafts to be made; where more decode, "
    "products take longer than reading the weights",
    minimum=1,
    expert=True,
  )
  min_gain: float = setting(
    1.5,
    "tokens of a slot and iteration; a call that has fewer stops drafts",
    minimum=1,
    expert=True,
  )
  pause_calls: int = setting(
    16,
    "calls of the decode loop until drafts are tried again",
    minimum=1,
    expert=True,
  )
