"""Reads and writes adapters in PEFT's format.

A folder holds adapter_config.json and adapter_model.safetensors, whose tensors
are A [R, in] and B [out, R] of each layer. `peft_experts.py` has those of
experts.
"""

import dataclasses
import json
import pathlib
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import safetensors.numpy
from jax.sharding import Mesh

from azr_jax.config import user_files
from azr_jax.models import (
  adapters,
  peft_experts,
  safetensors_io,
  transformer,
  weight_loading,
  weight_names,
)
from azr_jax.models.adapters import Lora
from azr_jax.models.config import ModelConfig
from azr_jax.models.families.family import MODULES
from azr_jax.types import Params, Rules

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
# A value of `target_modules`: every linear layer but the output head.
_ALL_LINEAR = "all-linear"
# The targets that are modules where an MLP is one of experts.
_OF_ATTENTION = ("q", "k", "v", "o")
# Values of `init_lora_weights` that leave the base model as it is.
_INITS = (True, False, None, "gaussian", "eva", "orthogonal")
# Fields that we read, or that do not change what a trained adapter computes.
_KNOWN = (
  *("peft_type", "r", "lora_alpha", "use_rslora", "target_modules"),
  *("task_type", "base_model_name_or_path", "auto_mapping"),
  *("inference_mode", "peft_version", "init_lora_weights", "bias"),
  # Dropout is a setting of training, which here has none.
  "lora_dropout",
  # These belong to options that are off.
  *("megatron_core", "qalora_group_size"),
)


def read_config(folder: pathlib.Path) -> tuple[Lora, str]:
  """Reads rank, scale and targets of a folder's adapters.

  Returns:
    The adapters' shape, and the name of their base model: a folder, or the name
    of a Hugging Face model.

  Raises:
    ValueError: the file is damaged, or has an option that is not supported.
  """
  path = folder / CONFIG
  with user_files.reading(path, "the config of a LoRA adapter"):
    fields = user_files.read_object(path)
    kind = fields.get("peft_type")
    _require(fields, "peft_type", kind == "LORA", "'LORA'")
    _require(fields, "bias", fields.get("bias", "none") == "none", "'none'")
    begun = fields.get("init_lora_weights")
    _require(fields, "init_lora_weights", begun in _INITS, f"one of {_INITS}")
    has_experts = bool(fields.get("target_parameters"))
    of_experts = ("target_parameters", *peft_experts.PATTERNS)
    for name, value in fields.items():
      # Every option that PEFT adds is off if its value is empty.
      is_off = name in _KNOWN or not value
      is_off |= has_experts and name in of_experts
      _require(fields, name, is_off, "an option that is off")
    lora = Lora(
      int(fields["r"]),
      float(fields["lora_alpha"]),
      bool(fields.get("use_rslora", False)),
      _targets(fields) if fields["target_modules"] or not has_experts else (),
    )
    if has_experts:
      more, expert_rank = peft_experts.read_fields(fields, lora)
      targets = (*(t for t in lora.targets if t in _OF_ATTENTION), *more)
      lora = dataclasses.replace(lora, targets=targets, expert_rank=expert_rank)
    return lora, str(fields.get("base_model_name_or_path") or "")


def _require(
  fields: dict[str, Any], name: str, holds: bool, expected: str
) -> None:
  """Raises Refusal if a field does not hold what is expected."""
  if not holds:
    raise user_files.Refusal(
      f"has {name}={fields.get(name)!r}: expected {expected}"
    )


def _targets(fields: dict[str, Any]) -> tuple[str, ...]:
  """Returns the adapted projections, in the order of `adapters.TARGETS`.

  Raises:
    Refusal: a target is no projection of a layer.
  """
  modules = fields["target_modules"]
  if modules == _ALL_LINEAR:
    return adapters.TARGETS
  names = [_module(target) for target in adapters.TARGETS]
  if isinstance(modules, str):  # A regular expression over whole paths.
    paths = {
      target: f"model.layers.0.{MODULES[target]}" for target in adapters.TARGETS
    }
    found = [t for t in adapters.TARGETS if re.fullmatch(modules, paths[t])]
    _require(fields, "target_modules", bool(found), f"some of {names}")
    return tuple(found)
  last = [str(module).rpartition(".")[2] for module in modules]
  _require(fields, "target_modules", {*last} <= {*names}, f"some of {names}")
  return tuple(t for t in adapters.TARGETS if _module(t) in last)


