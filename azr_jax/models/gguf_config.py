"""Converts the metadata of GGUF files to `ModelConfig` and back.

The metadata becomes the fields of config.json, which the family reads
(`families/`). So constants that GGUF files lack, such as Gemma's pattern of
windows, are the family's defaults.
"""

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from azr_jax.config import user_files
from azr_jax.models import huggingface_config, rope
from azr_jax.models.config import ModelConfig
from azr_jax.models.families import llama_cpp, registry
from azr_jax.models.families.family import Family
from azr_jax.models.families.fields import ConfigFields

# Metadata keys under the architecture's name -> fields of config.json. Those of
# attention have defaults, in `_fields`.
_FIELDS = {
  "block_count": "num_hidden_layers",
  "context_length": "max_position_embeddings",
  "feed_forward_length": "intermediate_size",
  "attention.layer_norm_rms_epsilon": "rms_norm_eps",
}
# Keys that repeat the head size.
_HEAD_SIZES = ("rope.dimension_count", "attention.value_length")
# Keys that do not affect the model.
_IGNORED = {"vocab_size", "rope.scaling.type", "rope.scaling.finetuned"}


def family_of(metadata: Mapping[str, Any]) -> Family:
  """Returns the family that reads a file.

  Raises:
    ValueError: no family has the file's architecture.
  """
  name = metadata.get("general.architecture")
  if not isinstance(name, str) or name not in registry.BY_ARCHITECTURE:
    known = tuple(sorted(registry.BY_ARCHITECTURE))
    raise _refuse("general.architecture", name, f"one of {known}")
  return registry.BY_ARCHITECTURE[name]


def read(
  metadata: Mapping[str, Any],
  vocab_size: int,
  tensors: Collection[str],
  factors: llama_cpp.Factors,
) -> ModelConfig:
  """Returns the model's config.

  Args:
    metadata: metadata of the file.
    vocab_size: V, rows of the embedding.
    tensors: Hugging Face names of the file's tensors.
    factors: the tensors that the family has as its `factors`.

  Raises:
    ValueError: the decoder does not support a field's value.
  """
  family = family_of(metadata)
  assert family.gguf is not None
  fields = ConfigFields(
    {
      **_fields(metadata, family.gguf, tensors, factors),
      "vocab_size": vocab_size,
      "tie_word_embeddings": "lm_head.weight" not in tensors,
    }
  )
  config = family.read(fields)
  fields.finish()
  # These follow from the tensors, as in llama.cpp.
  attention = "model.layers.0.self_attn"
  return dataclasses.replace(
    config,
    qkv_bias=f"{attention}.q_proj.bias" in tensors,
    qk_norm=f"{attention}.q_norm.weight" in tensors
    and not config.joint_qk_norm,
  )


def _fields(
  metadata: Mapping[str, Any],
  gguf: llama_cpp.Gguf,
  tensors: Collection[str],
  factors: llama_cpp.Factors,
) -> dict[str, Any]:
  """Returns the fields of config.json that a file has or implies."""
  prefix = f"{gguf.architecture}."
  given = {
    key.removeprefix(prefix): value
    for key, value in metadata.items()
    if key.startswith(prefix)
  }
  scaling = given.get("rope.scaling.type", "none")
  if scaling != "none":
    raise _refuse(prefix + "rope.scaling.type", scaling, "none")
  if (name := llama_cpp.LLAMA_3_FACTORS) in tensors:
    raise _refuse(name, "a tensor", "no rope scaling")

  def take(name: str, default: Any = None) -> Any:
    """Removes and returns a field that must have one value for all layers."""
    value = given.pop(name, default)
    if value is None:
      raise _refuse(prefix + name, value, "a value")
    if isinstance(value, list):
      raise _refuse(prefix + name, value, "one value for all layers")
    return _shortest(value)

  heads, hidden = take("attention.head_count"), take("embedding_length")
  head_size = take("attention.key_length", hidden // heads)
  for name in {*_HEAD_SIZES} - {*gguf.fields}:
    size = take(name, head_size)
    if size != head_size:
      raise _refuse(prefix + name, size, f"the head size, {head_size}")
  fields = {
    "num_attention_heads": heads,
    "num_key_value_heads": take("attention.head_count_kv", heads),
    "hidden_size": hidden,
    "head_dim": head_size,
    "rope_theta": take("rope.freq_base", 10000.0),
    **{field: take(name) for name, field in _FIELDS.items()},
    **{f: take(name) for name, f in gguf.fields.items() if name in given},
  }
  for name, value in given.items():
    if name not in _IGNORED:
      raise _refuse(prefix + name, value, "a field that this decoder supports")
  return fields | gguf.implied(fields, factors)


def write(config: ModelConfig, tensors: Collection[str]) -> dict[str, Any]:
  """Returns the metadata from which `read` gets the config.

  Some rotary scalings are tensors instead (`Gguf.scaled`).

  Args:
    config: the model's config.
    tensors: Hugging Face names of the model's tensors.

  Raises:
    ValueError: GGUF files of the family cannot describe this decoder.
  """
  family, gguf = registry.of(config), registry.of(config).gguf
  if gguf is None:
    names = [f.name for f in registry.FAMILIES.values() if f.gguf]
    raise ValueError(
      f"model_type={family.name!r}: expected one of {names} to save as GGUF"
    )
  # Refuses what the family cannot describe, as for its own files.
  fields = huggingface_config.to_huggingface(config, "float32")
  values = {
    "block_count": config.num_layers,
    "context_length": config.max_positions,
    "embedding_length": config.hidden_size,
    "feed_forward_length": config.mlp_size,
    "attention.head_count": config.num_heads,
    "attention.head_count_kv": config.num_kv_heads,
    "attention.key_length": config.head_size,
    "attention.value_length": config.head_size,
    "rope.dimension_count": config.head_size,
    "rope.freq_base": config.rope_theta,
    "attention.layer_norm_rms_epsilon": config.norm_eps,
    "vocab_size": config.vocab_size,
    **{k: fields[f] for k, f in gguf.fields.items() if fields.get(f)},
    **gguf.written(config),
  }
  metadata: dict[str, Any] = {
    f"{gguf.architecture}.{key}": value for key, value in values.items()
  }
  metadata["general.architecture"] = gguf.architecture
  scaled = gguf.scaled(config)
  factors = {name: scaled[name] for name in gguf.factors if name in scaled}
  again = read(metadata, config.vocab_size, tensors, factors)
  changes: dict[str, Any] = {"family": again.family}
  if {*scaled} - {*factors}:
    changes["rope_scaling"] = None
  config = dataclasses.replace(rope.for_length(config, 0), **changes)
  huggingface_config.require_same(_shortest(config), _shortest(again), "GGUF")
  return metadata


def _refuse(key: str, value: object, expected: str) -> ValueError:
  """Returns the error for metadata that the decoder does not support."""
  return user_files.Refusal(f"{key}={value!r}: expected {expected}")


def _shortest(value: Any) -> Any:
  """Rounds a float32 to its shortest decimal: 1e-05, not 9.99999974e-06.

  Args:
    value: a number, or anything that dataclasses and tuples hold.
  """
  if dataclasses.is_dataclass(value) and not isinstance(value, type):
    rounded = {
      field.name: _shortest(getattr(value, field.name))
      for field in dataclasses.fields(value)
    }
    return dataclasses.replace(value, **rounded)
  if isinstance(value, tuple):
    return tuple(map(_shortest, value))
  return float(str(np.float32(value))) if isinstance(value, float) else value
