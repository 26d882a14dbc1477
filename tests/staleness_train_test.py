"""Runs with steps in flight or paused groups, killed and resumed."""

import random
import time

import pytest
import training

STEPS, KILLS = 6, 5
STALE = {
  "rollout.max_staleness": 1,
  "train.steps": STEPS,
  "train.save_every": 2,
  "train.keep_checkpoints": 9,
}
CONVERSATIONS = STALE | {
  "code_interpreter.prompts": 4,
  "code_interpreter.group_size": 4,
  "rollout.slots": 16,
  "evaluation.every": 0,
  "learner.max_micro_batches": 8,
  "learner.micro_rows": 2,
}
# Groups are paused instead of overlapping steps.
PARTIAL = {"rollout.max_staleness": 0, "rollout.step_tokens": 24}
COUNTDOWN = {
  "countdown.count": 120,
  "countdown.prompts": 4,
  "countdown.group_size": 4,
  "countdown.curriculum": "adaptive",
  "countdown.adaptive.warmup_steps": 1,
  "countdown.dynamic_sampling.max_prompts": 2,
  "rollout.slots": 16,
  "evaluation.every": 0,
  "learner.max_micro_batches": 4,
}
# A step of 16 responses leaves slots for the next one.
PROPOSALS = {"countdown.proposals": 4, "rollout.slots": 24}
ORZ = {"orz.prompts": 4, "orz.group_size": 4, "rollout.slots": 16}
EXPERTS = {"model.source": "random:moe-tiny"}
RUNS = {
  "self-play": ("configs/azr.py:tiny", training.AZR | STALE),
  "conversations": ("configs/code_interpreter.py:tiny", CONVERSATIONS),
  "experts": ("configs/azr.py:tiny", training.AZR | STALE | EXPERTS),
  "closed loop": ("configs/countdown.py:tiny", COUNTDOWN | STALE | PROPOSALS),
}
PARTIAL_RUNS = {
  "partial self-play": ("configs/azr.py:tiny", training.AZR | STALE | PARTIAL),
  "partial experts": (
    "configs/azr.py:tiny",
    training.AZR | STALE | PARTIAL | EXPERTS,
  ),
  "partial conversations": (
    "configs/code_interpreter.py:tiny",
    CONVERSATIONS | PARTIAL,
  ),
  "partial countdown": (
    "configs/countdown.py:tiny",
    COUNTDOWN | STALE | PARTIAL,
  ),
  "partial orz": (
    "configs/orz.py:tiny",
    ORZ | STALE | PARTIAL | {"evaluation.every": 0},
  ),
}


def metrics_of(folder):
  """Metrics without scripts: equal scripts run once if they are concurrent."""
  return [
    {k: v for k, v in row.items() if not k.startswith("executor/")}
    for row in training.metrics_of(folder)
  ]


@pytest.fixture(name="run", params=[*RUNS, *PARTIAL_RUNS])
def make_run(request, tmp_path_factory):
  """The flags of a run, and the folder of an uninterrupted one."""
  config = training.flags(*(RUNS | PARTIAL_RUNS)[request.param])

  def make(folder):
    training.finish(training.start(folder, STEPS, config=config))

  name = f"stale {request.param}"
  return config, training.make_once(tmp_path_factory, name, make)


@pytest.mark.slow  # `rollout/steps_in_flight_test.py` is quick.
def test_a_checkpoint_has_the_steps_in_flight(run, tmp_path):
  config, whole = run
  metrics = metrics_of(whole)
  oldest = max(m["rollout/staleness/max"] for m in metrics)
  if "experts" in str(whole):
    # Routers only disagree where parameters have changed since a token.
    gaps = {m["rollout/router_gap"] for m in metrics}
    stale = [m["rollout/staleness/max"] > 0 for m in metrics]
    assert [m["rollout/router_gap"] > 1e-3 for m in metrics] == stale
    assert len(gaps) > 1 and all(m["learner/expert_load"] > 1 for m in metrics)
  if "rollout/partial/budgets" in metrics[0]:
    assert max(m["rollout/partial/paused_fraction"] for m in metrics) > 0
    assert sum(m["rollout/partial/carried_tokens"] for m in metrics) > 0
    assert oldest >= 1
  else:
    assert oldest == 1
  # Countdown's loss already weights by the ratio to the sampler, so it logs
  # `learner/weight`.
  corrected = {"learner/correction/effective_fraction", "learner/weight"}
  assert all(corrected & {*m} for m in metrics)
  cut = tmp_path / "cut"
  training.copy_cut_after(2, whole, cut)
  training.finish(training.start(cut, STEPS, config=config))
  assert metrics_of(cut) == metrics


@pytest.mark.slow
def test_kills_at_random_moments_change_no_metric(run, tmp_path):
  config, whole = run
  draw = random.Random(0)
  killed = tmp_path / "killed"
  for _ in range(KILLS):
    process = training.start(killed, STEPS, config=config)
    lines = len(training.rows_of(killed)) if _has_lines(killed) else 0
    if lines < STEPS - 1:
      training.wait_for_line(killed, lines + 1, process)
    time.sleep(draw.uniform(0, 4))
    process.kill()
    process.communicate()
  training.finish(training.start(killed, STEPS, config=config))
  assert metrics_of(killed) == metrics_of(whole)


def _has_lines(folder):
  return (folder / "metrics.jsonl").exists()
