"""Every field of a config is used, known harmless, or refused by name."""

import pytest

from azr_jax.models import huggingface_config as hf
from azr_jax.models.presets import PRESETS, parameter_count

BASE = hf.to_huggingface(PRESETS["smollm2-135m"], "float32")


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_round_trip(name):
  config = PRESETS[name]
  assert hf.from_huggingface(hf.to_huggingface(config, "float32")) == config


@pytest.mark.parametrize(
  "field, value",
  [
    ("model_type", "gpt2"),
    ("hidden_act", "gelu"),
    ("mlp_bias", True),
    ("attention_bias", True),
    ("use_sliding_window", True),
    ("layer_types", ["full_attention", "sliding_attention"]),
    ("rope_scaling", {"rope_type": "yarn", "factor": 4.0}),
    ("rope_scaling", {"rope_type": "llama3", "factor": 4.0}),
    ("a_field_of_tomorrow", 1),
  ],
)
def test_refusal_names_field_and_value(field, value):
  with pytest.raises(ValueError, match="expected") as refusal:
    hf.from_huggingface(BASE | {field: value})
  assert any(word in str(refusal.value) for word in (field, "rope"))


def test_new_style_rope_parameters():
  config = {k: v for k, v in BASE.items() if not k.startswith("rope_")}
  config["rope_parameters"] = {"rope_type": "default", "rope_theta": 5.0}
  assert hf.from_huggingface(config).rope_theta == 5.0


@pytest.mark.parametrize(
  "name, billions",
  [
    ("smollm2-135m", 0.1345),
    ("qwen2.5-0.5b", 0.494),
    ("qwen2.5-1.5b", 1.544),
    ("qwen2.5-3b", 3.086),
    ("qwen2.5-coder-7b", 7.616),
    ("qwen2.5-14b", 14.77),
    ("qwen2.5-32b", 32.76),
    ("llama-3.1-8b", 8.030),
    ("qwen3-0.6b", 0.596),
    ("qwen3-8b", 8.191),
  ],
)
def test_published_parameter_counts(name, billions):
  assert parameter_count(PRESETS[name]) / 1e9 == pytest.approx(
    billions, rel=1e-3
  )


def test_tiny_is_within_its_budget():
  assert parameter_count(PRESETS["azr-tiny"]) <= 4_000_000
