"""Model cards state what the run folder contains."""

import json
from typing import Any

import huggingface_hub
import pytest

from azr_jax import export
from azr_jax.configs import evaluate as evaluate_config
from azr_jax.exports import model_card

CONFIG = {
  "system": "azr",
  "seed": 3,
  "model": {"source": "hf:Qwen/Qwen2.5-7B", "cache_dir": "/home/me/cache"},
  "mesh": {"fsdp": 8},
  "learner": {"estimator": "trr++"},
  "azr": {"seeds_file": "/home/me/seeds.jsonl"},
}


@pytest.fixture(name="run")
def make_run(tmp_path):
  """Writes a run of twelve steps, whose reward is step / 100."""
  (tmp_path / "config.json").write_text(json.dumps(CONFIG))
  lines = [
    {"step": step, "reward/solve/mean": step / 100, "tokens/mean": 7.0}
    for step in range(1, 13)
  ]
  text = "".join(json.dumps(line) + "\n" for line in lines)
  (tmp_path / "metrics.jsonl").write_text(text)
  starts = [{"commit": "abc"}, {"commit": None}, {"commit": "abc"}]
  text = "".join(json.dumps(start) + "\n" for start in starts)
  (tmp_path / "starts.jsonl").write_text(text + '{"commit": "cut')
  return tmp_path


def build(run, step=12):
  scores = {"programs_heldout": (0.646, 0.011), "own": (0.5, 0.0)}
  base = {"programs_heldout": (0.464, 0.012)}
  return model_card.build(
    "me/model", "azr", run, step, scores, base, ["model.safetensors"]
  )


def test_the_hub_reads_the_front_matter(run):
  data: Any = huggingface_hub.ModelCard(build(run)).data
  assert data.base_model == "Qwen/Qwen2.5-7B"
  assert data.pipeline_tag == "text-generation"
  assert "azr_jax" in data.tags


def test_rewards_are_those_of_the_steps_before_the_export(run):
  assert "| `reward/solve/mean` | 0.030 | 0.100 |" in build(run)
  assert "| `reward/solve/mean` | 0.030 | 0.090 |" in build(run, step=11)
  assert "tokens/mean" not in build(run)
  assert "## In training" not in build(run, step=9)


def test_facts_come_from_the_run_s_folder(run):
  card = build(run)
  assert "| steps | 12 |" in card and "| seed | 3 |" in card
  assert card.count("commit `abc`") == 1
  assert "https://arxiv.org/abs/2505.03335" in card
  assert "| programs_heldout | 46.4 +- 1.2 | 64.6 +- 1.1 |" in card
  assert "| own |  | 50.0 |" in card
  (run / "starts.jsonl").unlink()
  assert "| code | not recorded |" in build(run)


def test_a_config_is_shown_without_machines_and_folders(run):
  shown = build(run).partition("```json\n")[2].partition("```")[0]
  assert json.loads(shown) == {
    "system": "azr",
    "seed": 3,
    "model": {"source": "hf:Qwen/Qwen2.5-7B"},
    "learner": {"estimator": "trr++"},
    "azr": {"seeds_file": "seeds.jsonl"},
  }
  assert "/home/me" not in build(run)


def test_an_export_of_two_formats_has_a_card(tmp_path, on_one_device):
  out = tmp_path / "orz"
  export.export(
    evaluate_config.get_config(),
    "embedded:orz-tiny",
    str(out),
    "bfloat16",
    ("safetensors", "gguf"),
  )
  names = {path.name for path in out.iterdir()}
  assert names == {
    "README.md",
    "config.json",
    "generation_config.json",
    "model.gguf",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
  }
  card = huggingface_hub.ModelCard.load(out / "README.md")
  assert "without training" in card.text
  assert "vllm serve orz" in card.text and "-m model.gguf" in card.text


@pytest.mark.parametrize(
  "formats, dtype, message",
  [
    (("onnx",), "float32", "formats=onnx: expected some of"),
    ((), "float32", "formats=: expected some of"),
    (("safetensors", "gguf"), "q8_0", "dtype='q8_0': expected one of"),
    (("gguf",), "int4", "dtype='int4': expected one of"),
  ],
)
def test_a_format_or_type_that_is_unknown_is_refused(
  tmp_path, formats, dtype, message
):
  with pytest.raises(ValueError, match=message):
    export.export(
      evaluate_config.get_config(),
      "embedded:orz-tiny",
      str(tmp_path),
      dtype,
      formats,
    )


def test_scores_that_are_none_are_refused(tmp_path):
  with pytest.raises(ValueError, match=r"--base=.*: expected a folder of"):
    export.export(
      evaluate_config.get_config(),
      "embedded:orz-tiny",
      str(tmp_path / "out"),
      "float32",
      base=str(tmp_path),
    )
