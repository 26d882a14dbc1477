"""Counts decode calls, so runs of one seed use outcomes at the same points."""

import dataclasses


@dataclasses.dataclass
class DecodeClock:
  """Decides when the outcome of a job is used.

  This moment determines which sequences decode together, and hence how sums are
  rounded. With `rollout.max_staleness` it also determines which parameters
  sample a token. To make runs reproducible, it is a fixed number of decode
  calls after the job's start, however long the job takes.

  Attributes:
    delay_calls: number of calls from a job's start until its outcome is used.
      The device waits for jobs that take longer. None uses outcomes as soon
      as they exist.
    calls: number of iterations of the event loop, including those without a
      decode call.
  """

  delay_calls: int | None = None
  calls: int = 0
