"""The whole loop as a user runs it, killed and resumed."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).parents[1]
SMALL = (
  "--config=configs/azr.py:tiny",
  "--config.azr.batch_size=2",
  "--config.azr.seed_factor=1",
  "--config.azr.seed_rounds=2",
  "--config.azr.learnability_samples=2",
  "--config.rollout.slots=16",
  "--config.train.save_every=2",
)


def start(workdir, steps, *flags, config=SMALL):
  environment = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
  return subprocess.Popen(
    [sys.executable, "-m", "azr_jax.train", *config, f"--workdir={workdir}"]
    + [f"--config.train.steps={steps}", *flags],
    cwd=ROOT,
    env=environment,
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
  )


def recompiles(workdir, *flags):
  """Runs three steps with room for one micro-batch: more compile again."""
  process = start(
    workdir,
    3,
    "--config.learner.max_micro_batches=1",
    *flags,
    "--config.learner.micro_rows=1",
  )
  return process.communicate(timeout=400)[0], process.returncode


def finish(process):
  output, _ = process.communicate(timeout=400)
  assert process.returncode == 0, output[-3000:]


def metrics_of(workdir):
  """Metrics by step, without those of the process."""
  lines = (workdir / "metrics.jsonl").read_text().splitlines()
  return [
    {
      k: v
      for k, v in json.loads(line).items()
      if not k.startswith(("time/", "compile/"))
    }
    for line in lines
  ]


def wait_for_line(workdir, count, process):
  path = workdir / "metrics.jsonl"
  deadline = time.monotonic() + 300
  while time.monotonic() < deadline and process.poll() is None:
    if path.exists() and len(path.read_text().splitlines()) >= count:
      return
    time.sleep(0.05)
  raise AssertionError(f"no {count} lines: {process.communicate()[0][-2000:]}")


def test_kill_and_resume_gives_the_same_metrics(tmp_path):
  whole, cut = tmp_path / "whole", tmp_path / "cut"
  finish(start(whole, steps=5))
  process = start(cut, steps=5)
  wait_for_line(cut, 2, process)  # In step 3; step 2 is being saved.
  process.kill()
  process.communicate()
  finish(start(cut, steps=5))
  want, got = metrics_of(whole), metrics_of(cut)
  assert [m["step"] for m in got] == [1, 2, 3, 4, 5]
  assert got == want
  assert {
    "reward/azr/deduction/propose/mean",
    "tokens/azr/induction/solve/mean",
    "count/azr/abduction/solve",
    "proposals/azr/abduction/valid_share",
    "buffer/azr/induction/size",
    "executor/ok",
    "learner/entropy",
    "learner/grad_norm",
    "rollout/logprob_gap",
  } <= want[0].keys()
  assert max(m["rollout/logprob_gap"] for m in want) < 1e-4
  samples = sorted((whole / "samples").iterdir())
  assert len(samples) == 5
  assert "completion" in json.loads(samples[0].read_text().splitlines()[0])


def test_sigterm_saves_before_leaving(tmp_path):
  process = start(tmp_path, steps=50)
  wait_for_line(tmp_path, 1, process)
  process.send_signal(signal.SIGTERM)
  finish(process)
  steps = len(metrics_of(tmp_path))
  assert steps < 50
  assert (tmp_path / "checkpoints" / str(steps)).is_dir()


def test_fail_on_recompile_names_the_step_and_the_program(tmp_path):
  output, code = recompiles(tmp_path / "refused", "--fail_on_recompile")
  assert code != 0
  assert "compiled ['jit(update)']; expected" in output
  finish(start(tmp_path / "steady", 3, "--fail_on_recompile"))
  lines = (tmp_path / "steady" / "metrics.jsonl").read_text().splitlines()
  counts = [json.loads(line)["compile/count"] for line in lines]
  assert counts[0] > 0 and counts[1:] == [0, 0]
