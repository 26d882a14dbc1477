"""Evaluation of specs, folders and runs; export; supervised smoke run."""

import json

import pytest
import training
import transformers

from azr_jax import export, sft
from azr_jax.configs import evaluate as evaluate_config
from azr_jax.configs import sft as sft_config
from azr_jax.evals import programs_heldout
from azr_jax.models import load
from azr_jax.trainer import scoring, settings


@pytest.fixture
def config(on_one_device):
  config = evaluate_config.get_config()
  config.rollout.slots = 16
  return config


@pytest.mark.slow
def test_the_embedded_model_and_its_export_score_alike(config, tmp_path):
  scores = scoring.evaluate(
    config,
    "embedded:azr-tiny",
    "programs_heldout",
    str(tmp_path / "scores"),
    limit=4,
  )
  assert {
    f"programs_heldout/pass@1/{name}"
    for name in ("unbiased", "deduction", "abduction", "induction")
  } <= scores.keys()
  path = tmp_path / "scores/programs_heldout.jsonl"
  records = path.read_text().splitlines()
  assert len(records) == 12
  assert any(json.loads(record)["details"] == [""] for record in records)
  result = json.loads((tmp_path / "scores/results.json").read_text())
  assert (result["limit"], result["scores"]) == (4, scores)
  with pytest.raises(ValueError, match="or another --workdir"):
    scoring.evaluate(
      config, str(tmp_path), "programs_heldout", str(tmp_path / "scores")
    )
  config.rollout.prompt_buckets = (256, 384)  # A layout changes no score.
  assert scores == scoring.evaluate(
    config,
    "embedded:azr-tiny",
    "programs_heldout",
    str(tmp_path / "scores"),
    limit=4,
  )
  (tmp_path / "run" / "checkpoints").mkdir(parents=True)
  with pytest.raises(ValueError, match="because this one holds a run"):
    run = str(tmp_path / "run")
    export.export(config, "embedded:azr-tiny", run, "float32")
  export.export(config, "embedded:azr-tiny", str(tmp_path / "hf"), "float32")
  again = scoring.evaluate(
    config,
    str(tmp_path / "hf"),
    "programs_heldout",
    str(tmp_path / "again"),
    limit=4,
  )
  assert again == scores
  records = [json.loads(line) for line in path.read_text().splitlines()]
  assert greedy_texts(tmp_path / "hf", records) == [
    record["responses"][0] for record in records
  ]


def greedy_texts(folder, records):
  """Answers of an export to records' items, written by transformers alone."""
  model = transformers.AutoModelForCausalLM.from_pretrained(folder)
  tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
  items = {item.id: item for item in programs_heldout.read("")}
  texts = []
  for record in records:
    prompt = programs_heldout.prompt(items[record["id"]], "compact", None)
    inputs = tokenizer(prompt, return_tensors="pt", return_token_type_ids=False)
    ids = model.generate(
      **inputs, do_sample=False, max_new_tokens=record["tokens"][0]
    )[0, inputs["input_ids"].shape[1] :]
    texts.append(tokenizer.decode(ids, skip_special_tokens=True))
  return texts


def test_unknown_benchmark_and_model_are_named(config, tmp_path):
  with pytest.raises(ValueError, match="'nothing': expected one of"):
    scoring.evaluate(config, "embedded:azr-tiny", "nothing", str(tmp_path))
  with pytest.raises(ValueError, match="embedded:"):
    load.resolve("embedded:gpt", str(tmp_path))
  with pytest.raises(ValueError, match="expected a run's folder"):
    scoring.evaluate(
      config, str(tmp_path), "programs_heldout", str(tmp_path / "a")
    )
  with pytest.raises(ValueError, match="--step=3: expected no step, because"):
    scoring.evaluate(
      config, "embedded:azr-tiny", "programs_heldout", str(tmp_path), step=3
    )
  with pytest.raises(ValueError, match="limit=-5"):
    scoring.evaluate(
      config, "embedded:azr-tiny", "programs_heldout", str(tmp_path), limit=-5
    )


@pytest.mark.parametrize("asked, wanted", [(2, 2), (None, 4)])
def test_a_checkpoint_of_a_run_can_be_named(
  config, tmp_path, monkeypatch, asked, wanted
):
  class LoadedError(Exception):
    pass

  def load_policy(settings, model, step, request):
    raise LoadedError(step)

  monkeypatch.setattr(scoring.loading, "checkpoint_step", lambda model: 4)
  monkeypatch.setattr(scoring.loading, "load_policy", load_policy)
  with pytest.raises(LoadedError, match=f"^{wanted}$"):
    scoring.evaluate(
      config, "RUN", "programs_heldout", str(tmp_path), step=asked
    )


@pytest.mark.parametrize(
  "rows, message",
  [
    ([{"question": "1+1?", "answer": "#### 2"}], "gsm8k: prompt_format 'compa"),
    ([{"question": "1+1?"}], "gsm8k"),
  ],
)
def test_what_cannot_be_asked_is_told_before_anything_is_sampled(
  config, tmp_path, rows, message
):
  data = tmp_path / "gsm8k.jsonl"
  data.write_text("".join(json.dumps(row) + "\n" for row in rows))
  with pytest.raises(ValueError, match=message):
    scoring.evaluate(
      config,
      "embedded:azr-tiny",
      "programs_heldout,gsm8k",
      str(tmp_path / "scores"),
      f"gsm8k={data}",
      limit=1,
    )
  assert not (tmp_path / "scores/programs_heldout.jsonl").exists()


def test_a_bad_value_is_named(config):
  config.evaluate.prompt_format = "long"
  with pytest.raises(ValueError, match="evaluate.prompt_format='long'"):
    settings.read(settings.EvaluateSettings, config)


def test_supervised_training_learns_and_resumes(tmp_path, on_one_device):
  few = {"learner.micro_rows": 8}
  config = sft_config.get_config("smoke")
  config.update_from_flattened_dict(few)
  sft.train(config, str(tmp_path))
  rows = training.rows_of(tmp_path)
  losses = [row["learner/nll"] for row in rows]
  room = few["learner.micro_rows"] * config.learner.row_length
  for row in rows:
    assert 0 < row["device/update/tokens_per_s"] * row["time/step"] <= room
  assert len(losses) == 4 and 0 < losses[-1] < losses[0]
  source = load.resolve(str(tmp_path / "model"), str(tmp_path))
  assert source.config.vocab_size >= source.tokenizer.vocab_size
  config.train.steps = 5
  sft.train(config, str(tmp_path))
  steps = [row["step"] for row in training.rows_of(tmp_path)]
  assert steps == [1, 2, 3, 4, 5]


def test_a_folder_without_scores_is_free_for_others(tmp_path):
  config = evaluate_config.get_config()
  asked = str(tmp_path / "nothing.jsonl"), str(tmp_path / "scores")
  for data in ("", "gsm8k="):
    with pytest.raises(ValueError, match="there is no such file"):
      scoring.evaluate(
        config, "embedded:orz-tiny", "gsm8k", asked[1], data + asked[0]
      )
  with pytest.raises(ValueError, match="names 'gsm9k': expected one of"):
    scoring.evaluate(
      config, "embedded:orz-tiny", "gsm8k", asked[1], f"gsm9k={asked[0]}"
    )
