"""Load-tests `azr_jax.serve` with many clients, next to its own sampler.

First the sampler answers some questions directly. Then clients send the same
questions to a server repeatedly for a while, and abort some requests halfway.
The keys:

  sampler_tokens_per_s, served_tokens_per_s, ratio
  same, different   answers with the sampler's tokens, and with others
  failed            requests without a complete answer
  cut               requests that the client aborted
  memory_mib        memory of the server: after a quarter of the time, and at
                    the end
"""

import argparse
import asyncio
from typing import Any

from azr_jax.config import overrides
from azr_jax.lab.bench import device, serving
from azr_jax.trainer import loading
from azr_jax.trainer import settings as train_settings


def add_flags(parser: argparse.ArgumentParser) -> None:
  """Adds the flags of the measurement."""
  add = parser.add_argument
  add("--model", default="embedded:azr-tiny", help="model spec")
  add("--clients", type=int, default=64, help="concurrent clients")
  add("--seconds", type=float, default=120.0, help="duration of the load")
  add("--questions", type=int, default=256, help="number of distinct questions")
  add("--new_tokens", type=int, default=64, help="maximum tokens of an answer")
  add("--slots", type=int, default=64, help="the sampler's slots")
  add("--cut", type=float, default=0.1, help="fraction of requests to abort")


def measure(flags: argparse.Namespace) -> dict[str, Any]:
  """Samples directly, then through a server; returns counts and rates."""
  machine = device.machine()
  config = overrides.to_config(train_settings.SamplingSettings())
  changes = {
    "rollout.slots": flags.slots,
    "rollout.prompt_buckets": (64,),
    "rollout.max_tokens": flags.new_tokens,
    "rollout.decode_chunk": 8,
    "rollout.stop_strings": (),
  }
  config.update_from_flattened_dict(changes)
  settings = train_settings.read(train_settings.SamplingSettings, config)
  asked = serving.questions(flags.questions, flags.new_tokens)
  policy = loading.load_policy(settings, flags.model)
  policy.sampler.warm_up(policy.params)
  references, sampler_rate = serving.sample(policy, asked)
  policy.weights.release()
  arguments = [f"--model={flags.model}"]
  arguments += [f"--config.serve.max_waiting={4 * flags.clients}"]
  arguments += [f"--config.{key}={value}" for key, value in changes.items()]
  with serving.served(arguments) as (url, pid):
    found = asyncio.run(
      serving.ask(
        url, pid, asked, references, flags.clients, flags.seconds, flags.cut
      )
    )
  rate = found.tokens / found.seconds
  memory = found.memory_mib
  return {
    "machine": machine,
    "sampler_tokens_per_s": round(sampler_rate, 1),
    "served_tokens_per_s": round(rate, 1),
    "ratio": round(rate / sampler_rate, 3),
    "same": found.same,
    "different": found.different,
    "failed": found.failed,
    "cut": found.cut,
    "memory_mib": [round(memory[len(memory) // 4]), round(memory[-1])],
  }
