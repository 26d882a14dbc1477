"""Qwen3-MoE: Qwen3 with experts in place of every MLP."""

from typing import Any

from azr_jax.models.config import ExpertShape, ModelConfig
from azr_jax.models.families import family, llama, llama_cpp, ropes
from azr_jax.models.families.fields import ConfigFields, unsupported

# The older and the newer name of the number of experts.
_COUNTS = ("num_experts", "num_local_experts")


def read(fields: ConfigFields) -> ModelConfig:
  """Reads the fields of config.json."""
  family.require_llama_layers(fields)
  llama.require_no_windows(fields)
  # Other values have layers without experts.
  fields.require(decoder_sparse_step=1, mlp_only_layers=[])
  # The loss that balances experts is for pretraining; no loss here has it.
  fields.ignore("router_aux_loss_coef", "output_router_logits")
  shape = family.read_shape(fields, ropes.read(fields), named_head_size=True)
  counts = [n for key in _COUNTS if (n := fields.take(key)) is not None]
  count = fields.size(_COUNTS[0], counts[0] if counts else None)
  if any(other != count for other in counts):
    raise unsupported(_COUNTS[1], counts[1], f"{count}, as in `{_COUNTS[0]}`")
  per_token = fields.size("num_experts_per_tok")
  if per_token > count:
    raise unsupported("num_experts_per_tok", per_token, f"at most {count}")
  return ModelConfig(
    family="qwen3_moe",
    qk_norm=True,
    experts=ExpertShape(
      count,
      per_token,
      fields.size("moe_intermediate_size"),
      fields.flag("norm_topk_prob", default=False),
    ),
    **shape,
  )


def write(config: ModelConfig) -> dict[str, Any]:
  """Returns the fields of config.json."""
  written = family.write_shape(config)
  if config.experts is None:
    return written
  return written | {
    "num_experts": config.experts.count,
    "num_experts_per_tok": config.experts.per_token,
    "moe_intermediate_size": config.experts.size,
    "norm_topk_prob": config.experts.normalized,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
  }


FAMILY = family.Family(
  "qwen3_moe",
  "Qwen3MoeForCausalLM",
  read,
  write,
  modules={
    "router": "mlp.gate",
    **{
      name: f"mlp.experts.{{expert}}.{name}_proj"
      for name in ("gate", "up", "down")
    },
  },
  gguf=llama_cpp.Gguf(
    "qwen3moe",
    {
      "expert_count": "num_experts",
      "expert_used_count": "num_experts_per_tok",
      "expert_feed_forward_length": "moe_intermediate_size",
    },
    # llama.cpp normalizes the weights of a token's experts in every file.
    lambda *_: {"norm_topk_prob": True},
  ),
)
