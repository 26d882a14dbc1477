"""Decides verdicts: of short values at once, of long ones in another thread.

The values of several runs are parsed and compared in the trusted process. A
report may have a million characters, which takes up to 0.3 s. The pool's thread
serves all jobs, so it must not wait for that.
"""

from collections.abc import Sequence
from concurrent import futures

from azr_jax.executor import verdict
from azr_jax.executor.job import Result
from azr_jax.executor.pending import Pending, Task

# Values of this many characters, of all runs together, take about 1 ms.
MAX_CHARS_AT_ONCE = 4096


class Decider:
  """Decides the verdicts of tasks whose runs have all ended."""

  def __init__(self, pending: Pending):
    """Starts without tasks.

    Args:
      pending: hears of the verdicts.
    """
    self._pending = pending
    self._thread = futures.ThreadPoolExecutor(1, "executor-verdicts")

  def decide(self, task: Task, results: Sequence[Result]) -> None:
    """Decides a verdict now or soon.

    Args:
      task: the job, and who waits for it.
      results: those of all its runs, in order.
    """
    outputs = (output for result in results for output in result.outputs)
    if sum(len(output or "") for output in outputs) <= MAX_CHARS_AT_ONCE:
      self._decide(task, results)
    else:
      self._thread.submit(self._decide_slowly, task, results)

  def close(self) -> None:
    """Waits for the verdict in progress; others are never decided."""
    self._thread.shutdown(cancel_futures=True)

  def _decide(self, task: Task, results: Sequence[Result]) -> None:
    self._pending.finish(task, verdict.agree(results))

  def _decide_slowly(self, task: Task, results: Sequence[Result]) -> None:
    try:
      self._decide(task, results)
    except Exception as error:  # noqa: BLE001 - the waiters must hear of it.
      self._pending.end(error)
