"""Converts Hugging Face's `config.json` to `ModelConfig` and back.

Each family reads and writes its own fields (`families/`).
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from azr_jax.models import rope
from azr_jax.models.config import ModelConfig
from azr_jax.models.families import registry
from azr_jax.models.families.fields import ConfigFields, unsupported

MODEL_TYPES = (*registry.FAMILIES, *registry.WRAPPERS)


def from_huggingface(config: Mapping[str, Any]) -> ModelConfig:
  """Returns the `ModelConfig` of the same model, or of its text decoder.

  Args:
    config: the object in config.json.

  Raises:
    ValueError: a field is unknown, or its value is not implemented; the message
      names field, value and what was expected.
  """
  fields = ConfigFields(config)
  model_type = fields.take("model_type")
  if not isinstance(model_type, str) or model_type not in MODEL_TYPES:
    raise unsupported("model_type", model_type, f"one of {MODEL_TYPES}")
  if model_type in registry.WRAPPERS:
    text = registry.WRAPPERS[model_type](fields)
    fields.finish()
    return from_huggingface(text)
  found = registry.FAMILIES[model_type].read(fields)
  fields.finish()
  return found


def to_huggingface(
  config: ModelConfig,
  dtype: str,
  eos_ids: Sequence[int] = (),
  task: str = "CausalLM",
) -> dict[str, Any]:
  """Returns the object in config.json that `transformers` reads.

  Args:
    config: the model's config.
    dtype: dtype of the saved weights.
    eos_ids: EOS token ids.
    task: the end of the class's name in `transformers`.

  Raises:
    ValueError: the family cannot describe this decoder.
  """
  family = registry.of(config)
  fields = {
    "architectures": [family.architecture.replace("CausalLM", task)],
    "model_type": family.name,
    **family.write(config),
    "torch_dtype": dtype,
    # Without these fields, `transformers` assumes ids 1 and 2 for llama.
    "bos_token_id": None,
    "eos_token_id": list(eos_ids) or None,
  }
  # A checkpoint does not know how long a run's sequences are.
  config, again = rope.for_length(config, 0), from_huggingface(fields)
  require_same(config, again, f"a {family.name} model")
  return fields


def require_same(config: ModelConfig, again: ModelConfig, form: str) -> None:
  """Checks that a config is read back as it was written.

  Args:
    config: what was written.
    again: what was read back.
    form: the form of the files, for the message.

  Raises:
    ValueError: a field differs.
  """
  for field in dataclasses.fields(ModelConfig):
    value, read = getattr(config, field.name), getattr(again, field.name)
    if value != read:
      raise ValueError(
        f"{field.name}={value!r}: expected {read!r} to save as {form}"
      )
