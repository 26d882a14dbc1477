"""A clock that ticks with the calls of the decode loop, for exact resumes."""

import dataclasses


@dataclasses.dataclass
class Rounds:
  """Says when the outcome of a job is taken.

  Where the parameters change while sequences are under way, the moment at which
  an outcome is taken decides which tokens are sampled with which parameters. So
  it is a number of rounds after the job's start, not the time that it takes.

  Attributes:
    delay: rounds from a job's start until its outcome is taken, for which the
      device waits if need be; None: it is taken when it is there.
    now: the rounds so far.
  """

  delay: int | None = None
  now: int = 0
