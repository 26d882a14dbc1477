"""Self-play of environments with a scripted policy and the real executor."""

import ast

import pytest
import scripted
import scripted_azr
from scripted_azr import ScriptedPolicy, answer, settings
from typed import instance_of

from azr_jax.config.settings import Invalid
from azr_jax.rollout.settings import SamplerSettings
from azr_jax.systems.azr.calls import AZRCall
from azr_jax.systems.azr.system import AZR
from azr_jax.tasks.programs.buffer import task_key
from azr_jax.tasks.programs.task import EnvironmentTask, Instance

CODE = """import random

def generate(seed):
  rng = random.Random(seed)
  return [rng.randrange(10**6), {made}]

def solve(instance):
  return instance[0] + {made}

def score(instance, answer):
  return answer == instance[0] + {made}"""


class Designer(ScriptedPolicy):
  """Proposes environments, each new; every second solution is right."""

  def reply(self, prompt, sample):
    if "New environment" in prompt.text:
      self.made += 1
      return self.proposal()
    instance = instance_of(Instance, prompt.task)
    index = self.asked.index(prompt)
    return answer(("output", "0" if index % 2 else instance.answer))

  def proposal(self):
    code = CODE.replace("{made}", str(self.made))
    return answer(("python", code), ("message", f"Add {self.made}."))


@pytest.fixture
def played(context):
  def play(policy, steps=1, **changes):
    changes = {"novelty": 0.0, **changes}
    system = AZR(settings(task_types=("environment",), **changes), context)
    batches = [
      scripted.collect(system, policy, step + 1) for step in range(steps)
    ]
    return system, batches

  return play


def test_each_rollout_gets_an_instance_of_its_own(played):
  policy = Designer(limit=9000)
  system, [batch] = played(policy)
  learned = [p.task for p in policy.by_call[AZRCall.LEARN]]
  assert len(learned) == 2 * scripted_azr.SETTINGS["learnability_samples"]
  assert len({(t.environment, t.value) for t in learned}) == len(learned)
  # The solution gets another one, and no prompt shows a program. Environments
  # whose `generate` is alike do not share instances.
  solved = [p.task for p in policy.by_call[AZRCall.SOLVE]]
  numbers = [ast.literal_eval(t.value)[0] for t in [*learned, *solved]]
  assert len(set(numbers)) == len(numbers)
  for prompt in policy.by_call[AZRCall.LEARN] + policy.by_call[AZRCall.SOLVE]:
    assert "def " not in prompt.text
    assert prompt.task.value in prompt.text
  [proposed, *_] = [t for t in batch.trajectories if t.group_id[1] == "propose"]
  assert proposed.reward == 0.5  # Half of its rollouts are right.
  [rate, *_] = [
    t.metrics["solve_rate"]
    for t in batch.trajectories
    if "solve_rate" in t.metrics
  ]
  assert rate == 0.5
  newest = system.buffers["environment"].from_step(1)
  assert [instance_of(EnvironmentTask, t).message for t in newest] == [
    one.environment.message for one in dict.fromkeys(learned[::4])
  ]


def test_the_proposer_reads_the_time_that_a_call_has(played):
  class Long(Designer):
    def fits(self, prompt):
      return True

    def reply(self, prompt, sample):
      return "no"

  policy = Long(limit=9000)
  played(policy, prompt_format="full")
  # A quarter of a second, twice, is shared by 15 calls.
  asked = policy.by_call[AZRCall.PROPOSE]
  assert asked
  assert all("within 0.033 seconds of CPU time" in p.text for p in asked)


def test_guessed_tasks_earn_the_proposer_little(played):
  class Gambler(Designer):
    """Proposes five answers without a reason; always gives one of them."""

    def reply(self, prompt, sample):
      if "New environment" in prompt.text:
        return super().reply(prompt, sample)
      return answer(("output", "2"))

    def proposal(self):
      return super().proposal().replace("] + ", "] * 7919 // 13 % 5 + 0 * ")

  assert _mean_reward_of_guesses(played, Gambler(limit=9000)) <= 0.2


def test_tasks_with_a_loose_score_earn_the_proposer_little(played):
  class Loose(Designer):
    """Gives full marks to a quarter of all answers, which all differ."""

    def reply(self, prompt, sample):
      if "New environment" in prompt.text:
        return super().reply(prompt, sample)
      return answer(("output", str(2 + 4 * len(self.asked))))

    def proposal(self):
      text = super().proposal()
      score = f"(answer - {self.made} - instance[0] * 7919 // 13) % 4 == 0"
      wrong, _, end = text.rpartition("answer == instance[0] + ")
      made, _, end = end.partition("\n")
      solved = wrong.replace("instance[0] + ", "instance[0] * 7919 // 13 + ")
      return f"{solved}{score}\n{end}"

  assert _mean_reward_of_guesses(played, Loose(limit=9000)) <= 0.25


