"""Supervised training: rows that fit, and the loss of a step."""

import numpy as np
import pytest

from azr_jax import sft
from azr_jax.config.settings import Invalid
from azr_jax.configs import sft as sft_config
from azr_jax.learner import packing
from azr_jax.trainer import settings, sft_loop


def test_rows_that_hold_no_conversation_are_refused(tmp_path):
  config = sft_config.get_config("countdown_smoke")
  config.learner.row_length = 4
  with pytest.raises(ValueError, match="config.learner.row_length=4: expected"):
    sft.train(config, str(tmp_path))


def test_the_loss_of_a_step_is_the_mean_over_its_trained_tokens():
  """Rows hold 4, 3 and 2 trained tokens, and a step takes two of them."""
  examples = [
    packing.TrainingExample(
      np.arange(length, dtype=np.int32),
      np.arange(length) >= 2,
      0.0,
      np.zeros(length, np.float32),
    )
    for length in (6, 5, 4)
  ]
  rows = packing.pack(
    examples, row_length=6, rows_multiple=1, aggregation="token_mean"
  )
  for step, trained in enumerate((7, 6, 5)):
    batch = sft_loop._batch(rows, step, 2)
    assert batch.loss_weights.shape == (1, 2, 6)
    weights = batch.loss_weights[batch.loss_mask > 0]
    np.testing.assert_allclose(weights, np.full(trained, 1 / trained))


def test_no_other_mean_can_be_asked_for():
  config = sft_config.get_config("smoke")
  config.learner.aggregation = "sequence_mean"
  with pytest.raises(Invalid, match="learner.aggregation is an unknown key"):
    settings.read_supervised(config)


def test_rows_that_do_not_divide_are_refused_before_the_corpus_is_built(
  tmp_path, monkeypatch
):
  monkeypatch.setattr(sft_loop, "_prepare", lambda *_: pytest.fail("too late"))
  config = sft_config.get_config("countdown_smoke")
  config.mesh.fsdp, config.mesh.context = 1, 8
  config.learner.row_length = 68
  expected = r"row_length=68: expected a multiple of config\.mesh\.context=8"
  with pytest.raises(ValueError, match=expected):
    sft.train(config, str(tmp_path))
