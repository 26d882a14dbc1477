"""Predicts a training step's seconds: sampling, then learning.

The real scheduler runs on an engine whose calls cost time
(`sampler_forecast.py`). Batches are packed as in `learner/packing.py`.
"""

import dataclasses
import math
from collections.abc import Sequence

from azr_jax.lab.compile import sampler_forecast
from azr_jax.lab.compile.sampler_forecast import (
  PromptLoad,
  Rules,
  SamplerCosts,
  SimulatedSampling,
)
from azr_jax.learner import packing


@dataclasses.dataclass(frozen=True)
class LearnerCosts:
  """Seconds of learning from a batch.

  Attributes:
    call_s: seconds of an update, without micro-batches and critic steps.
    micro_batch_s: seconds per micro-batch of an update.
    params_s: seconds to hand new parameters to the sampler.
    score_call_s: seconds of scoring before the first update, without
      micro-batches.
    score_micro_batch_s: seconds per micro-batch of scoring.
    critic_step_s: seconds per optimizer step of the critic, without
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
  """The settings that the learner's work on a batch depends on.

  Attributes:
    row_length: tokens of a row.
    micro_rows: rows of a micro-batch, padded to the mesh.
    epochs: updates on each batch.
    minibatches: optimizer steps of an update.
    max_sequences_per_row: maximum number of sequences in a row.
    critic_steps: maximum number of the critic's optimizer steps on a batch;
      each has at least one micro-batch.
  """

  row_length: int
  micro_rows: int
  epochs: int = 1
  max_sequences_per_row: int = packing.MAX_SEQUENCES_PER_ROW
  critic_steps: int = 0
  minibatches: int = 1


@dataclasses.dataclass(frozen=True)
class SimulatedStep:
  """A simulated training step.

  Attributes:
    sampled: the step's sampling.
    rows: number of packed training rows.
    micro_batches: micro-batches per update.
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
    """Total seconds of the step."""
    return self.sampled.seconds + self.update_s + self.params_s


def step(
  prompts: Sequence[PromptLoad],
  trained: Sequence[int],
  rules: Rules,
  costs: SamplerCosts,
  learner_rules: LearnerRules,
  learner_costs: LearnerCosts,
) -> SimulatedStep:
  """Simulates a training step that trains on what it samples.

  Args:
    prompts: the prompts and the lengths of their completions.
    trained: length of each trained sequence, prompt included.
    rules: the scheduler's settings.
    costs: the costs of the sampler's device calls.
    learner_rules: the learner's settings.
    learner_costs: the costs of the learner's device calls.
  """
  simulated = sampler_forecast.sample(prompts, rules, costs)
  # Rows hold inputs and targets: one less than the tokens of a sequence.
  lengths = [tokens - 1 for tokens in trained]
  rows = rows_of_parts(
    lengths,
    learner_rules.row_length,
    learner_rules.max_sequences_per_row,
    learner_rules.minibatches,
  )
  # Each part has micro-batches of its own.
  micro_batches = sum(math.ceil(n / learner_rules.micro_rows) for n in rows)
  c = learner_costs
  score_s = c.score_call_s + micro_batches * c.score_micro_batch_s
  critic_s = min(learner_rules.critic_steps, micro_batches) * c.critic_step_s
  calls_s = learner_rules.minibatches * c.call_s
  epoch_s = calls_s + critic_s + micro_batches * c.micro_batch_s
  update_s = score_s + learner_rules.epochs * epoch_s
  return SimulatedStep(
    simulated, sum(rows), micro_batches, update_s, c.params_s
  )


def rows_of_parts(
  lengths: Sequence[int], row_length: int, most: int, minibatches: int
) -> list[int]:
  """Returns the number of rows of each part of a batch.

  Args:
    lengths: inputs of each sequence.
    row_length: tokens of a row.
    most: maximum number of sequences in a row.
    minibatches: number of parts, which training draws at random.
  """
  parts = (lengths[part::minibatches] for part in range(minibatches))
  return [len(packing.assign_rows(part, row_length, most)) for part in parts]
