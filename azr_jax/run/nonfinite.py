"""Stops a run whose loss, gradients or parameters are not finite.

The update itself (`learner/update.py`) leaves such a step out, on the device,
so that parameters keep their values, and counts it in `*/skipped`. Here the
counts are read, with the other metrics, when these are fetched anyhow: a step
late, and before a checkpoint is written.
"""

import math
from collections.abc import Mapping, Sequence


def check(
  step: int,
  metrics: Mapping[str, float],
  may_skip: bool,
  rewards: Sequence[float] = (),
) -> None:
  """Raises an error unless an update may be trained on.

  Args:
    step: the step.
    metrics: what its update measured.
    may_skip: whether a skipped update is allowed.
    rewards: the step's rewards, whose range the message shows.

  Raises:
    RuntimeError: loss or gradients were not finite, or parameters or moments
      are not; the message names the metrics.
  """
  overflows = sorted(
    name for name, n in metrics.items() if name.endswith("/nonfinite") and n
  )
  if overflows:
    shown = ", ".join(f"{name}={metrics[name]:g}" for name in overflows)
    raise RuntimeError(
      f"step {step}: so many parameters or moments are not finite: {shown}; "
      "the step is not saved: expected smaller learning rates"
    )
  is_skipped = any(n for k, n in metrics.items() if k.endswith("/skipped"))
  if is_skipped and not may_skip:
    names = sorted(k for k, n in metrics.items() if not math.isfinite(n))
    shown = ", ".join(f"{name}={metrics[name]:g}" for name in names)
    if rewards:
      shown += f"; rewards are {min(rewards):g} to {max(rewards):g}"
    raise RuntimeError(
      f"step {step}: not finite: {shown}; the step is not saved, and the same "
      "command resumes before it; --config.learner.nonfinite=skip leaves the "
      "updates of such steps out"
    )
