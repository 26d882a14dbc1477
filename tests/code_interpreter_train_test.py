"""The Code Interpreter as a user runs it: stages, a kill, a resumed run."""

import pytest
import training

from azr_jax.curricula.improvement_potential import PassRate
from azr_jax.tasks.questions import pass_rates, sources

training.needs("reasoning_gym", extra="gym")

QUESTIONS = ("gym:gcd", "gym:spell_backward")
SMALL = {
  "code_interpreter.questions": QUESTIONS,
  "code_interpreter.count": 8,
  "code_interpreter.prompts": 2,
  "code_interpreter.group_size": 4,
  "code_interpreter.curriculum": "potential",
  "code_interpreter.stage_steps": 2,
  "rollout.slots": 8,
  "learner.micro_rows": 2,
  "learner.max_micro_batches": 4,
  "train.save_every": 1,
}
# Metrics that depend on the speed of the machine.
TIMED = (
  "interpreter/awaiting",
  "interpreter/slots_decoding",
)


def metrics_of(folder):
  return [
    {
      name: value
      for name, value in found.items()
      # A script requested while an equal one is running is run only once.
      if name not in TIMED and not name.startswith("executor/")
    }
    for found in training.metrics_of(folder)
  ]


def write(path, correct):
  """Writes how the questions were answered, sorted."""
  questions = sources.read_all(QUESTIONS, 8, 1)
  rates = [
    PassRate(correct[index % len(correct)], 20)
    for index in range(len(questions))
  ]
  pass_rates.write(path, questions, rates)


@pytest.mark.slow
def test_a_run_killed_in_its_second_stage_goes_on_in_it(tmp_path):
  path = tmp_path / "pass_rates.jsonl"
  # Groups of the questions: 1, 2, 3, 4, and so on.
  write(path, (10, 3, 2, 0))
  config = SMALL | {"code_interpreter.pass_rates": path}
  config = training.flags("configs/code_interpreter.py:tiny", config)
  whole, cut = tmp_path / "whole", tmp_path / "cut"
  training.finish(training.start(whole, 5, config=config))
  process = training.start(cut, 5, config=config)
  training.wait_for_line(cut, 3, process)
  process.kill()
  process.communicate()
  # The groups in the checkpoint count, even if the file has changed.
  write(path, (0, 0, 10, 10))
  training.finish(training.start(cut, 5, config=config))
  found = metrics_of(whole)
  for mine, theirs in zip(metrics_of(cut), found, strict=True):
    # The arrival time of a result decides which tokens are prefilled with it,
    # which changes the last bits of later log-probabilities.
    assert mine == pytest.approx(theirs, rel=1e-4, abs=1e-5)
  stages = [one["stage/code_interpreter/number"] for one in found]
  assert stages == [1.0, 1.0, 2.0, 2.0, 3.0]
  assert all(one["stage/code_interpreter/group1"] == 4.0 for one in found)
