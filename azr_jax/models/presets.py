"""Configs of published models and of the tiny models, by name."""

import dataclasses
import math

from azr_jax.models.config import (
  ClampedSwiglu,
  ExpertShape,
  Llama3RopeScaling,
  ModelConfig,
  YarnRopeScaling,
)


def _qwen25(
  hidden: int,
  layers: int,
  heads: int,
  kv_heads: int,
  mlp: int,
  *,
  tie: bool,
  vocab: int,
  eps: float,
  max_positions: int,
) -> ModelConfig:
  """Returns a config of the Qwen2.5 family."""
  return ModelConfig(
    vocab_size=vocab,
    hidden_size=hidden,
    num_layers=layers,
    num_heads=heads,
    num_kv_heads=kv_heads,
    head_size=hidden // heads,
    mlp_size=mlp,
    rope_theta=1_000_000.0,
    norm_eps=eps,
    tie_embeddings=tie,
    max_positions=max_positions,
    qkv_bias=True,
    family="qwen2",
  )


# Size -> D, L, H, K, F, whether embeddings are tied, V, epsilon of norms.
_QWEN25_SIZES = {
  "0.5b": (896, 24, 14, 2, 4864, True, 151936, 1e-6),
  "1.5b": (1536, 28, 12, 2, 8960, True, 151936, 1e-6),
  "3b": (2048, 36, 16, 2, 11008, True, 151936, 1e-6),
  "7b": (3584, 28, 28, 4, 18944, False, 152064, 1e-6),
  "14b": (5120, 48, 40, 8, 13824, False, 152064, 1e-5),
  "32b": (5120, 64, 40, 8, 27648, False, 152064, 1e-5),
}


def _qwen3(
  hidden: int, layers: int, heads: int, mlp: int, *, tie: bool
) -> ModelConfig:
  """Returns a config of the Qwen3 family."""
  return ModelConfig(
    vocab_size=151936,
    hidden_size=hidden,
    num_layers=layers,
    num_heads=heads,
    num_kv_heads=8,
    head_size=128,
    mlp_size=mlp,
    rope_theta=1_000_000.0,
    norm_eps=1e-6,
    tie_embeddings=tie,
    max_positions=40960,
    qk_norm=True,
    family="qwen3",
  )


# Size -> D, L, H, F, whether embeddings are tied.
_QWEN3_SIZES = {
  "0.6b": (1024, 28, 16, 3072, True),
  "1.7b": (2048, 28, 16, 6144, True),
  "4b": (2560, 36, 32, 9728, True),
  "8b": (4096, 36, 32, 12288, False),
  "14b": (5120, 40, 40, 17408, False),
  "32b": (5120, 64, 64, 25600, False),
}
# Size and active size -> D, L, H, F (which no layer has), F of an expert.
_QWEN3_MOE_SIZES = {
  "30b-a3b": (2048, 48, 32, 6144, 768),
  "235b-a22b": (4096, 94, 64, 12288, 1536),
}


