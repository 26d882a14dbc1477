"""Lower bounds of a training step's seconds on given chips, from counts alone.

The bounds assume that matrix units never wait, that memory and links carry only
what must move, and that computation hides transfers. The time of the host, of
grading and of uneven response lengths comes on top.
"""

import dataclasses
from typing import Any

from azr_jax.lab.compile import collectives
from azr_jax.learner.advantages import GAE
from azr_jax.models.config import ModelConfig
from azr_jax.models.operations import (
  cache_entry_bytes,
  forward_flops,
  weight_bytes,
  weight_gradient_flops,
)
from azr_jax.parallel.chips import Chip
from azr_jax.trainer.settings import ExperimentSettings, TrainSettings


@dataclasses.dataclass(frozen=True)
class Load:
  """The tokens of one training step.

  Attributes:
    sequences: number of sampled completions.
    trained: number of completions in the training batch.
    prompts: number of prefilled prompts; samples of a prompt share its prefill.
    prompt_tokens: mean prompt length.
    new_tokens: mean completion length.
    phases: (prompts, completions per prompt) of each phase. Each prompt of a
      later phase follows from a prompt of the first phase.
  """

  sequences: int
  trained: int
  prompts: int
  prompt_tokens: float
  new_tokens: float
  phases: tuple[tuple[int, int], ...] = ()


@dataclasses.dataclass(frozen=True)
class StepBounds:
  """The best possible times and rates of one step.

  Attributes:
    prefill_s: seconds of prefill.
    decode_s: seconds of decode.
    update_s: seconds of updating the policy.
    critic_s: seconds of estimating values and updating the critic; 0 without a
      critic. Its transfers are not counted.
    decode_tokens_per_s: completion tokens per second, over all chips.
    update_tokens_per_s: prompt and completion tokens per second, over all
      chips.
    update_mfu: model FLOPs, without recomputation, divided by the chips' peak
      FLOPs in `update_s`.
    update_bound: what limits `update_s`, "compute" or "links".
  """

  prefill_s: float
  decode_s: float
  update_s: float
  critic_s: float
  decode_tokens_per_s: float
  update_tokens_per_s: float
  update_mfu: float
  update_bound: str

  @property
  def step_s(self) -> float:
    """Seconds of all phases, run one after another."""
    return self.prefill_s + self.decode_s + self.update_s + self.critic_s


def step_load(
  settings: ExperimentSettings, prompt_tokens: float, new_tokens: float
) -> Load:
  """Returns a step's tokens, with the completions that its system samples.

  Args:
    settings: a training configuration.
    prompt_tokens: mean prompt length.
    new_tokens: mean completion length.

  Raises:
    ValueError: the system does not implement `step_load`.
  """
  load = settings.system.about(settings.system_settings).load
  if load is None:
    raise ValueError(
      f"system {settings.shared.system!r}: expected one whose `about` has "
      "a load, which the estimate needs"
    )
  return Load(
    load.sequences,
    load.trained,
    load.prompts,
    prompt_tokens,
    new_tokens,
    load.phases,
  )


def estimate(
  c: TrainSettings,
  config: ModelConfig,
  chip: Chip,
  chips: int,
  tensor: int,
  remat: str,
  micro_rows: int,
  load: Load,
  update_collectives: dict[str, collectives.Total],
) -> StepBounds:
  """Returns the roofline of a step.

  Args:
    c: a training configuration.
    config: the model's config.
    chip: the chip type.
    chips: number of chips.
    tensor: number of chips that share a copy of the weights in sampling.
    remat: what the backward pass recomputes, a key of `REMAT_POLICIES`.
    micro_rows: rows of a micro-batch, padded to the mesh.
    load: the step's tokens.
    update_collectives: collectives of the compiled update, counting one
      iteration of the loop over micro-batches.
  """
  rate = chips * chip.flops
  decode_s = _decode_seconds(c, config, chip, chips, tensor, load)
  length = load.prompt_tokens + load.new_tokens
  trained = load.trained * length
  forward = forward_flops(config, trained, length / 2)
  passes = 3.0 + (1.0 if remat == "full" else 0.0)
  skipped = 0.0
  if c.lora.rank:
    skipped = weight_gradient_flops(config, trained)
  compute_s = (passes * forward - skipped) / rate
  row_tokens = c.learner.row_length * micro_rows
  micro_batches = max(1.0, trained / row_tokens)
  sent = sum(total.sent_bytes for total in update_collectives.values())
  links_s = micro_batches * sent / chip.link_bandwidth
  update_s = max(compute_s, links_s) * c.learner.epochs
  has_critic = c.learner.estimator == GAE
  return StepBounds(
    prefill_s=_prefill_flops(config, load) / rate,
    decode_s=decode_s,
    update_s=update_s,
    # Values are estimated once, and trained on in every epoch.
    critic_s=has_critic * (compute_s * c.learner.epochs + forward / rate),
    decode_tokens_per_s=load.sequences * load.new_tokens / decode_s,
    update_tokens_per_s=trained / update_s,
    update_mfu=(3.0 * forward - skipped) * c.learner.epochs / rate / update_s,
    update_bound="compute" if compute_s >= links_s else "links",
  )


def _prefill_flops(config: ModelConfig, load: Load) -> float:
  """Returns the FLOPs of prefilling the prompts.

  The output head is computed only at the last token of each prompt.
  """
  tokens = load.prompts * load.prompt_tokens
  head = 2.0 * config.vocab_size * config.hidden_size
  flops = forward_flops(config, tokens, load.prompt_tokens / 2)
  return flops - head * (tokens - load.prompts)


def _decode_seconds(
  c: TrainSettings,
  config: ModelConfig,
  chip: Chip,
  chips: int,
  tensor: int,
  load: Load,
) -> float:
  """Returns the seconds of decoding the completions.

  For each decoded token, every group of `tensor` chips reads its copy of the
  weights once, and the cache of each slot up to its length.
  """
  dtypes = c.rollout.dtypes(c.model.dtype, c.lora.kernel_dtype)
  entry = cache_entry_bytes(config, dtypes.cache)
  slots = min(c.rollout.slots, load.sequences) / (chips / tensor)
  context = load.prompt_tokens + load.new_tokens / 2
  cache = slots * entry * context
  token_s = max(
    (weight_bytes(config, dtypes) + cache) / (tensor * chip.bandwidth),
    forward_flops(config, slots, context) / (tensor * chip.flops),
  )
  steps = load.sequences * load.new_tokens / (slots * chips / tensor)
  return steps * token_s


def assumptions(load: Load) -> dict[str, Any]:
  """Returns the load that an estimate assumes, for the report."""
  return dataclasses.asdict(load)
