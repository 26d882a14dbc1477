"""Where sampling runs: the learner's mesh, or copies of the weights."""

import jax
import numpy as np
import pytest

from azr_jax import types
from azr_jax.configs import evaluate
from azr_jax.models import load, transformer
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.rollout import layout
from azr_jax.rollout.settings import RolloutMeshSettings
from azr_jax.trainer import restore, settings
from azr_jax.trainer.settings import EvaluateSettings

GIB = 1 << 30
SPEC = "embedded:orz-tiny"


@pytest.mark.parametrize(
  "weights, memory, devices, want",
  [
    (1 * GIB, 16 * GIB, 8, 1),
    # 7B in bfloat16: one v5p holds it, four chips of v5e do.
    (15 * GIB, 95 * GIB, 16, 1),
    (15 * GIB, 16 * GIB, 16, 4),
    (15 * GIB, 16 * GIB, 6, 3),
    (15 * GIB, 16 * GIB, 2, None),
  ],
)
def test_a_copy_takes_a_third_of_its_devices(weights, memory, devices, want):
  assert layout.devices_per_copy(weights, memory, devices) == want


def policy_of(**changes):
  config = evaluate.get_config("problems_tiny")
  config.update_from_flattened_dict({"rollout.slots": 16, **changes})
  return restore.load_policy(settings.read(EvaluateSettings, config), SPEC)


def sampled(policy):
  prompts = [
    types.Prompt(text, tuple(policy.tokenizer.encode(text)))
    for text in ("1 + 2", "30 - 4")
  ]
  return {
    (prompt, sample): tuple(completion.token_ids)
    for prompt, sample, completion in policy.sample(prompts, 4)
  }


def test_commands_that_only_sample_hold_copies_that_fit(monkeypatch):
  whole = policy_of()
  assert dict(whole.sampler.engine.mesh.shape)["fsdp"] == jax.device_count()
  model = whole.sampler.engine.model
  weights = 4 * sum(
    int(np.prod(leaf.shape))
    for leaf in jax.tree.leaves(transformer.abstract_params(model))
  )
  # Two devices together have room for a copy, one has not.
  monkeypatch.setattr(layout, "device_bytes", lambda: 2 * weights)
  copies = policy_of()
  found = dict(copies.sampler.engine.mesh.shape)
  assert found == {"data": 4, "fsdp": 1, "tensor": 2, "context": 1}
  assert sampled(copies) == sampled(whole)


@pytest.mark.parametrize(
  "sizes, own, want",
  [
    ({"fsdp": -1}, {"data": 2, "fsdp": 2, "tensor": 2}, (2, 2, 2)),
    ({"fsdp": 2, "tensor": 4}, {}, (1, 2, 4)),
    ({"data": 4, "context": 2}, {}, (8, 1, 1)),
  ],
)
def test_what_was_set_stays(monkeypatch, sizes, own, want):
  monkeypatch.setattr(layout, "device_bytes", lambda: GIB)
  model = policy_model()
  mesh = layout.shape_without_learner(
    RolloutMeshSettings(**own), mesh_lib.make_mesh(sizes), model
  )
  assert tuple(mesh.shape[axis] for axis in ("data", "fsdp", "tensor")) == want


def policy_model():
  config = load.resolve(SPEC, "").config
  return transformer.Transformer(config)
