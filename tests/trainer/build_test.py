"""Layouts that do not fit the devices, and the memory that remat plans for."""

import re

import pytest

from azr_jax.configs import countdown, orz, sft
from azr_jax.lab.compile import programs
from azr_jax.models import load, presets
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.rollout import layout
from azr_jax.trainer import build, decoders, settings, teachers

AZR_TINY = "azr-tiny"


@pytest.mark.parametrize(
  "changes, expected",
  [
    (
      {"mesh.fsdp": 1, "mesh.context": 8},
      r"^config\.learner\.row_length=\d+: expected a multiple of "
      r"config\.mesh\.context=8",
    ),
    ({"mesh.fsdp": 3}, r"^config\.mesh=.*'fsdp': 3"),
    (
      {
        "rollout.mesh.data": 3,
        "rollout.mesh.fsdp": 1,
        "rollout.mesh.tensor": 1,
      },
      r"^config\.rollout\.mesh=.*'data': 3",
    ),
  ],
)
def test_a_wrong_layout_is_told_before_a_model_is_downloaded(
  monkeypatch, changes, expected
):
  monkeypatch.setattr(load, "resolve", lambda *_: pytest.fail("too late"))
  config = orz.get_config("tiny")
  config.update_from_flattened_dict(changes)
  config.learner.row_length |= 1
  with pytest.raises(ValueError, match=expected):
    build.build(settings.read_train(config))


def memory_held(monkeypatch, build_it):
  """Returns the arguments by which a model's remat policy is chosen."""
  asked = {}

  def choose(remat, config, dtype, mesh, tokens, chunk, capacity, **held):
    asked.update(held, tokens=tokens)
    return "full"

  monkeypatch.setattr(decoders.remat_lib, "choose", choose)
  assert build_it().remat == "full"
  return asked


@pytest.mark.parametrize(
  "config, critic, reference",
  [
    (orz.get_config("tiny"), True, False),
    (countdown.get_config("tiny"), False, True),
    (countdown.get_config("tiny+ours"), False, False),
  ],
)
def test_a_policy_shares_memory_with_its_sampler_and_other_models(
  monkeypatch, config, critic, reference
):
  c = settings.read_train(config).shared
  mesh = decoders.learner_mesh(c)
  model = presets.PRESETS["orz-tiny"]
  held = memory_held(
    monkeypatch, lambda: decoders.build_policy_model(c, model, mesh)
  )
  assert held["state_size"] == 12
  assert (held["critic_size"], held["references"]) == (12 * critic, reference)
  assert held["sampler_bytes"] is None
  rows = mesh_lib.padded_rows(c.learner.micro_rows, mesh)
  assert held["tokens"] == rows * c.learner.row_length


@pytest.mark.parametrize(
  "teacher, expected",
  [
    (
      "embedded:azr-tiny",
      r"a model with the policy's vocabulary, but id \d+ is '.*' there and ",
    ),
    (
      "inital",
      r"one of \('policy', 'average', 'initial'\), or a model \(.*embedded:",
    ),
  ],
)
def test_a_teacher_that_cannot_read_is_refused_in_one_line(teacher, expected):
  config = orz.get_config("tiny")
  config.distill.update(weight=1.0, teacher=teacher)
  with pytest.raises(ValueError) as caught:
    build.build(settings.read_train(config))
  found = str(caught.value)
  start = f"config.distill.teacher={teacher!r}: expected "
  assert re.match(re.escape(start) + expected, found) and "\n" not in found


def test_an_average_counts_beside_the_policy(monkeypatch):
  config = orz.get_config("tiny")
  model = presets.PRESETS["orz-tiny"]
  made = []
  for teacher in ("policy", "average"):
    config.distill.update(weight=1.0, teacher=teacher)
    c = settings.read_train(config).shared
    mesh = decoders.learner_mesh(c)
    held = memory_held(
      monkeypatch,
      lambda c=c, mesh=mesh: decoders.build_policy_model(c, model, mesh),
    )
    bytes_of = {
      program.name: program.resident_bytes
      for program in programs.start_programs(c, model, mesh)
    }
    made.append((held, bytes_of))
  (without, before), (beside, after) = made
  assert (without["state_size"], without["references"]) == (12, 0)
  assert (beside["state_size"], beside["references"]) == (16, 1)
  shard = 4 * presets.parameter_count(model) / mesh.size
  assert after["restore"] == before["restore"] + shard


def test_a_teacher_counts_beside_the_policy(monkeypatch):
  """Of each part, a device holds what the sharding rules say."""
  config = countdown.get_config("tiny")
  config.mesh.update(data=2, fsdp=4, tensor=1)
  made = []
  for weight in (0.0, 1.0):
    config.distill.update(weight=weight, teacher="random:moe-tiny")
    c = settings.read_train(config).shared
    mesh = decoders.learner_mesh(c)
    made.append(programs.start_programs(c, presets.PRESETS[AZR_TINY], mesh))
  _, params = teachers.build(
    c, teachers.config_of(c.distill, c.model.cache_dir), mesh
  )
  count = presets.parameter_count(presets.PRESETS["moe-tiny"])
  held = layout.shard_bytes(params)
  assert 4 * count / 4 <= held < 1.1 * 4 * count / 4
  for without, beside in zip(*made, strict=True):
    assert beside.resident_bytes == without.resident_bytes + held
  asked = memory_held(
    monkeypatch,
    lambda: decoders.build_policy_model(
      c, presets.PRESETS[AZR_TINY], mesh, params
    ),
  )
  assert asked["teacher_bytes"] == held


@pytest.mark.parametrize("is_trained", [True, False])
def test_models_are_trained_without_a_sampler_or_sampled_without_rows(
  monkeypatch, is_trained
):
  c = settings.read_supervised(sft.get_config("smoke")).shared
  mesh = decoders.learner_mesh(c)
  held = memory_held(
    monkeypatch,
    lambda: decoders.build_model(
      c.model,
      presets.PRESETS["azr-tiny"],
      mesh,
      c.sharding.rules(),
      rows=c.learner if is_trained else None,
      sampler_bytes=0.0 if is_trained else None,
    ),
  )
  assert held["sampler_bytes"] == (0.0 if is_trained else None)
  assert (held["tokens"] > 1) == is_trained


def test_a_sampler_of_known_size_leaves_the_rest_to_the_update(monkeypatch):
  config = countdown.get_config("tiny")
  config.mesh.update(data=1, fsdp=4, tensor=2)
  config.rollout.mesh.update(data=4, fsdp=1, tensor=2)
  config.rollout.cache_gib = 3.0
  config.rollout.page_size = 64
  c = settings.read_train(config).shared
  model = presets.PRESETS["orz-tiny"]
  mesh = decoders.learner_mesh(c)
  held = memory_held(
    monkeypatch, lambda: decoders.build_policy_model(c, model, mesh)
  )
  # Sampling splits float32 weights over `tensor` alone.
  weights = 4 * presets.parameter_count(model) / 2
  assert held["sampler_bytes"] == 3 * 2**30 + weights
