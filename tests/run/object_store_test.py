"""Runs in an object store, for which a folder of this machine stands."""

import json
import pathlib
import shutil
import signal
import time

import pytest
import training

from azr_jax import train
from azr_jax.configs import azr, evaluate
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


def test_metrics_are_rewritten_from_time_to_time(tmp_path, monkeypatch):
  folder = storage.resolve(f"file://{tmp_path}/run")
  path = tmp_path / "run" / metrics_lib.METRICS
  writer = metrics_lib.MetricsWriter(folder, 1)
  writer.write(1, {"loss": 2.0})
  assert not path.exists()
  monkeypatch.setattr(metrics_lib, "STORE_S", -1.0)
  writer.write(2, {"loss": 1.0})
  assert len(path.read_text().splitlines()) == 2
  monkeypatch.setattr(metrics_lib, "STORE_S", 1e9)
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


def test_a_run_in_a_store_is_stopped_resumed_and_scored(
  azr_run, tmp_path, on_one_device
):
  here = tmp_path / "run"
  folder = f"file://{here}"
  training.copy_cut_after(4, azr_run, here)
  (here / "lock").unlink()
  shutil.rmtree(here / "tensorboard")
  shutil.rmtree(here / "samples")
  process = training.start(folder, 50)
  while not list(here.glob("samples/*")) and process.poll() is None:
    time.sleep(0.2)
  process.send_signal(signal.SIGTERM)
  training.finish(process)
  done = [row["step"] for row in training.rows_of(here)]
  assert done == list(range(1, len(done) + 1)) and 4 < len(done) < 50
  assert (here / "checkpoints" / str(len(done))).is_dir()
  config = azr.get_config("tiny")
  config.update_from_flattened_dict(training.AZR)
  config.train.steps = len(done) + 1
  train.train(config, folder)
  assert len(training.rows_of(here)) == len(done) + 1
  names = {path.name for path in here.iterdir()}
  assert names == {"checkpoints", "config.json", "metrics.jsonl", "samples"}
  config = evaluate.get_config()
  config.rollout.slots = 16
  scores = scoring.evaluate(
    config, folder, "programs_heldout", str(tmp_path / "scores"), limit=1
  )
  assert scores["programs_heldout/items"] > 0
