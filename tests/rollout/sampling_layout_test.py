"""The sampling mesh: the learner's layout, or copies of the weights."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from azr_jax import types
from azr_jax.configs import evaluate
from azr_jax.models import expert_sharding, load, presets, transformer
from azr_jax.models.config import ExpertShape
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.parallel.settings import ShardingSettings
from azr_jax.rollout import layout
from azr_jax.rollout.build import build_engine
from azr_jax.rollout.settings import RolloutMeshSettings, SamplerSettings
from azr_jax.trainer import loading, settings
from azr_jax.trainer.settings import EvaluateSettings

GIB = 1 << 30
SPEC = "embedded:orz-tiny"
RULES = ShardingSettings().rules()
SETTINGS = SamplerSettings(slots=64, prompt_buckets=(1024,), max_tokens=1024)


def policy_of(**changes):
  config = evaluate.get_config("problems_tiny")
  config.update_from_flattened_dict({"rollout.slots": 16, **changes})
  return loading.load_policy(settings.read(EvaluateSettings, config), SPEC)


def sampled(policy):
  prompts = [
    types.Prompt(text, tuple(policy.tokenizer.encode(text)))
    for text in ("1 + 2", "30 - 4")
  ]
  return {
    (prompt, sample): tuple(completion.token_ids)
    for prompt, sample, completion in policy.sample(prompts, 4)
  }


def bytes_on_a_device(arrays):
  shards = [leaf.addressable_shards[0].data for leaf in jax.tree.leaves(arrays)]
  return sum(shard.nbytes for shard in shards)


@pytest.mark.parametrize(
  "quantization, layouts",
  [
    ("none", {9: (4, 2)}),
    pytest.param("none", {8: (1, 1), 100: (8, 1)}, marks=pytest.mark.slow),
    pytest.param(
      "int8", {8: (8, 1), 9: (8, 1), 100: (8, 1)}, marks=pytest.mark.slow
    ),
  ],
)
@pytest.mark.slow
def test_commands_that_only_sample_hold_copies_that_fit(
  monkeypatch, quantization, layouts
):
  """Devices have a few MiB; layouts are sizes of `data` and `tensor`."""
  own = {"rollout.quantization": quantization}
  whole = policy_of(**own)
  assert whole.sampler.engine.mesh.shape["fsdp"] == jax.device_count() == 8
  want = sampled(whole)
  for mebibytes, shape in layouts.items():
    monkeypatch.setattr(layout, "device_bytes", lambda m=mebibytes: m << 20)
    policy = policy_of(**own)
    engine = policy.sampler.engine
    assert tuple(engine.mesh.shape[a] for a in ("data", "tensor")) == shape
    held = bytes_on_a_device(policy.params)
    held += bytes_on_a_device(engine.init_pool())
    assert held == layout.held_bytes(engine)
    if shape != (1, 1):
      assert sampled(policy) == want


def chosen(name, device_gib, devices, monkeypatch, **changes):
  """Returns a preset's tensor axis on devices of some size, without weights."""
  monkeypatch.setattr(layout, "device_bytes", lambda: int(device_gib * GIB))
  model = transformer.Transformer(
    presets.PRESETS[name], jnp.dtype(jnp.bfloat16)
  )
  mesh = mesh_lib.make_mesh({"fsdp": -1}, jax.devices()[:devices])
  sizes: dict[str, Any] = {
    "slots": 64,
    "prompt_buckets": (4096,),
    "max_tokens": 8000,
  }
  own = SamplerSettings(**sizes | changes)
  found = layout.rollout_mesh_with_copies(model, mesh, RULES, own)
  assert found.size == devices
  return dict(found.shape)


@pytest.mark.parametrize(
  "name, device_gib, devices, want",
  [
    ("qwen2.5-7b", 95, 8, 1),
    ("qwen2.5-7b", 15.75, 8, 4),
    # Three does not divide its heads, so attention and cache are replicated.
    ("qwen2.5-7b", 15.75, 6, None),
    ("qwen2.5-32b", 15.75, 8, None),
  ],
)
def test_a_copy_takes_the_fewest_devices_with_room_for_it_and_its_cache(
  monkeypatch, name, device_gib, devices, want
):
  shape = chosen(name, device_gib, devices, monkeypatch)
  if want is None:
    assert shape["fsdp"] == devices
  else:
    assert shape["data"] * want == devices and shape["tensor"] == want


def test_a_copy_has_as_many_experts_on_each_device(monkeypatch):
  """Eight devices cannot share six experts evenly, and two have no room."""
  monkeypatch.setattr(layout, "device_bytes", lambda: 1 << 20)
  tiny = presets.PRESETS["moe-tiny"]
  config = dataclasses.replace(tiny, experts=ExpertShape(6, 2, 256))
  mesh = mesh_lib.make_mesh({"fsdp": -1})
  found = layout.rollout_mesh_with_copies(
    transformer.Transformer(config), mesh, RULES, SamplerSettings()
  )
  assert found == mesh


