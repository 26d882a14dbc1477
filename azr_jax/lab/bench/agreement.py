"""Measures how far the sampler's log-probabilities are from the learner's.

Tokens are sampled as in a run: prefill, a cache read in chunks, one token per
slot at a time. They are scored as in an update: packed rows, whole sequences at
once, in the layout of the learner's mesh. Both use the same parameters, so
exact arithmetic would find no gap.
"""

from typing import Any

import jax
import numpy as np

from azr_jax import types
from azr_jax.lab.bench import device
from azr_jax.learner import update
from azr_jax.models import adapters
from azr_jax.models.tokenizers import Tokenizer
from azr_jax.parallel import memory
from azr_jax.trainer import build, sizes
from azr_jax.trainer.build import Experiment
from azr_jax.trainer.settings import ExperimentSettings

# Prompts of prose and of code. The answers do not matter.
_TEXTS = (
  "Question: a farmer has 17 sheep and buys 26 more. How many are there?\n",
  "def longest_run(numbers):\n  '''Returns the longest ascending run.'''\n",
  "The river was wide, and nobody in the village had ever crossed it. ",
  "Use the numbers 3, 7, 11 and 25 to make 98. Show your work.\n",
)


@memory.explained(memory.SAMPLING_KEYS)
def measure(
  settings: ExperimentSettings, prompts: int, new_tokens: int
) -> dict[str, Any]:
  """Samples and scores completions, and returns statistics of the gap.

  Args:
    settings: a training configuration.
    prompts: number of prompts, each with one completion.
    new_tokens: maximum completion length, at most `rollout.max_tokens`.

  Returns:
    The number of tokens, the fraction whose log-probabilities are bitwise
    equal, and the mean, quantiles and maximum of |delta log p| in nats.
  """
  experiment = build.build(settings, sizes.Workload(prompts))
  c = experiment.settings.shared
  params = adapters.join(experiment.load_base(), experiment.load_trained())
  trajectories = _sample(experiment, params, prompts, new_tokens)
  batch, _ = experiment.batching.pack_to_score(trajectories)
  scored = experiment.scores(params, update.place(batch, experiment.mesh))
  logprobs = np.asarray(jax.device_get(scored[0]))
  trained = batch.loss_mask > 0
  gap = np.abs(logprobs - batch.sampled_logprobs)[trained].astype(np.float64)
  return {
    "device": jax.devices()[0].device_kind,
    "machine": device.machine(),
    "dtype": c.model.dtype,
    "tokens": int(gap.size),
    "equal_fraction": float(np.mean(gap == 0)),
    "mean": float(gap.mean()),
    "p50": float(np.quantile(gap, 0.5)),
    "p99": float(np.quantile(gap, 0.99)),
    "max": float(gap.max()),
  }


def _sample(
  experiment: Experiment, params: types.Params, count: int, new_tokens: int
) -> list[types.Trajectory]:
  """Returns one completion per prompt, with its log-probabilities."""
  sampler, rollout = experiment.sampler, experiment.settings.shared.rollout
  longest = rollout.prompt_buckets[-1]
  prompts = [
    _prompt(experiment.source.tokenizer, number, longest)
    for number in range(count)
  ]
  return [
    types.Trajectory(prompts[index], completion, 0.0, index)
    for index, _, completion in sampler.generate(
      sampler.compute_params(params),
      prompts,
      1,
      experiment.sampling_key(0),
      [min(new_tokens, rollout.max_tokens)] * count,
    )
  ]


def _prompt(tokenizer: Tokenizer, number: int, longest: int) -> types.Prompt:
  """Returns a prompt; a number makes prompts of the same text differ."""
  text = f"{number}. {_TEXTS[number % len(_TEXTS)]}"
  return types.Prompt(text, tuple(tokenizer.encode_prompt(text)[:longest]))
