"""Which updates stop a run, and the error message."""

import json
import math
from concurrent.futures import Future

import pytest

from azr_jax.parallel.hosts import Hosts
from azr_jax.run import nonfinite, step_log
from azr_jax.run.trackers import TrackerSettings
from azr_jax.types import RolloutBatch

FINE = {"learner/loss": 0.5, "learner/skipped": 0.0, "learner/nonfinite": 0.0}
SKIPPED = FINE | {
  "learner/loss": math.nan,
  "learner/grad_norm": math.inf,
  "learner/skipped": 1.0,
  "learner/entropy": 0.5,
}
OVERFLOW = FINE | {"critic/nonfinite": 12.0}


@pytest.mark.parametrize("may_skip", [False, True])
def test_finite_updates_pass(may_skip):
  nonfinite.check(3, FINE, may_skip)
  # A metric that training does not use, such as 0 / 0, may be NaN.
  nonfinite.check(3, FINE | {"critic/explained_variance": math.nan}, may_skip)


def test_a_step_that_is_not_finite_is_named_with_its_metrics():
  nonfinite.check(3, SKIPPED, may_skip=True)
  with pytest.raises(RuntimeError) as error:
    nonfinite.check(3, SKIPPED, may_skip=False)
  assert str(error.value).startswith(
    "step 3: not finite: learner/grad_norm=inf, learner/loss=nan; "
  )
  assert "\n" not in str(error.value)
  with pytest.raises(RuntimeError, match="loss=nan; rewards are -1e.12 to 2;"):
    nonfinite.check(3, SKIPPED, may_skip=False, rewards=[2.0, -1e12])


@pytest.mark.parametrize("may_skip", [False, True])
def test_parameters_that_overflow_always_stop_the_run(may_skip):
  with pytest.raises(RuntimeError, match=r"step 3: .*critic/nonfinite=12"):
    nonfinite.check(3, OVERFLOW, may_skip)


@pytest.mark.parametrize("may_skip", [False, True])
def test_the_log_stops_before_a_checkpoint_could_be_written(tmp_path, may_skip):
  def add(log, step, metrics):
    future = Future()
    future.set_result((metrics, 1.0))
    log.add(step, RolloutBatch([], {}), future, 0, lambda seconds: {})

  log = step_log.StepLog(
    tmp_path,
    Hosts(1.0),
    1,
    steps=9,
    samples_per_step=1,
    show_every=0,
    trackers=TrackerSettings(),
    may_skip=may_skip,
  )
  rows = []
  try:
    with log:
      add(log, 1, SKIPPED)
      log.write_last(flush=True)
      rows = log.take_rows()
  except RuntimeError as error:
    assert "step 1: not finite" in str(error)
  written = (tmp_path / "metrics.jsonl").read_text()
  assert bool(written) == bool(rows) == may_skip
  if may_skip:
    row = json.loads(written, parse_constant=lambda word: 1 / 0)
    assert row["learner/skipped"] == 1 and "learner/loss" not in row