def test_a_larger_cache_leaves_less_room(monkeypatch):
  small, large = (
    chosen("qwen2.5-7b", 31.25, 8, monkeypatch, cache_gib=gib)["tensor"]
    for gib in (2.0, 14.0)
  )
  assert small < large


def test_an_error_names_the_section_whose_sizes_are_wrong():
  mesh = mesh_lib.make_mesh({"fsdp": -1})
  with pytest.raises(ValueError, match=r"^config\.rollout\.mesh=.*'data': 3"):
    layout.rollout_mesh(RolloutMeshSettings(data=3, fsdp=1, tensor=1), mesh)
  with pytest.raises(ValueError, match=r"^config\.mesh=.*'fsdp': 3"):
    mesh_lib.make_mesh({"fsdp": 3})


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
  model = transformer.Transformer(load.resolve(SPEC, "").config)
  mesh = layout.rollout_mesh_with_copies(
    model,
    mesh_lib.make_mesh(sizes),
    RULES,
    SamplerSettings(mesh=RolloutMeshSettings(**own)),
  )
  assert tuple(mesh.shape[axis] for axis in ("data", "fsdp", "tensor")) == want


def test_a_cache_for_the_layout_that_was_set_need_fit_no_other(monkeypatch):
  """Two devices split the keys, so a page takes half the bytes on each."""
  monkeypatch.setattr(layout, "device_bytes", lambda: GIB)
  model = transformer.Transformer(load.resolve(SPEC, "").config)
  mesh = mesh_lib.make_mesh({"fsdp": -1})
  # The longest sequence and the longest prompt have 24 pages of 128 tokens.
  own = SamplerSettings(
    mesh=RolloutMeshSettings(data=4, fsdp=1, tensor=2),
    prompt_buckets=(1024,),
    max_tokens=1024,
    cache_gib=0.006,
  )
  found = layout.rollout_mesh_with_copies(model, mesh, RULES, own)
  build_engine(model, found, RULES, own)
  copies = mesh_lib.make_mesh({"data": 8})
  with pytest.raises(ValueError, match="cache_gib"):
    build_engine(model, copies, RULES, own)


@pytest.mark.parametrize("is_reversed", [False, True])
def test_weights_move_in_one_program_if_the_devices_have_one_order(
  monkeypatch, is_reversed
):
  """JAX itself would copy the weights through the host, device by device."""
  source = load.resolve(SPEC, "")
  devices = jax.devices()
  params = source.load_params(mesh_lib.make_mesh({"fsdp": -1}), RULES)
  copies = mesh_lib.make_mesh(
    {"data": 8}, devices[::-1] if is_reversed else devices
  )
  model = transformer.Transformer(source.config)
  engine = build_engine(model, copies, RULES, SETTINGS)
  moved = []
  put = jax.device_put
  monkeypatch.setattr(
    jax, "device_put", lambda *args: moved.append(args) or put(*args)
  )
  found = engine.compute_params(params)
  assert bool(moved) == is_reversed
  monkeypatch.undo()
  plain = build_engine(
    model, mesh_lib.make_mesh({"data": 1}, devices[:1]), RULES, SETTINGS
  ).compute_params(params)
  for leaf, wanted in zip(
    jax.tree.leaves(found), jax.tree.leaves(plain), strict=True
  ):
    assert leaf.sharding.mesh == copies
    np.testing.assert_array_equal(leaf, wanted)


@pytest.mark.parametrize(
  ("sizes", "count", "want"),
  [
    ({"fsdp": -1}, 16, (1, 1, 8)),
    ({"fsdp": 4, "expert": 2}, 16, (1, 1, 8)),
    ({"fsdp": -1}, 12, (1, 8, 1)),
    ({"fsdp": 2, "context": 2, "data": 2}, 2, (4, 1, 2)),
  ],
)
def test_sampling_splits_experts_and_not_their_width(sizes, count, want):
  mesh = layout.rollout_mesh(
    RolloutMeshSettings(),
    mesh_lib.make_mesh(sizes),
    ExpertShape(count, 2, 8),
  )
  assert tuple(mesh.shape[axis] for axis in ("data", "fsdp", "expert")) == want


@pytest.mark.parametrize(
  ("spec", "reason"),
  [(SPEC, "1, as the model has no"), ("random:moe-tiny", "a divisor of 8")],
)
def test_a_mesh_that_cannot_split_experts_is_refused(spec, reason):
  config = load.resolve(spec, "").config
  mesh = mesh_lib.make_mesh({"data": 2, "expert": 3}, jax.devices()[:6])
  with pytest.raises(
    ValueError, match=f"^config.a.expert=3: expected {reason}"
  ):
    expert_sharding.check(config, mesh, RULES, "config.a.expert")
