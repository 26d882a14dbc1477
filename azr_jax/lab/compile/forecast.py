"""Predicts a training step's seconds: sampling, then learning.

The scheduler of sampling runs on an engine whose calls cost time
(`sampler_forecast.py`); batches are packed as `learner/packing.py` does.
"""

import dataclasses
import math
from collections.abc import Sequence

from azr_jax.lab.compile import sampler_forecast
from azr_jax.lab.compile.sampler_forecast import (
  Prompt,
  Rules,
  SamplerCosts,
  SimulatedSampling,
)
from azr_jax.learner import packing


@dataclasses.dataclass(frozen=True)
class LearnerCosts:
  """Seconds of learning from a batch.

  Attributes:
    call_s: of an update, without its micro-batches and the critic's steps.
    micro_batch_s: of each micro-batch.
    params_s: to hand new parameters to the sampler.
    score_call_s: of what is scored before the first update, without its
      micro-batches.
    score_micro_batch_s: of scoring each micro-batch.
    critic_step_s: of each of the critic's optimizer steps, without its
      micro-batches.
  """

  call_s: float
  micro_batch_s: float
  params_s: float = 0.0
  score_call_s: float = 0.0
  score_micro_batch_s: float = 0.0
  critic_step_s: float = 0.0


@dataclasses.dataclass(frozen=True)
class LearnerRules:
  """What the learner does with a batch.

  Attributes:
    row_length: tokens of a row.
    micro_rows: rows of a micro-batch, padded to the mesh.
    epochs: updates on each batch.
    max_sequences_per_row: sequences of a row at most.
    critic_steps: optimizer steps that a critic takes on each batch at most;
      each has a micro-batch at least.
  """

  row_length: int
  micro_rows: int
  epochs: int = 1
  max_sequences_per_row: int = packing.MAX_SEQUENCES_PER_ROW
  critic_steps: int = 0


@dataclasses.dataclass(frozen=True)
class Step:
  """A training step that was simulated.

  Attributes:
    sampled: the step's sampling.
    rows: packed rows that were trained on.
    micro_batches: micro-batches of each update.
    update_s: seconds of learning.
    params_s: seconds to hand the new parameters to the sampler.
  """

  sampled: SimulatedSampling
  rows: int
  micro_batches: int
  update_s: float
  params_s: float

  @property
  def step_s(self) -> float:
    """Seconds of the step."""
    return self.sampled.seconds + self.update_s + self.params_s


def step(
  prompts: Sequence[Prompt],
  trained: Sequence[int],
  rules: Rules,
  costs: SamplerCosts,
  learner_rules: LearnerRules,
  learner_costs: LearnerCosts,
) -> Step:
  """Simulates a training step that samples what it learns from.

  Args:
    prompts: what is sampled.
    trained: tokens of each sequence that is trained on, prompt included.
    rules: of the scheduler.
    costs: of the sampler's device calls.
    learner_rules: of the learner.
    learner_costs: of its device calls.
  """
  simulated = sampler_forecast.sample(prompts, rules, costs)
  # A row holds inputs and targets, one less than the ids of a sequence.
  lengths = [tokens - 1 for tokens in trained]
  packed = packing.assign_rows(
    lengths, learner_rules.row_length, learner_rules.max_sequences_per_row
  )
  rows = len(packed)
  micro_batches = math.ceil(rows / learner_rules.micro_rows)
  c = learner_costs
  score_s = c.score_call_s + micro_batches * c.score_micro_batch_s
  critic_s = min(learner_rules.critic_steps, micro_batches) * c.critic_step_s
  epoch_s = c.call_s + critic_s + micro_batches * c.micro_batch_s
  update_s = score_s + learner_rules.epochs * epoch_s
  return Step(simulated, rows, micro_batches, update_s, c.params_s)
