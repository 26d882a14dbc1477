"""Qwen3 in every system: adapters, and a model with experts.

| variant | trains | on |
| --- | --- | --- |
| `qwen3-8b_lora_h100`, ... | adapters of `MODELS` | one of `DEVICES` |
| `qwen3-30b-a3b` | all parameters of a model with experts | 32 chips |
| `qwen3-30b-a3b_lora_h100x8`, ... | its adapters | one GPU, or eight |

All have the lengths of the system's paper. Adapters have a smaller batch.
docs/guide/lora.md and docs/guide/experts.md say what fits where.
"""

from collections.abc import Mapping
from typing import Any

import ml_collections

MODELS = ("qwen3-0.6b", "qwen3-1.7b", "qwen3-4b", "qwen3-8b", "qwen3-14b")
# Device -> the keys that its memory and number decide.
DEVICES: dict[str, dict[str, Any]] = {
  "h100": {"rollout.slots": 128, "rollout.cache_gib": 24.0},
  # The base has 8 bits from 8B on, so that it fits beside the cache.
  "v6e-1": {"rollout.slots": 64, "rollout.cache_gib": 8.0},
  # Sampling splits the weights by heads: a token would gather them otherwise.
  "v5e-8": {
    "rollout.slots": 128,
    "rollout.cache_gib": 4.0,
    "rollout.mesh.tensor": 8,
  },
}
_EIGHT_BITS = {
  *(("qwen3-8b", "v6e-1"), ("qwen3-14b", "v6e-1")),
  ("qwen3-30b-a3b", "h100"),
}
# A model with experts, and the devices for its adapters.
EXPERTS = "qwen3-30b-a3b"
_EXPERT_DEVICES: dict[str, dict[str, Any]] = {
  # Learner and sampler share the base, of which each GPU has 16 experts.
  "h100x8": {
    "mesh.fsdp": 1,
    "mesh.expert": 8,
    "rollout.mesh.expert": 8,
    "rollout.slots": 512,
    "rollout.cache_gib": 24.0,
    "learner.micro_rows": 8,
  },
  "h100": {"rollout.slots": 64, "rollout.cache_gib": 12.0},
}
VARIANTS = (
  *(f"{model}_lora_{device}" for model in MODELS for device in DEVICES),
  EXPERTS,
  *(f"{EXPERTS}_lora_{device}" for device in _EXPERT_DEVICES),
)


def apply(
  c: ml_collections.ConfigDict, variant: str, batch: Mapping[str, int]
) -> None:
  """Changes a config of the paper's size to a variant of `VARIANTS`.

  Args:
    c: a whole training config.
    variant: its new variant.
    batch: the keys that set the number of responses per step, with values for
      one device.
  """
  model, _, device = variant.partition("_lora_")
  size = model.removeprefix("qwen3-").upper()
  c.model.source = f"hf:Qwen/Qwen3-{size}"
  if not device:
    _train_experts(c)
    return
  c.lora.rank = 32
  if (model, device) in _EIGHT_BITS:
    c.lora.base_dtype = "int8"
  # Adapters need about ten times the rate of whole matrices.
  c.optimizer.learning_rate *= 10
  c.critic.optimizer.learning_rate *= 10
  c.rollout.mesh.data = -1
  c.rollout.mesh.tensor = 1
  c.learner.micro_rows = 1
  known = _EXPERT_DEVICES if model == EXPERTS else DEVICES
  c.update_from_flattened_dict({**known[device], **batch})


def _train_experts(c: ml_collections.ConfigDict) -> None:
  """Sets the meshes of all parameters of a model with experts, on 32 chips.

  Four chips share the experts in learning, and eight in sampling.
  """
  c.mesh.fsdp = -1
  c.mesh.expert = 4
  c.rollout.mesh.data = -1
  c.rollout.mesh.fsdp = c.rollout.mesh.tensor = 1
  c.rollout.mesh.expert = 8
