"""Tiny checkpoints of all families, and what transformers computes with them.

Weights follow from tensor names, so that `family_cases.npz` holds only
transformers' results: config.json, tensor names, logits and greedy tokens.
`python tests/models/family_cases.py` makes it with torch.
"""

import json
import pathlib
import tempfile
import zlib
from typing import Any

import numpy as np
import safetensors.numpy

REFERENCES = pathlib.Path(__file__).parent / "family_cases.npz"
# Tokens whose logits are compared, prompt of the greedy text, and its length.
TOKENS, PROMPT, GREEDY = 24, 13, 8
WINDOW = 8
_SHAPE = dict(
  vocab_size=48,
  hidden_size=32,
  intermediate_size=40,
  num_hidden_layers=2,
  num_attention_heads=4,
  num_key_value_heads=2,
  max_position_embeddings=64,
)
_YARN = {
  "rope_type": "yarn",
  "factor": 4.0,
  "original_max_position_embeddings": 16,
}
_PHI4 = dict(
  partial_rotary_factor=0.75,
  rope_scaling={
    "type": "longrope",
    "short_factor": [1.0, 1.2, 1.5],
    "long_factor": [2.0, 2.3, 2.5],
  },
)
# Name -> value of `model_type`, and fields besides the shape.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
  "mistral": ("mistral", dict(head_dim=16, sliding_window=None)),
  "mistral_0.1": ("mistral", dict(sliding_window=WINDOW)),
  "granite": (
    "granite",
    dict(
      embedding_multiplier=12.0,
      residual_multiplier=0.22,
      logits_scaling=6.0,
      attention_multiplier=0.3,
    ),
  ),
  "smollm3": ("smollm3", dict(num_hidden_layers=4)),
  "olmo2": ("olmo2", {}),
  "olmo3": (
    "olmo3",
    dict(
      num_hidden_layers=4,
      sliding_window=WINDOW,
      rope_scaling=_YARN | {"attention_factor": 1.3, "beta_fast": 4.0},
    ),
  ),
  "phi3": ("phi3", dict(sliding_window=WINDOW)),
  "phi4_short": ("phi3", _PHI4 | dict(original_max_position_embeddings=32)),
  "phi4_long": ("phi3", _PHI4 | dict(original_max_position_embeddings=12)),
  "gemma3": (
    "gemma3_text",
    dict(
      num_hidden_layers=6,
      head_dim=16,
      sliding_window=WINDOW,
      query_pre_attn_scalar=24,
      rope_scaling={"rope_type": "linear", "factor": 8.0},
    ),
  ),
  "qwen2_yarn": ("qwen2", dict(rope_scaling=_YARN)),
  "qwen3_yarn": ("qwen3", dict(head_dim=16, rope_scaling=_YARN)),
  "qwen3_moe": (
    "qwen3_moe",
    dict(
      head_dim=16,
      num_experts=6,
      num_experts_per_tok=2,
      moe_intermediate_size=24,
      norm_topk_prob=True,
    ),
  ),
  "gpt_oss": (
    "gpt_oss",
    dict(
      head_dim=8,
      sliding_window=WINDOW,
      num_local_experts=6,
      num_experts_per_tok=2,
      # Small, so that it clamps.
      swiglu_limit=0.5,
      # So slow that one pair lies within the blend.
      rope_scaling=_YARN | {"truncate": False, "beta_slow": 0.03},
    ),
  ),
}


def tokens() -> np.ndarray:
  """Returns the compared tokens [TOKENS]."""
  return np.random.default_rng(3).integers(3, _SHAPE["vocab_size"], TOKENS)


def weight(kind: str, name: str, shape: tuple[int, ...]) -> np.ndarray:
  """Returns a tensor of a checkpoint of a family."""
  rng = np.random.default_rng(zlib.crc32(name.encode()))
  value = rng.normal(size=shape)
  if "norm" in name:
    # Gemma's computation adds the 1.
    value = 0.2 * value + (kind != "gemma3_text")
  elif name.endswith("bias"):
    value = 0.3 * value
  else:
    value = value / np.sqrt(shape[-1])
  return value.astype(np.float32)


def write(name: str, folder: pathlib.Path) -> dict[str, np.ndarray]:
  """Writes a checkpoint; returns transformers' results with it."""
  with np.load(REFERENCES) as all_cases:
    found = {
      key.partition("/")[2]: all_cases[key]
      for key in all_cases.files
      if key.partition("/")[0] == name
    }
  (folder / "config.json").write_text(str(found["config"]))
  kind, _ = CASES[name]
  shapes = json.loads(str(found["shapes"]))
  tensors = {n: weight(kind, n, tuple(shape)) for n, shape in shapes.items()}
  safetensors.numpy.save_file(tensors, folder / "model.safetensors")
  return found


def made_by_transformers(name: str) -> dict[str, np.ndarray]:
  """Returns transformers' results, computed now."""
  import transformers

  kind, fields = CASES[name]
  fields = _SHAPE | dict(pad_token_id=0, attn_implementation="eager") | fields
  config = transformers.AutoConfig.for_model(kind, **fields)
  model = transformers.AutoModelForCausalLM.from_config(config)
  # Files have a tensor per expert, where the model has one for all.
  with tempfile.TemporaryDirectory() as folder:
    file = pathlib.Path(folder) / "model.safetensors"
    model.save_pretrained(folder)
    saved = safetensors.numpy.load_file(file)
    shapes = {name: tensor.shape for name, tensor in sorted(saved.items())}
    tensors = {n: weight(kind, n, shape) for n, shape in shapes.items()}
    safetensors.numpy.save_file(tensors, file, {"format": "pt"})
    model = transformers.AutoModelForCausalLM.from_pretrained(
      folder, attn_implementation="eager"
    ).eval()
  return {
    "config": np.asarray(json.dumps(config.to_dict(), sort_keys=True)),
    "shapes": np.asarray(json.dumps(shapes, sort_keys=True)),
    **results_of(model),
  }


def results_of(model: Any) -> dict[str, np.ndarray]:
  """Returns the logits and greedy tokens of a torch model."""
  import torch

  ids = torch.tensor(tokens()[None])
  with torch.no_grad():
    logits = model(ids).logits[0].numpy()
    text = ids[:, :PROMPT]
    for _ in range(GREEDY):
      best = model(text).logits[:, -1:].argmax(-1)
      text = torch.cat([text, best], dim=1)
  return {"logits": logits, "greedy": text[0, PROMPT:].numpy()}


if __name__ == "__main__":
  arrays: dict[str, Any] = {
    f"{name}/{key}": value
    for name in CASES
    for key, value in made_by_transformers(name).items()
  }
  np.savez_compressed(REFERENCES, **arrays)