def _gpt_oss(layers: int, experts: int) -> ModelConfig:
  """Returns a config of the gpt-oss family."""
  return ModelConfig(
    vocab_size=201088,
    hidden_size=2880,
    num_layers=layers,
    num_heads=64,
    num_kv_heads=8,
    head_size=64,
    mlp_size=2880,
    rope_theta=150_000.0,
    norm_eps=1e-5,
    tie_embeddings=False,
    max_positions=131072,
    rope_scaling=YarnRopeScaling(
      32.0, 4096, 0.1 * math.log(32.0) + 1.0, truncate=False
    ),
    qkv_bias=True,
    o_bias=True,
    sinks=True,
    windows=(128, 0) * (layers // 2),
    experts=ExpertShape(
      experts, 4, 2880, biases=True, clamp=ClampedSwiglu(1.702, 7.0)
    ),
    family="gpt_oss",
  )


# Size -> L, X.
_GPT_OSS_SIZES = {"20b": (24, 32), "120b": (36, 128)}
# Base models with 131072 positions; the others and Coder have 32768.
_LONG_CONTEXT = ("1.5b", "7b", "14b", "32b")

# 1.7M parameters, small enough to train on two CPU cores.
_TINY = ModelConfig(
  vocab_size=544,
  hidden_size=192,
  num_layers=4,
  num_heads=4,
  num_kv_heads=2,
  head_size=48,
  mlp_size=512,
  rope_theta=10_000.0,
  norm_eps=1e-6,
  tie_embeddings=True,
  max_positions=1024,
)

PRESETS: dict[str, ModelConfig] = {
  # Two of eight experts have as many channels as the MLP of `azr-tiny`.
  "moe-tiny": dataclasses.replace(
    _TINY, family="qwen3_moe", qk_norm=True, experts=ExpertShape(8, 2, 256)
  ),
  "azr-tiny": _TINY,
  "countdown-tiny": dataclasses.replace(_TINY, vocab_size=320),
  "code-tiny": dataclasses.replace(_TINY, vocab_size=384),
  "orz-tiny": dataclasses.replace(_TINY, vocab_size=320),
  # Narrower and wider than `orz-tiny`: 0.4M and 5M parameters.
  "orz-tiny-0.4m": dataclasses.replace(
    _TINY, vocab_size=320, hidden_size=96, head_size=24, mlp_size=256
  ),
  "orz-tiny-5m": dataclasses.replace(
    _TINY, vocab_size=320, hidden_size=320, head_size=80, mlp_size=960
  ),
  "smollm2-135m": ModelConfig(
    vocab_size=49152,
    hidden_size=576,
    num_layers=30,
    num_heads=9,
    num_kv_heads=3,
    head_size=64,
    mlp_size=1536,
    rope_theta=100_000.0,
    norm_eps=1e-5,
    tie_embeddings=True,
    max_positions=8192,
  ),
  "llama-3.1-8b": ModelConfig(
    vocab_size=128256,
    hidden_size=4096,
    num_layers=32,
    num_heads=32,
    num_kv_heads=8,
    head_size=128,
    mlp_size=14336,
    rope_theta=500_000.0,
    norm_eps=1e-5,
    tie_embeddings=False,
    max_positions=131072,
    rope_scaling=Llama3RopeScaling(8.0, 1.0, 4.0, 8192),
  ),
}
for _size, (*_shape, _tie) in _QWEN3_SIZES.items():
  PRESETS[f"qwen3-{_size}"] = _qwen3(*_shape, tie=_tie)
for _size, (*_shape, _expert) in _QWEN3_MOE_SIZES.items():
  PRESETS[f"qwen3-{_size}"] = dataclasses.replace(
    _qwen3(*_shape, tie=False),
    num_kv_heads=4,
    family="qwen3_moe",
    experts=ExpertShape(128, 8, _expert),
  )
for _size, _shape in _GPT_OSS_SIZES.items():
  PRESETS[f"gpt-oss-{_size}"] = _gpt_oss(*_shape)
for _size, (*_shape, _tie, _vocab, _eps) in _QWEN25_SIZES.items():
  for _family in ("qwen2.5", "qwen2.5-coder"):
    _long = _family == "qwen2.5" and _size in _LONG_CONTEXT
    PRESETS[f"{_family}-{_size}"] = _qwen25(
      *_shape,
      tie=_tie,
      vocab=_vocab,
      eps=_eps,
      max_positions=131072 if _long else 32768,
    )
# Distilled into Qwen2.5-14B, so it has the same shape.
PRESETS["deepseek-r1-distill-qwen-14b"] = PRESETS["qwen2.5-14b"]


def parameter_count(config: ModelConfig) -> int:
  """Returns the number of parameters of a decoder with this config."""
  c = config
  attention = c.hidden_size * c.head_size * (2 * c.num_heads)
  attention += c.hidden_size * c.head_size * (2 * c.num_kv_heads)
  if c.qkv_bias:
    attention += c.head_size * (c.num_heads + 2 * c.num_kv_heads)
  if c.o_bias:
    attention += c.hidden_size
  if c.sinks:
    attention += c.num_heads
  if c.qk_norm:
    attention += 2 * c.head_size
  if c.joint_qk_norm:
    attention += c.head_size * (c.num_heads + c.num_kv_heads)
  norms = 2 * c.hidden_size * (c.norm_before + c.norm_after)
  mlp = 3 * c.hidden_size * c.mlp_size
  if c.experts is not None:
    mlp = c.experts.count * (c.hidden_size + _expert_size(c, c.experts))
    mlp += c.experts.count * c.experts.biases
  layer = attention + mlp + norms
  tables = 1 if c.tie_embeddings else 2
  embedding = tables * c.vocab_size * c.hidden_size
  return c.num_layers * layer + embedding + c.hidden_size


def active_parameter_count(config: ModelConfig) -> int:
  """Returns the number of parameters that compute a token.

  They are all parameters but the experts that a token does not get.
  """
  if config.experts is None:
    return parameter_count(config)
  active = config.experts.per_token / config.experts.count
  idle = round((1 - active) * expert_parameter_count(config))
  return parameter_count(config) - idle


def expert_parameter_count(config: ModelConfig) -> int:
  """Returns the number of parameters of all experts, without routers."""
  if config.experts is None:
    return 0
  each = _expert_size(config, config.experts)
  return config.num_layers * config.experts.count * each


def _expert_size(config: ModelConfig, experts: ExpertShape) -> int:
  """Returns the number of parameters of one expert."""
  size = 3 * config.hidden_size * experts.size
  biases = 2 * experts.size + config.hidden_size
  return size + biases * experts.biases
