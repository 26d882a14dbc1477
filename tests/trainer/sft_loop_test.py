"""Supervised training: rows that fit, and the loss of a step."""

import subprocess
import sys

import numpy as np
import pytest

from azr_jax import sft
from azr_jax.config.settings import Invalid
from azr_jax.configs import sft as sft_config
from azr_jax.learner import packing
from azr_jax.run import folder
from azr_jax.trainer import settings, sft_batches, sft_loop, sft_plan


def test_rows_that_hold_no_conversation_are_refused(tmp_path):
  config = sft_config.get_config("countdown_smoke")
  config.learner.row_length = 4
  with pytest.raises(ValueError, match="config.learner.row_length=4: expected"):
    sft.train(config, str(tmp_path))


def examples_of(*lengths):
  return [
    packing.TrainingExample(
      np.arange(length, dtype=np.int32),
      np.arange(length) >= 2,
      0.0,
      np.zeros(length, np.float32),
    )
    for length in lengths
  ]


ROWS = sft_batches.RowShape(length=6, max_sequences=32, count=2)


def test_the_loss_of_a_step_is_the_mean_over_its_trained_tokens():
  """Rows hold 4, 3 and 2 trained tokens, and a step takes two of them."""
  made = sft_batches.of_rows(examples_of(6, 5, 4), ROWS, 2, 0)
  assert made.per_epoch == 1.5
  trained = made.rows.loss_mask.sum(1).astype(int)
  batch = made.of_step(0)
  assert batch.loss_weights.shape == (1, 2, 6)
  weights = batch.loss_weights[batch.loss_mask > 0]
  count = trained[:2].sum()
  np.testing.assert_allclose(weights, np.full(count, 1 / count))


def test_each_epoch_takes_every_item_once_in_an_order_of_its_own():
  taken = np.concatenate([sft_batches.take(i, 7, 10, 3) for i in range(10)])
  epochs = taken.reshape(7, 10)
  assert all(sorted(epoch) == list(range(10)) for epoch in epochs.tolist())
  assert epochs[0].tolist() == list(range(10))
  assert len({tuple(epoch) for epoch in epochs.tolist()}) == 7
  again = sft_batches.take(5, 7, 10, 3)
  np.testing.assert_array_equal(again, taken[35:42])


def test_a_step_has_its_number_of_conversations():
  examples = examples_of(7, 4, 4, 6, 3, 5, 7)
  made = sft_batches.of_conversations(examples, 3, ROWS, 7, 0)
  assert made.per_epoch == pytest.approx(7 / 3)
  for step in range(7):
    batch = made.of_step(step)
    assert batch.tokens.shape == (made.micro_batches, 2, 6)
    segments = batch.segment_ids
    assert segments.max(-1).sum() == 3
    assert batch.loss_weights.sum() == pytest.approx(1, rel=1e-6)


def test_epochs_set_the_number_of_steps_and_scale_the_schedule():
  config = sft_config.get_config("code_qwen2.5-7b")
  c = settings.read_supervised(config).shared
  found = sft_plan.of_epochs(c, 4000 / 32)
  assert found.train.steps == found.optimizer.decay_steps == 375
  assert found.optimizer.warmup_steps == 37
  paper = sft_plan.of_epochs(c, 6500 / 32)
  assert (paper.train.steps, paper.optimizer.warmup_steps) == (610, 60)
  config.data.epochs = 0.0
  kept = settings.read_supervised(config).shared
  assert sft_plan.of_epochs(kept, 125.0) == kept


def test_a_resumed_run_keeps_its_steps_and_its_schedule(tmp_path, monkeypatch):
  """The config's steps only scale the warm-up, so they would change it."""
  found = []

  def stop_after_plan(settings, run):
    # A corpus may train a tokenizer before its size is known.
    (tmp_path / "tokenizer").mkdir(exist_ok=True)
    (tmp_path / "tokenizer" / "tokenizer.model").write_text("a")
    plan = sft_plan.keep(settings.shared, 4000 / 32, run)
    found.append((plan.train.steps, plan.optimizer.warmup_steps))

  monkeypatch.setattr(sft_loop, "train", stop_after_plan)
  config = sft_config.get_config("code_qwen2.5-7b")
  for start in range(3):
    sft.train(config, str(tmp_path))
    kept = folder.read_config(tmp_path)
    assert kept["train"]["steps"] == kept["optimizer"]["decay_steps"] == 375
    assert kept["optimizer"]["warmup_steps"] == 37
    if start == 1:
      (tmp_path / "metrics.jsonl").write_text("{}\n")
  assert found == [(375, 37)] * 3
  config.train.steps = config.optimizer.decay_steps = 500
  with pytest.raises(ValueError, match=r"warmup_steps=45: expected 37, with"):
    sft.train(config, str(tmp_path))
  config.data.epochs = 2.0
  with pytest.raises(ValueError, match=r"epochs=2.0: expected 3.0, the value"):
    sft.train(config, str(tmp_path))


def test_the_length_of_a_run_names_the_setting_that_wins():
  c = settings.read_supervised(sft_config.get_config("code_qwen2.5-7b")).shared
  assert sft_plan.describe(c, 125.0, 4000) == (
    "375 steps are 3.00 epochs of 4000 conversations (config.data.epochs=3, "
    "which replaces config.train.steps=610)"
  )


def test_steps_and_epochs_are_not_given_together():
  command = [
    *(sys.executable, "-m", "azr_jax.sft", "--workdir=/nowhere"),
    *("--config=configs/sft.py:code_qwen2.5-7b", "--config.train.steps=9"),
  ]
  done = subprocess.run(
    command, capture_output=True, text=True, timeout=120, check=False
  )
  assert done.returncode == 2
  assert "--config.train.steps=9: expected no such flag" in done.stderr


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


def test_adapters_that_no_file_can_hold_are_refused_before_training(tmp_path):
  config = sft_config.get_config("countdown_smoke")
  config.lora.rank = 4
  config.optimizer.muon_learning_rate = 0.0
  config.model.source = "random:moe-tiny"
  config.lora.targets = ("q", "gate")
  with pytest.raises(ValueError, match="both gate and up"):
    sft.train(config, str(tmp_path))
