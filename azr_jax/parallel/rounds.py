"""A clock that counts the decode loop's calls, so that runs of a seed agree."""

import dataclasses


@dataclasses.dataclass
class RoundClock:
  """Says when the outcome of a job is taken.

  The moment at which an outcome is taken decides which sequences decode
  together, and so how sums are rounded; with `rollout.max_staleness` it also
  decides which parameters a token is sampled with. So it is a number of rounds
  after the job's start, not the time that the job takes.

  Attributes:
    delay: rounds from a job's start until its outcome is taken, for which the
      device waits if need be; None: it is taken when it is there.
    now: the rounds so far.
  """

  delay: int | None = None
  now: int = 0