def _module(target: str) -> str:
  """Returns the name that transformers gives a projection."""
  return f"{target}_proj"


def load(
  folder: pathlib.Path,
  config: ModelConfig,
  lora: Lora,
  mesh: Mesh,
  rules: Rules,
) -> Params:
  """Returns a folder's adapters, float32, stacked, read into their shards.

  Args:
    folder: the folder of both files.
    config: the base model's config.
    lora: the adapters' shape, from `read_config`.
    mesh: the device mesh of the adapters.
    rules: logical axis to mesh axis.

  Raises:
    ValueError: a tensor is missing, has another shape than the config implies,
      or does not belong to an adapter.
  """
  model = transformer.Transformer(config, lora=lora)
  reader = safetensors_io.SafetensorsReader(folder, WEIGHTS)
  return weight_loading.load_entries(
    [*weight_names.adapter_entries(config, lora)],
    config.num_layers,
    transformer.abstract_trained(model),
    peft_experts.reading(reader, config, lora),
    mesh,
    rules,
  )


def base_name(spec: str) -> str:
  """Returns what PEFT calls the model of a spec.

  Raises:
    ValueError: nobody else can load the model.
  """
  if not spec or spec.startswith(("preset:", "random:")):
    raise ValueError(
      f"model {spec!r}: expected a model that others can load, as the base of "
      "adapters in PEFT's format"
    )
  if ":" in spec:
    return spec.removeprefix("hf:")
  return str(pathlib.Path(spec).expanduser().absolute())


def check(config: ModelConfig, lora: Lora) -> None:
  """Checks that the format can hold adapters of a model, before training.

  Raises:
    ValueError: it cannot.
  """
  for _ in weight_names.adapter_entries(config, lora):
    pass


def save(
  trained: Params,
  config: ModelConfig,
  lora: Lora,
  base: str,
  folder: pathlib.Path,
  *,
  write: bool = True,
) -> None:
  """Writes adapters that peft loads.

  Every host must call this, because sharded weights are gathered from all
  hosts.

  Args:
    trained: the adapters, stacked.
    config: the base model's config.
    lora: the adapters' shape.
    base: the base model's name, or its folder.
    folder: created if missing.
    write: whether this host writes the files.
  """
  tensors = {
    entry.tensor(index): weight_loading.fetch(trained, entry, index)
    for entry in weight_names.adapter_entries(config, lora)
    for index in entry.indices(config.num_layers)
  }
  if not write:
    return
  tensors = peft_experts.pack(tensors, config)
  folder.mkdir(parents=True, exist_ok=True)
  safetensors.numpy.save_file(
    {name: np.asarray(x, np.float32) for name, x in tensors.items()},
    folder / WEIGHTS,
    {"format": "pt"},
  )
  # safetensors creates files that only the owner can read.
  (folder / WEIGHTS).chmod(0o644)
  text = json.dumps(_config(lora, base, config), indent=2)
  (folder / CONFIG).write_text(text + "\n", encoding="utf-8")


def _config(lora: Lora, base: str, config: ModelConfig) -> dict[str, Any]:
  """Returns the fields of adapter_config.json."""
  names = _OF_ATTENTION if config.experts else adapters.TARGETS
  modules: Sequence[str] = [_module(t) for t in lora.targets if t in names]
  alpha = lora.alpha
  return {
    "peft_type": "LORA",
    "task_type": "CAUSAL_LM",
    "base_model_name_or_path": base,
    "r": lora.rank,
    # vLLM expects an integer.
    "lora_alpha": int(alpha) if alpha == int(alpha) else alpha,
    "use_rslora": lora.rank_stabilized,
    "target_modules": modules,
    "lora_dropout": 0.0,
    "bias": "none",
    "fan_in_fan_out": False,
    "inference_mode": True,
    **peft_experts.fields(lora, config),
  }
