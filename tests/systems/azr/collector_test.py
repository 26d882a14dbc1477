"""A self-play step does not depend on the order of completions."""

import json

import pytest
import scripted
from scripted_azr import ScriptedPolicy, settings

from azr_jax.systems.azr.system import AZR
from azr_jax.tasks.programs.task import ZERO_TRIPLET, Triplet


class Numbered(ScriptedPolicy):
  """Responds by prompt seed alone; a third of the proposals is empty."""

  def __init__(self, seed):
    super().__init__()
    self.device = scripted.Shuffled(seed)
    self.order = []

  def sample(self, asked, n=1, prompt_numbers=None, call=0):
    return self._samples(asked, n, prompt_numbers, call)

  async def _samples(self, asked, n, prompt_numbers, call):
    for index, (prompt, seed) in enumerate(
      zip(asked, prompt_numbers, strict=True)
    ):
      for sample in range(n):
        self.made = seed + self.bad(seed)
        text = "" if call == 0 and seed % 3 == 0 else None
        one = ScriptedPolicy.sample(self, [prompt], sample + 1)
        completion = [done for _, s, done in one if s == sample][0]
        if text is not None:
          completion = type(completion)(**vars(completion) | {"text": text})
        self.order.append((call, seed, sample))
        yield index, sample, await self.device.submit(completion)

  @staticmethod
  def bad(seed):
    return -(seed % 2)  # Neighbours propose the same program.


def played(context, seed, **changes):
  """Returns the comparable results of a step, and the order of completions."""
  system, policy = (
    AZR(settings(prompts=6, **changes), context),
    Numbered(seed),
  )
  for buffer in system.buffers.values():
    buffer.add(ZERO_TRIPLET, 0)
    buffer.add(Triplet("def f(x):\n  return x * 2", "2", "4"), 0)
  collected = scripted.collect(system, policy, 1)
  trajectories = [
    (t.prompt.text, t.completion.text, t.reward, t.group_id)
    for t in collected.trajectories
  ]
  metrics = {
    name: value
    for name, value in collected.metrics.items()
    if not name.startswith("time/")
  }
  return (trajectories, metrics, json.dumps(system.state_dict())), policy.order


@pytest.mark.parametrize(
  "changes",
  [
    {},
    {"duplicates": "reject"},
    {"solve_from": "previous"},
    {"labels": "majority", "proposer_labels": "executor"},
    {"evict": "learnable", "revisit": "potential"},
  ],
  ids=lambda changes: " ".join(map(str, changes.values())) or "paper",
)
def test_a_step_is_the_same_in_whatever_order_things_come(context, changes):
  wanted, first = played(context, 0, **changes)
  orders = [first]
  for seed in range(1, 4):
    found, order = played(context, seed, **changes)
    assert found == wanted
    orders.append(order)
  assert len({*map(tuple, orders)}) > 1
