"""gpt-oss: attention sinks, and experts with biases and a clamped activation.

Every other layer has a sliding window, and all projections of attention have
biases.
"""

from typing import Any

from azr_jax.models.config import ClampedSwiglu, ExpertShape, ModelConfig
from azr_jax.models.families import family, ropes
from azr_jax.models.families.fields import (
  FULL,
  SLIDING,
  ConfigFields,
  unsupported,
)

_THETA = 150_000.0
_QUANTIZATION = "quantization_config"


def read(fields: ConfigFields) -> ModelConfig:
  """Reads the fields of config.json."""
  fields.require(hidden_act="silu")
  # The loss that balances experts is for pretraining; no loss here has it.
  fields.ignore("router_aux_loss_coef", "output_router_logits")
  # The length that YaRN extends; its own parameters have it, too.
  fields.ignore("initial_context_length")
  stored = fields.take(_QUANTIZATION, {"quant_method": "mxfp4"})
  if not isinstance(stored, dict) or stored.get("quant_method") != "mxfp4":
    raise unsupported(_QUANTIZATION, stored, "quant_method 'mxfp4'")
  if not any(fields.take(key) for key in (ropes.NEW, ropes.OLD)):
    # transformers has a default of its own, with YaRN.
    raise unsupported(ropes.NEW, None, "the rotary parameters")
  rope = ropes.read(fields, _THETA, ("default", "yarn"))
  shape = family.read_shape(fields, rope, named_head_size=True)
  count = fields.size("num_local_experts")
  per_token = fields.size("num_experts_per_tok")
  # Another name of it in the published files.
  fields.require(experts_per_token=per_token)
  if per_token > count:
    raise unsupported("num_experts_per_tok", per_token, f"at most {count}")
  usual = [
    FULL if layer % 2 else SLIDING for layer in range(shape["num_layers"])
  ]
  has_bias = fields.flag("attention_bias", default=True)
  return ModelConfig(
    family="gpt_oss",
    qkv_bias=has_bias,
    o_bias=has_bias,
    sinks=True,
    windows=fields.windows(usual, shape["max_positions"]),
    experts=ExpertShape(
      count,
      per_token,
      shape["mlp_size"],
      biases=True,
      clamp=ClampedSwiglu(
        fields.positive("swiglu_alpha", 1.702),
        fields.positive("swiglu_limit", 7.0),
      ),
    ),
    **shape,
  )


def write(config: ModelConfig) -> dict[str, Any]:
  """Returns the fields of config.json."""
  experts = config.experts
  if experts is None:
    return family.write_shape(config)
  clamp = experts.clamp or ClampedSwiglu(1.0, 1.0)
  windows = config.windows or (0,) * config.num_layers
  return family.write_shape(config) | {
    "num_local_experts": experts.count,
    "num_experts_per_tok": experts.per_token,
    "swiglu_alpha": clamp.alpha,
    "swiglu_limit": clamp.limit,
    "attention_bias": config.qkv_bias,
    "layer_types": [SLIDING if window else FULL for window in windows],
    "sliding_window": max(windows) or None,
  }


FAMILY = family.Family(
  "gpt_oss",
  "GptOssForCausalLM",
  read,
  write,
  modules={"router": "mlp.router"},
  expert_tensors={
    "gate": "mlp.experts.gate_up_proj",
    "up": "mlp.experts.gate_up_proj",
    "down": "mlp.experts.down_proj",
  },
)
