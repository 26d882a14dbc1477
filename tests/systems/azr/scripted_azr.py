"""A scripted policy for AZR, and the settings of its tests."""

import collections
import dataclasses
from typing import Any

import numpy as np
import scripted

from azr_jax import types
from azr_jax.config.settings import build
from azr_jax.systems.azr.extensions.settings import AppendixSettings
from azr_jax.systems.azr.proposer import Proposer
from azr_jax.systems.azr.settings import AZRSettings, BufferSettings
from azr_jax.tasks.programs import prompts
from azr_jax.tasks.programs.prompt_builder import PromptBuilder

SETTINGS: dict[str, Any] = dict(
  prompts=2,
  references=2,
  learnability_samples=4,
  induction_inputs=4,
  seed_factor=1,
  seed_rounds=3,
  prompt_format="compact",
)
PROMPT_BUILDER = PromptBuilder(
  "compact", proposer_timeout_s=0.5, solver_timeout_s=2.0
)
TASK_TYPES = ("deduction", "abduction", "induction")
_NESTED = (("appendix", AppendixSettings), ("buffer", BufferSettings))


def settings(**changes):
  """Returns the default test settings with changes in any section."""
  values = SETTINGS | {"buffer": {"max_programs": 50}, "appendix": {}}
  for key, value in changes.items():
    section = next(
      (
        name
        for name, cls in _NESTED
        if key in {field.name for field in dataclasses.fields(cls)}
      ),
      None,
    )
    if section is None:
      values = values | {key: value}
    else:
      values = values | {section: values[section] | {key: value}}
  return build(AZRSettings, values)


def proposer(**changes):
  """Returns the proposer of the default test settings with changes."""
  values = SETTINGS | changes
  names = ("references", "induction_inputs", "composite_prob", "max_components")
  return Proposer(
    PROMPT_BUILDER, **{name: values[name] for name in names if name in values}
  )


class ScriptedPolicy(scripted.Policy):
  """Responds by type of prompt; every second solution is correct.

  Programs are `x + n` with a running n, so that proposals differ.
  """

  def __init__(self, limit=4000):
    self.asked = []
    self.by_call = collections.defaultdict(list)
    self.made = 0
    self.limit = limit

  def prompt(self, text, task=None):
    return types.Prompt(text, tuple(range(len(text))), task)

  def fits(self, prompt):
    return len(prompt.token_ids) < self.limit

  def branch(self, *numbers):
    return self

  @scripted.samples
  def sample(self, asked, n=1, prompt_numbers=None, call=0):
    del prompt_numbers
    self.asked += asked
    self.by_call[call] += asked
    order = [(i, s) for i in range(len(asked)) for s in range(n)]
    for index, sample in reversed(order):  # Samplers may finish in any order.
      yield index, sample, completion(self.reply(asked[index], sample))

  def reply(self, prompt, sample):
    text = prompt.text
    if "New program" in text:
      self.made += 1
      code = f"def f(x):\n  # {self.made}\n  return x + {self.made}"
      return answer(("python", code), ("input", "1"))
    if "inputs and a message" in text:
      inputs = [("input", str(i)) for i in range(4)]
      return answer(*inputs, ("message", "add something"))
    if sample % 2:
      return answer(("output", "None"), ("input", "None"))
    task = prompt.task
    if "Find the output" in text:
      return answer(("output", task.output))
    if "Find an input" in text:
      return answer(("input", task.input))
    return answer(("python", task.code))


def answer(*fences):
  body = "\n".join(prompts.fence(*pair) for pair in fences)
  return f"why</think>\n<answer>{body}</answer>"


def completion(text):
  ids = np.arange(len(text) // 10, dtype=np.int32)
  return types.Completion(
    ids, np.zeros(len(ids), np.float32), np.ones(len(ids), bool), "stop", text
  )