def _mean_reward_of_guesses(played, policy):
  """Plays two steps; returns the mean reward of four valid proposals."""
  _, batches = played(policy, steps=2, learnability_samples=8)
  valid = [t for b in batches for t in b.trajectories if t.metrics.get("valid")]
  assert len(valid) == 4
  # At least two have a rate that would be paid without the rule.
  assert sum(0 < t.metrics["solve_rate"] < 1 for t in valid) >= 2
  return sum(t.reward for t in valid) / len(valid)


def test_solutions_of_instances_count_for_their_environment(played):
  system, _ = played(Designer(limit=9000))
  entries = system.state_dict()["environment"]["entries"]
  new = [entry["num_responses"] for entry in entries if entry["step"] == 1]
  # Four learnability rollouts and one solution each.
  assert new == [5.0, 5.0]


def test_a_known_environment_is_rejected(played):
  class Copier(Designer):
    """Proposes one environment again and again, under another name."""

    def proposal(self):
      code = CODE.replace("{made}", "7").replace("rng", f"rng{self.made}")
      return answer(("python", code), ("message", "Add 7."))

  system, batches = played(Copier(limit=9000), steps=2)
  counts = [
    b.metrics.get("proposals/azr/environment/rejected_duplicate", 0)
    for b in batches
  ]
  assert counts == [1, 2]  # The first of the first step is new.
  messages = [t.message for t in system.buffers["environment"].tasks()]
  assert messages.count("Add 7.") == 1


def test_an_environment_of_a_step_that_ends_first_is_known(played):
  """With `rollout.max_staleness`, a step begins before earlier ones end."""

  class Ahead(Designer):
    """Its second step begins before the third, and ends after it."""

    async def earlier_steps(self):
      if self.other is not None:
        other, self.other = self.other, None
        batches.append(scripted.collect(system, other, 3))

  def again(other=None):
    policy = Ahead(limit=9000)
    policy.other, policy.made = other, 50
    return policy

  system, _ = played(Designer(limit=9000))
  batches = []
  # Both propose the same.
  batches.append(scripted.collect(system, again(other=again()), 2))
  name = "proposals/azr/environment/rejected_duplicate"
  assert [b.metrics.get(name, 0) for b in batches] == [0, 2]
  keys = [task_key(t) for t in system.buffers["environment"].tasks()]
  assert len(set(keys)) == len(keys)
  rewards = [
    t.reward for t in batches[1].trajectories if t.group_id[1] == "propose"
  ]
  assert rewards == [-1.0, -1.0]


def test_a_copy_of_a_shown_environment_is_rejected(played):
  class Imitator(Designer):
    """Repeats the first environment of its prompt with another message."""

    def proposal(self):
      shown = self.asked[-1].task.references[0]
      return answer(("python", shown), ("message", f"Again {self.made}."))

  _, [batch] = played(Imitator(limit=9000), novelty=0.1)
  assert batch.metrics["proposals/azr/environment/rejected_similar"] == 2


def test_revisited_environments_get_new_instances(played):
  class Silent(Designer):
    """Proposes nothing valid after its seeds."""

    def proposal(self):
      return "no"

  policy = Silent(limit=9000)
  system, batches = played(policy, steps=3)
  solved = [p.task for p in policy.by_call[AZRCall.SOLVE]]
  assert len(solved) == len(set(solved)) == 6
  known = {*system.buffers["environment"].tasks()}
  assert {one.environment for one in solved} <= known
  for t in batches[-1].trajectories:
    if t.group_id[1] == "solve":
      assert t.reference == ("" if t.reward == 1 else t.prompt.task.answer)


def test_buffers_are_restored(played, context):
  system, _ = played(Designer(limit=9000))
  other = AZR(system.settings, context)
  other.load_state_dict(system.state_dict())
  tasks = system.buffers["environment"].tasks()
  assert other.buffers["environment"].tasks() == tasks
  assert all(isinstance(task, EnvironmentTask) for task in tasks)


def test_votes_and_pauses_are_refused():
  with pytest.raises(Invalid, match="task_types"):
    settings(task_types=("environment",), labels="majority")
  with pytest.raises(Invalid, match="task_types"):
    AZR.check(
      settings(task_types=("environment",)), SamplerSettings(step_tokens=8)
    )
