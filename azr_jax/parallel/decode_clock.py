"""Counts calls of decode, so that runs of a seed take outcomes at one time."""

import dataclasses


@dataclasses.dataclass
class DecodeClock:
  """Says when the outcome of a job is taken.

  The moment at which an outcome is taken decides which sequences decode
  together, and so how sums are rounded; with `rollout.max_staleness` it also
  decides which parameters a token is sampled with. So it is a number of calls
  of decode after the job's start, not the time that the job takes.

  Attributes:
    delay_calls: calls from a job's start until its outcome is taken, for which
      the device waits if need be; None: it is taken when it is there.
    calls: how often the event loop has called decode, or had nothing to call.
  """

  delay_calls: int | None = None
  calls: int = 0
