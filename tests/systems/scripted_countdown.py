"""A scripted policy for Countdown, and the settings of its tests."""

from typing import Any

import numpy as np
import scripted
from typed import stand_in

from azr_jax import types
from azr_jax.curricula.curriculum import Buckets
from azr_jax.executor import Executor
from azr_jax.executor.settings import ExecutorSettings
from azr_jax.grading.countdown_puzzle import Puzzle
from azr_jax.models.tokenizers import Tokenizer
from azr_jax.parallel.hosts import Hosts
from azr_jax.parallel.shared_jobs import SharedJobs
from azr_jax.systems.system import Context
from azr_jax.tasks.countdown import difficulty, generator, prompts

SETTINGS: dict[str, Any] = dict(
  prompts=8, group_size=4, prompt_format="compact"
)
# Answers are verified in-process, so there are no jobs.
CONTEXT = Context(
  0,
  10,
  stand_in(SharedJobs),
  stand_in(Executor),
  stand_in(Hosts),
  stand_in(Tokenizer),
  stand_in(ExecutorSettings),
)
PUZZLES = [Puzzle((index + 1, 20, 30), index + 51) for index in range(30)]


class ScriptedPolicy(scripted.Policy):
  """Solves a puzzle in its first `skill` samples; proposes sums with a 7."""

  def __init__(self, skill=2):
    self.skill = skill
    self.asked = []
    self.made = 0

  def prompt(self, text, task=None):
    return types.Prompt(text, tuple(range(len(text))), task)

  def fits(self, prompt):
    return True

  @scripted.samples
  def sample(self, asked, n=1, prompt_numbers=None, tool_runner=None, call=0):
    self.asked += asked
    for index, prompt in enumerate(asked):
      for sample in range(n):
        yield index, sample, completion(self.reply(prompt, sample))

  def reply(self, prompt, sample):
    if prompt.text.startswith("propose"):
      self.made += 1
      if self.made % 4 == 0:
        return prompts.format_response("", "a puzzle")
      return prompts.format_response(
        "", prompts.puzzle_line(training_puzzle(self.made))
      )
    if sample < self.skill:
      return prompts.format_response(
        "", "+".join(map(str, prompt.task.numbers))
      )
    return (
      prompts.format_response("", "1") if sample == self.skill else "no answer"
    )


def training_puzzle(number):
  """Returns a puzzle of the training split whose solution is a sum."""
  made = [Puzzle((7, n, number), 7 + n + number) for n in range(50, 80)]
  return next(puzzle for puzzle in made if not generator.is_test(puzzle))


def completion(text):
  ids = np.arange(max(len(text) // 4, 1), dtype=np.int32)
  return types.Completion(
    ids, np.zeros(len(ids), np.float32), np.ones(len(ids), bool), "stop", text
  )


def pool(names=difficulty.BUCKETS):
  return Buckets(names, [index // 10 for index in range(30)])
