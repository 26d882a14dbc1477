"""Experiments whose devices cannot be laid out as configured."""

import pytest

from azr_jax.configs import orz
from azr_jax.models import load
from azr_jax.trainer import build, settings


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
