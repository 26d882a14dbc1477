"""What one run of a job may use; `stopwatch.py` measures it."""

from typing import NamedTuple


class Limits(NamedTuple):
  """The limits of one run, none of which depends on the machine's load.

  Attributes:
    call_s: CPU seconds of a call.
    run_s: CPU seconds of all calls together.
    sleep_s: seconds in which it neither runs nor waits for a core.
  """

  call_s: float
  run_s: float
  sleep_s: float
