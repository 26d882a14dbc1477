"""Stops a run whose loss, gradients or parameters are not finite.

The update (`learner/update.py`) skips such a step on the device, so parameters
keep their values, and counts it in `*/skipped`. This module reads the counts
when they are fetched with the other metrics: one step late, and before a
checkpoint is written.
"""

import math
from collections.abc import Mapping, Sequence


def check(
  step: int,
  metrics: Mapping[str, float],
  may_skip: bool,
  rewards: Sequence[float] = (),
) -> None:
  """Raises an error unless training may continue after an update.

  Args:
    step: the step, for the message.
    metrics: the metrics of its update.
    may_skip: whether skipped updates are allowed.
    rewards: the step's rewards. The message shows their range.

  Raises:
    RuntimeError: loss or gradients were not finite, or parameters or moments
      are not. The message names the metrics.
  """
  overflows = sorted(
    name for name, n in metrics.items() if name.endswith("/nonfinite") and n
  )
  if overflows:
    shown = ", ".join(f"{name}={metrics[name]:g}" for name in overflows)
    raise RuntimeError(
      f"step {step}: parameters or moments are not finite: {shown}; "
      "the step is not saved: lower the learning rates"
    )
  is_skipped = any(n for k, n in metrics.items() if k.endswith("/skipped"))
  if is_skipped and not may_skip:
    names = sorted(k for k, n in metrics.items() if not math.isfinite(n))
    shown = ", ".join(f"{name}={metrics[name]:g}" for name in names)
    if rewards:
      shown += f"; rewards are {min(rewards):g} to {max(rewards):g}"
    raise RuntimeError(
      f"step {step}: not finite: {shown}; the step is not saved, and the same "
      "command resumes before it; --config.learner.nonfinite=skip skips "
      "such updates"
    )
