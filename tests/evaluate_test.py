"""Evaluation of specs, folders and runs; export; supervised smoke run."""

import json

import pytest

from azr_jax import config as config_lib
from azr_jax import evaluate, export, sft
from azr_jax.models import load
from configs import evaluate as evaluate_config
from configs import sft as sft_config


@pytest.fixture
def config():
  config = evaluate_config.get_config()
  config.rollout.slots = 16
  return config


def test_the_embedded_model_and_its_export_score_alike(config, tmp_path):
  scores = evaluate.evaluate(
    config,
    "embedded:azr-tiny",
    "programs_heldout",
    str(tmp_path / "scores"),
    limit=4,
  )
  assert set(scores) == {
    f"programs_heldout/{name}"
    for name in ("deduction", "abduction", "induction", "mean")
  }
  records = (tmp_path / "scores/records.jsonl").read_text().splitlines()
  assert len(records) == 12
  assert any(json.loads(record)["formatted"] for record in records)
  export.export(config, "embedded:azr-tiny", str(tmp_path / "hf"), "float32")
  again = evaluate.evaluate(
    config,
    str(tmp_path / "hf"),
    "programs_heldout",
    str(tmp_path / "again"),
    limit=4,
  )
  assert again == scores


def test_unknown_benchmark_and_model_are_named(config, tmp_path):
  with pytest.raises(ValueError, match="'nothing': expected one of"):
    evaluate.evaluate(config, "embedded:azr-tiny", "nothing", str(tmp_path))
  with pytest.raises(ValueError, match="embedded:"):
    load.resolve("embedded:gpt", str(tmp_path))


def test_a_bad_value_is_named(config):
  config.evaluate.prompt_style = "long"
  with pytest.raises(ValueError, match="evaluate.prompt_style='long'"):
    config_lib.check(config, config_lib.EVALUATE_CHECKS)


def test_supervised_training_learns_and_resumes(tmp_path):
  config = sft_config.get_config("smoke")
  sft.train(config, str(tmp_path))
  lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
  losses = [json.loads(line)["learner/nll"] for line in lines]
  assert len(losses) == 4 and losses[-1] < losses[0]
  source = load.resolve(str(tmp_path / "model"), str(tmp_path))
  assert source.config.vocab_size == source.tokenizer.vocab_size
  config.train.steps = 5
  sft.train(config, str(tmp_path))
  lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
  assert [json.loads(line)["step"] for line in lines] == [1, 2, 3, 4, 5]
