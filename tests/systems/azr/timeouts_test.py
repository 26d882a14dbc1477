"""Answers whose evaluation times out, in a self-play step."""

import pytest
import scripted
from scripted_azr import ScriptedPolicy, answer, settings

from azr_jax.executor import Executor
from azr_jax.systems.azr.system import AZR

SAMPLES = 8
# Returns 0 for every input on which it terminates.
SLOW = "def f(x):\n  while x > 3: pass\n  return 0"
ENDLESS = "def f(x):\n  while True: pass"


class SlowPolicy(ScriptedPolicy):
  """Proposes a slow trivial task; three of eight answers terminate in time."""

  def reply(self, prompt, sample):
    text = prompt.text
    if "New program" in text:
      return answer(("python", SLOW), ("input", "1"))
    if "Find an input" in text:
      # When solving, each task has one sample, which times out.
      return answer(("input", str(sample + 1 if self.is_learning else 9)))
    if "inputs and a message" in text:
      return super().reply(prompt, sample)
    ends = self.is_learning and sample < 3
    return answer(("python", prompt.task.code if ends else ENDLESS))

  @scripted.samples
  def sample(self, asked, n=1, prompt_numbers=None, call=0):
    self.is_learning = n > 1
    yield from super().sample(asked, n)


@pytest.fixture(scope="module")
def impatient():
  with Executor(workers=2, timeout_s=0.3, memory_mb=256) as pool:
    yield pool


@pytest.mark.parametrize("task_type", ["abduction", "induction"])
def test_a_slow_trivial_program_earns_nothing(
  make_context, impatient, task_type
):
  changes = {"learnability_samples": SAMPLES, "prompts": 1}
  context = make_context(impatient)
  system = AZR(settings(task_types=(task_type,), **changes), context)
  collected = scripted.collect(system, SlowPolicy(), 1)
  rewards = {t.group_id[1]: t.reward for t in collected.trajectories}
  # Three of eight are correct: eq. 4 alone would give 1 - 3 / 8 = 0.625.
  assert rewards == {"propose": 0.0, "solve": -0.5}
  name = f"learnability/azr/{task_type}"
  assert collected.metrics[f"{name}/undecided_fraction"] == 5 / 8
  assert collected.metrics[f"{name}/solve_rate"] == 1.0
  assert collected.metrics[f"{name}/mean"] == 0.0
  solve = f"correct/azr/{task_type}/solve"
  assert collected.metrics[f"{solve}/timeout_fraction"] == 1.0
  assert collected.metrics[f"{solve}/lost_fraction"] == 0.0
  assert context.jobs.metrics()["executor/timeout"] > 0
