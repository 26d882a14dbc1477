"""A small scheduler and costs, for tests of forecasts."""

from typing import Any

from azr_jax.lab.compile import sampler_forecast
from azr_jax.lab.compile.sampler_forecast import DecodeCost, PromptLoad
from azr_jax.rollout.build import shapes_of
from azr_jax.rollout.settings import SamplerSettings


def rules(slot_counts=(4,), devices=1, **changes):
  """Returns rules of calls of 16 tokens and pages of 4."""
  settings: dict[str, Any] = {
    "prompt_buckets": (8, 16),
    "prefill_tokens": 64,
    "decode_chunk": 16,
    "page_size": 4,
  }
  own = SamplerSettings(**settings | changes)
  shapes = shapes_of(own, devices, slot_counts)
  return sampler_forecast.Rules(shapes, platform="cpu")


def costs(call=0.0, token=1.0, page=0.0, prefill=(0.0, 0.0), **changes):
  """Returns costs of one second per token, and less with a single slot."""
  decode = DecodeCost(call, token, page)
  numbers: dict[str, Any] = {
    "prefill_s": {4: prefill, 8: prefill, 16: prefill},
    "decode": {n: decode for n in (4, 8, 32)} | {1: DecodeCost(call, 0.5, 0.0)},
  }
  return sampler_forecast.SamplerCosts(**numbers | changes)


def prompts(*counts, tokens=8):
  """Returns prompts with one completion each, of these lengths."""
  return [PromptLoad(tokens, (count,)) for count in counts]
