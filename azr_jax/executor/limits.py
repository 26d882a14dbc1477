"""Time limits of one run of a job; `stopwatch.py` enforces them."""

from typing import NamedTuple


class Limits(NamedTuple):
  """The limits of one run, independent of the machine's load.

  Attributes:
    call_s: CPU seconds per call.
    run_s: CPU seconds of all calls together.
    sleep_s: seconds in which the run neither runs nor waits for a core.
  """

  call_s: float
  run_s: float
  sleep_s: float
