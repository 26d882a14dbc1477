"""The whole loop as a user runs it, killed and resumed."""

import json
import signal

import pytest
import training


def test_kill_and_resume_gives_the_same_metrics(azr_run, tmp_path):
  process = training.start(tmp_path, steps=5)
  training.wait_for_line(tmp_path, 2, process)
  process.kill()  # In step 3, while step 2 is being saved.
  process.communicate()
  training.finish(training.start(tmp_path, steps=5))
  want, got = training.metrics_of(azr_run), training.metrics_of(tmp_path)
  assert [m["step"] for m in got] == [1, 2, 3, 4, 5]
  assert got == want
  assert {
    "reward/azr/deduction/propose/mean",
    "tokens/azr/induction/solve/mean",
    "count/azr/abduction/solve",
    "proposals/azr/abduction/valid_fraction",
    "buffer/azr/induction/size",
    "executor/ok",
    "learner/entropy",
    "learner/grad_norm",
    "rollout/logprob_gap",
  } <= want[0].keys()
  fractions = [
    value
    for name, value in want[0].items()
    if name.startswith("style/deduction/solve/") and name.endswith("_fraction")
  ]
  assert len(fractions) > 1 and sum(fractions) == pytest.approx(1.0)
  assert max(m["rollout/logprob_gap"] for m in want) < 1e-4
  samples = sorted((azr_run / "samples").iterdir())
  assert len(samples) == 5
  assert "completion" in json.loads(samples[0].read_text().splitlines()[0])


@pytest.mark.slow
def test_kill_and_resume_with_several_optimizer_steps_per_batch(tmp_path):
  config = (*training.AZR_FLAGS, "--config.learner.minibatches=2")
  whole, killed = tmp_path / "whole", tmp_path / "killed"
  training.finish(training.start(whole, steps=4, config=config))
  training.train_with_kills(killed, 4, config, [2])
  want = training.metrics_of(whole)
  assert training.metrics_of(killed) == want
  assert {m["learner/updates"] for m in want} == {2.0}


@pytest.mark.slow
def test_kill_and_resume_with_environments_a_guide_and_a_teacher(tmp_path):
  config = (
    *training.AZR_FLAGS,
    "--config.azr.task_types=('environment', 'deduction')",
    "--config.azr.seed_rounds=1",
    "--config.azr.guide.weight=0.5",
    "--config.distill.weight=0.5",
    "--config.distill.context=('reference', 'feedback')",
    "--config.rollout.prompt_buckets=(1280,)",
    "--config.learner.row_length=1536",
    "--config.learner.chunk_tokens=1536",
  )
  whole, killed = tmp_path / "whole", tmp_path / "killed"
  training.finish(training.start(whole, steps=4, config=config))
  training.train_with_kills(killed, 4, config, [2])
  want = training.metrics_of(whole)
  assert training.metrics_of(killed) == want
  assert all(m["count/azr/environment/solve"] > 0 for m in want)
  assert all(m["distill/fraction"] > 0 for m in want)
  unread = "guide/azr/deduction/unread_fraction"
  assert any(unread in m for m in want)


def test_a_trace_has_the_phases_of_the_steps_that_were_named(azr_run):
  counts = training.spans_of(azr_run)
  # Step 3 seeds no buffers. Both steps propose, rate and solve.
  assert counts["step 3"] == counts["step 4"] == 1
  assert not {"step 2", "step 5"} & counts.keys()
  once = ("copy_weights", "collect", "advantages", "pack")
  assert [counts[name] for name in once] == [2] * len(once)
  # The trace may start during the update of step 2.
  assert counts["update"] >= 2
  # Step 4 is saved, after its metrics are written.
  assert counts["save"] == 1 and counts["log"] == 3
  several = ("prefill", "decode", "collect_tokens")
  assert all(counts[name] > 2 for name in several)
  assert counts["rollout"] >= 2 and counts["wait_for_verdicts"] >= 2
  for row in training.rows_of(azr_run):
    assert {
      "device/idle_fraction/all",
      "device/rollout/live_slots_fraction",
      "device/rollout/tokens_per_s",
      "device/update/tokens_per_s",
    } <= row.keys()
    assert 0 < row["device/idle_fraction/all"] < 1


@pytest.mark.slow  # `run/object_store_test.py` does the same in a store.
def test_sigterm_saves_before_leaving(tmp_path):
  process = training.start(tmp_path, steps=50)
  training.wait_for_line(tmp_path, 1, process)
  process.send_signal(signal.SIGTERM)
  training.finish(process)
  steps = len(training.metrics_of(tmp_path))
  assert steps < 50
  assert (tmp_path / "checkpoints" / str(steps)).is_dir()


@pytest.mark.slow
def test_fail_on_recompile_names_the_step_and_the_program(azr_run, tmp_path):
  """Room for one micro-batch makes steps with more of them recompile."""
  process = training.start(
    tmp_path,
    3,
    "--fail_on_recompile",
    "--config.learner.max_micro_batches=1",
    "--config.learner.micro_rows=1",
  )
  output = process.communicate(timeout=400)[0]
  assert process.returncode != 0
  assert "compiled ['jit(update)']; expected" in output
  # The uninterrupted run also had the flag, and succeeded.
  counts = [row["compile/count"] for row in training.rows_of(azr_run)]
  assert counts[0] > 0 and counts[1:] == [0, 0, 0, 0]
