"""Runs in an object store, with a local folder in its place."""

import json
import pathlib
import shutil
import signal
import time

import pytest
import training

from azr_jax import sft
from azr_jax.configs import evaluate
from azr_jax.configs import sft as sft_config
from azr_jax.models import load
from azr_jax.run import metrics as metrics_lib
from azr_jax.run import storage
from azr_jax.trainer import scoring


def test_names_of_folders(tmp_path, monkeypatch):
  here = storage.resolve(str(tmp_path))
  assert here == tmp_path and not storage.is_object_store(here)
  stored = storage.resolve(f"file://{tmp_path}")
  assert storage.is_object_store(stored) and str(stored) == str(tmp_path)
  installed = {"gcsfs"}
  monkeypatch.setattr(
    storage.importlib.util, "find_spec", lambda name: name in installed or None
  )
  bucket = storage.resolve("gs://bucket/runs")
  assert storage.is_object_store(bucket / "azr")
  assert str(bucket / "azr") == "gs://bucket/runs/azr"
  assert storage.resolve("~/runs") == pathlib.Path.home() / "runs"
  installed.clear()
  with pytest.raises(ModuleNotFoundError, match="need gcsfs"):
    storage.resolve("gs://bucket/runs")


def test_files_of_libraries_are_copied_to_the_store(strict_store, tmp_path):
  with pytest.raises(TypeError, match="not on this machine"):
    open(strict_store / "file", "wb")
  content = bytes(range(256)) * 999
  with storage.upload_on_exit(strict_store / "model") as here:
    (here / "inner").mkdir()
    (here / "inner" / "weights").write_bytes(content)
    (here / "config.json").write_text("{}")
    assert not (tmp_path / "run").exists()
  assert (tmp_path / "run/model/inner/weights").read_bytes() == content
  assert (tmp_path / "run/model/config.json").read_text() == "{}"
  with pytest.raises(KeyError):
    with storage.upload_on_exit(strict_store / "failed") as here:
      (here / "half").write_text("of a file")
      raise KeyError
  assert not (tmp_path / "run/failed").exists()
  with storage.upload_on_exit(tmp_path / "plain") as here:
    assert here == tmp_path / "plain" and here.is_dir()


@pytest.mark.slow
def test_supervised_training_ends_well_in_a_store(
  strict_store, tmp_path, monkeypatch, on_one_device
):
  config = sft_config.get_config("countdown_smoke")
  config.train.steps, config.train.save_every = 2, 1
  sft.train(config, f"file://{strict_store}")
  names = {path.name for path in (tmp_path / "run" / "model").iterdir()}
  assert names == {
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
  }
  monkeypatch.undo()
  source = load.resolve(str(tmp_path / "run" / "model"), str(tmp_path))
  assert source.config.vocab_size >= source.tokenizer.vocab_size
  assert [row["step"] for row in training.rows_of(tmp_path / "run")] == [1, 2]


def test_metrics_are_rewritten_from_time_to_time(tmp_path, monkeypatch):
  folder = storage.resolve(f"file://{tmp_path}/run")
  path = tmp_path / "run" / metrics_lib.METRICS
  writer = metrics_lib.MetricsWriter(folder, 1)
  writer.write(1, {"loss": 2.0})
  assert not path.exists()
  monkeypatch.setattr(metrics_lib, "STORE_WRITE_S", -1.0)
  writer.write(2, {"loss": 1.0})
  assert len(path.read_text().splitlines()) == 2
  monkeypatch.setattr(metrics_lib, "STORE_WRITE_S", 1e9)
  writer.write(3, {"loss": 0.5})
  writer.flush()
  assert len(path.read_text().splitlines()) == 3
  writer.close()
  # A run that resumes after step 2 repeats step 3.
  writer = metrics_lib.MetricsWriter(folder, 3)
  writer.write(3, {"loss": 0.25})
  writer.close()
  rows = [json.loads(line) for line in path.read_text().splitlines()]
  assert [row["loss"] for row in rows] == [2.0, 1.0, 0.25]
  assert sorted(p.name for p in path.parent.iterdir()) == [metrics_lib.METRICS]


@pytest.mark.slow
def test_a_run_in_a_store_is_resumed_stopped_and_scored(
  azr_run, tmp_path, on_one_device
):
  here = tmp_path / "run"
  folder = f"file://{here}"
  training.copy_cut_after(4, azr_run, here)
  (here / "lock").unlink()
  shutil.rmtree(here / "tensorboard")
  shutil.rmtree(here / "samples")
  shutil.rmtree(here / "profile")  # The shared run of the tests is profiled.
  process = training.start(folder, 50)
  while not list(here.glob("samples/*")) and process.poll() is None:
    time.sleep(0.2)
  process.send_signal(signal.SIGTERM)
  training.finish(process)
  done = [row["step"] for row in training.rows_of(here)]
  assert done == list(range(1, len(done) + 1)) and 4 < len(done) < 50
  assert (here / "checkpoints" / str(len(done))).is_dir()
  names = {path.name for path in here.iterdir()}
  run_files = {"checkpoints", "config.json", "metrics.jsonl", "samples"}
  assert names == run_files | {"records"}
  config = evaluate.get_config()
  config.rollout.slots = 16
  scores = scoring.evaluate(
    config, folder, "programs_heldout", str(tmp_path / "scores"), limit=1
  )
  assert scores["programs_heldout/items"] > 0
