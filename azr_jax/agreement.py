"""Measures how far the sampler's log-probabilities are from the learner's.

  python -m azr_jax.agreement --config=configs/azr.py:tiny \\
      --config.model.dtype=bfloat16

Samples a few prompts with the model of a training config and scores the same
tokens as an update does. Prints as JSON |delta log p| in nats (mean, p50, p99,
max) and the fraction of tokens whose two log-probabilities are bitwise equal.
During training, `rollout/logprob_gap_p99` reports the same for every step.
"""

import json

from absl import flags

from azr_jax.cli import front
from azr_jax.lab.bench import agreement, commands
from azr_jax.trainer import settings as train_settings


def run() -> None:
  """Runs the command."""
  config = front.config_flag("The experiment, as FILE:VARIANT.")
  prompts = flags.DEFINE_integer(
    "prompts", 32, "Number of prompts.", lower_bound=1
  )
  new_tokens = flags.DEFINE_integer(
    "new_tokens", 256, "Longest completion, in tokens.", lower_bound=1
  )

  def main() -> None:
    metrics = agreement.measure(
      train_settings.read_train(config.value), prompts.value, new_tokens.value
    )
    print(json.dumps(commands.round_numbers(metrics), indent=2))

  front.run(__doc__, main)


if __name__ == "__main__":
  run()
