"""What a step can take at best on given chips, from counts alone.

Lower bounds: matrix units never wait, memory and links carry only what must
move, and transfers hide behind computation. The host, grading and uneven
answers come on top.
"""

import dataclasses
from typing import Any

import jax.numpy as jnp

from azr_jax.learner.advantages import GAE
from azr_jax.models.config import ModelConfig
from azr_jax.models.presets import parameter_count
from azr_jax.parallel.chips import Chip
from azr_jax.perf import hlo
from azr_jax.trainer.settings import ExperimentSettings, TrainSettings


@dataclasses.dataclass(frozen=True)
class Load:
  """One training step's tokens.

  Attributes:
    sequences: completions to sample.
    trained: completions to learn from.
    prompts: prompts to read; a prompt's samples share it.
    prompt_tokens: of a prompt, on average.
    new_tokens: of a completion, on average.
  """

  sequences: int
  trained: int
  prompts: int
  prompt_tokens: float
  new_tokens: float


@dataclasses.dataclass(frozen=True)
class Estimate:
  """Seconds and rates of one step at best.

  Attributes:
    prefill_s: reading the prompts.
    decode_s: writing the completions.
    update_s: learning from them.
    critic_s: estimating values and learning the critic, if there is one; its
      links are not counted.
    decode_tokens_per_s: of all chips together.
    update_tokens_per_s: the same, prompts counted.
    update_mfu: model operations, nothing done twice, over what the chips could
      do in `update_s`.
    update_bound: what `update_s` is bound by: compute or links.
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
    """Seconds of the phases, one after another."""
    return self.prefill_s + self.decode_s + self.update_s + self.critic_s


def step_load(
  settings: ExperimentSettings, prompt_tokens: float, new_tokens: float
) -> Load:
  """Returns a step's tokens, as the system counts its completions.

  Raises:
    ValueError: the system does not say what a step samples.
  """
  load = settings.system.step_load(settings.own)
  if load is None:
    raise ValueError(
      f"system {settings.trunk.system!r}: expected one with step_load, which "
      "the estimate needs"
    )
  return Load(
    load.sequences, load.trained, load.prompts, prompt_tokens, new_tokens
  )


def forward_flops(c: ModelConfig, tokens: float, context: float) -> float:
  """Operations of a forward pass over tokens that see `context` others."""
  matrices = parameter_count(c)
  if not c.tie_embeddings:
    matrices -= c.vocab_size * c.hidden_size  # The input table is looked up.
  attention = 4.0 * c.num_layers * c.num_heads * c.head_size * context
  return tokens * (2.0 * matrices + attention)


def estimate(
  c: TrainSettings,
  shape: ModelConfig,
  chip: Chip,
  chips: int,
  tensor: int,
  micro_rows: int,
  load: Load,
  update_collectives: dict[str, hlo.Collective],
) -> Estimate:
  """The roofline of a step.

  Args:
    c: a training configuration.
    shape: the model's.
    chip: of which there are `chips`.
    chips: devices of the mesh.
    tensor: devices that share a copy of the weights when sampling.
    micro_rows: rows of a micro-batch, padded to the mesh.
    load: the step's tokens.
    update_collectives: of the compiled update, where the loop over
      micro-batches counts once.
  """
  rate = chips * chip.flops
  length = load.prompt_tokens + load.new_tokens
  prompts = load.prompts * load.prompt_tokens
  head = 2.0 * shape.vocab_size * shape.hidden_size  # Of the last token only.
  prefill = forward_flops(shape, prompts, load.prompt_tokens / 2)
  prefill = (prefill - head * (prompts - load.prompts)) / rate

  # Every group of `tensor` chips reads its weights once per decoded token of
  # its slots, and each slot's cache up to its live length.
  width = jnp.dtype(c.model.dtype).itemsize
  matrices = forward_flops(shape, 1.0, 0.0) / 2
  entry = 2.0 * width * shape.num_layers * shape.num_kv_heads * shape.head_size
  slots = min(c.rollout.slots, load.sequences) / (chips / tensor)
  cache = slots * entry * (load.prompt_tokens + load.new_tokens / 2)
  token_s = (width * matrices + cache) / (tensor * chip.bandwidth)
  context = load.prompt_tokens + load.new_tokens / 2
  token_s = max(
    token_s, forward_flops(shape, slots, context) / (tensor * chip.flops)
  )
  steps = load.sequences * load.new_tokens / (slots * chips / tensor)
  decode = steps * token_s

  trained = load.trained * length
  forward = forward_flops(shape, trained, length / 2)
  has_critic = c.learner.estimator == GAE
  passes = 3.0 + (1.0 if c.model.remat == "full" else 0.0)
  compute = passes * forward / rate
  row_tokens = c.learner.row_length * micro_rows
  micro_batches = max(1.0, trained / row_tokens)
  sent = sum(total.bytes for total in update_collectives.values())
  links = micro_batches * sent / chip.link_bandwidth
  update = max(compute, links) * c.learner.epochs
  return Estimate(
    prefill_s=prefill,
    decode_s=decode,
    update_s=update,
    critic_s=(passes + 1.0) * forward / rate if has_critic else 0.0,
    decode_tokens_per_s=load.sequences * load.new_tokens / decode,
    update_tokens_per_s=trained / update,
    update_mfu=3.0 * forward * c.learner.epochs / rate / update,
    update_bound="compute" if compute >= links else "links",
  )


def assumptions(load: Load) -> dict[str, Any]:
  """What an estimate takes for granted, for the reader."""
  return dataclasses.asdict(load)
