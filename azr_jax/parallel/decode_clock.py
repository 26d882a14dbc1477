"""Counts event-loop rounds, so that runs of a seed use verdicts alike."""

import dataclasses


@dataclasses.dataclass
class DecodeClock:
  """Decides when the verdict of a job is used.

  This moment determines which sequences decode together, and hence how sums are
  rounded. With `rollout.max_staleness` it also determines which parameters
  sample a token. To make runs reproducible, it is a fixed number of
  event-loop rounds after the job's start, however long the job takes. A round
  has at most one decode call.

  Attributes:
    delay_calls: number of rounds from a job's start until its verdict is used.
      The device waits for jobs that take longer. None uses verdicts as soon
      as they exist.
    calls: number of rounds so far, including those without a decode call.
  """

  delay_calls: int | None = None
  calls: int = 0
