"""Measures what drafts gain on worked sums and on code.

A model goes on with texts that show what it is to do, with and without drafts,
in turn, at temperature 1 and greedily. The keys, for each kind of text:

  tokens_per_iteration  of a slot in the decode loop; 1 without drafts
  speedup               median of seconds without drafts over those with them
  same, completions     those with the tokens that they have without drafts
"""

import argparse
import dataclasses
from typing import Any

from azr_jax.config import overrides
from azr_jax.lab.bench import device, drafting
from azr_jax.trainer import loading
from azr_jax.trainer import settings as train_settings

_TEMPERATURES = {"temperature_1": 1.0, "greedy": 0.0}


def add_flags(parser: argparse.ArgumentParser) -> None:
  """Adds the flags of the measurement."""
  add = parser.add_argument
  add("--model", default="embedded:azr-tiny", help="a model spec")
  add("--drafts", type=int, default=4, help="of a slot in an iteration")
  add("--prompts", type=int, default=4, help="texts of each kind")
  add("--samples", type=int, default=2, help="completions of each")
  add("--new_tokens", type=int, default=96, help="the most of a completion")
  add("--repeats", type=int, default=1, help="timed runs of each")


def measure(flags: argparse.Namespace) -> dict[str, Any]:
  """Samples with and without drafts and returns what they gained."""
  machine = device.machine()
  plain, with_drafts = (_policy(flags, drafts) for drafts in (0, flags.drafts))
  found: dict[str, Any] = {"machine": machine}
  for kind, text in drafting.TEXTS.items():
    texts = [text(index) for index in range(flags.prompts)]
    for name, temperature in _TEMPERATURES.items():
      gain = drafting.gain(
        plain, with_drafts, texts, flags.samples, temperature, flags.repeats
      )
      found[f"{kind}/{name}"] = dataclasses.asdict(gain)
  return found


def _policy(flags: argparse.Namespace, drafts: int) -> Any:
  """Returns a policy with so many drafts in every call."""
  config = overrides.to_config(train_settings.SamplingSettings())
  slots = flags.prompts * flags.samples
  config.update_from_flattened_dict(
    {
      "rollout.slots": slots,
      "rollout.prompt_buckets": (512,),
      "rollout.max_tokens": flags.new_tokens,
      "rollout.stop_strings": (),
      "rollout.speculation.drafts": drafts,
      "rollout.speculation.max_slots": slots,
      "rollout.speculation.min_gain": 1.0,
    }
  )
  settings = train_settings.read(train_settings.SamplingSettings, config)
  return loading.load_policy(settings, flags.model)
