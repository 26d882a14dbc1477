"""Runs in an object store: a folder of this machine that is treated as one."""

import json
import pathlib
import signal
import time

import pytest
import train_test

from azr_jax.configs import evaluate as evaluate_config
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


def test_metrics_are_written_anew_now_and_then(tmp_path, monkeypatch):
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
  writer.flush()  # A checkpoint does so, too.
  assert len(path.read_text().splitlines()) == 3
  writer.close()
  # Step 3 is done again by a run that goes on after step 2.
  writer = metrics_lib.MetricsWriter(folder, 3)
  writer.write(3, {"loss": 0.25})
  writer.close()
  steps = [json.loads(line) for line in path.read_text().splitlines()]
  assert [one["loss"] for one in steps] == [2.0, 1.0, 0.25]
  assert sorted(p.name for p in path.parent.iterdir()) == [metrics_lib.METRICS]


def test_a_run_in_a_store_is_stopped_goes_on_and_is_scored(tmp_path):
  folder = f"file://{tmp_path}/run"
  process = train_test.start(folder, 50, config=train_test.SMALL)
  samples = tmp_path / "run" / "samples"
  while not list(samples.glob("*")) and process.poll() is None:
    time.sleep(0.2)
  process.send_signal(signal.SIGTERM)
  train_test.finish(process)
  done = [one["step"] for one in read(tmp_path)]
  assert done == list(range(1, len(done) + 1))
  train_test.finish(
    train_test.start(folder, len(done) + 1, config=train_test.SMALL)
  )
  assert len(read(tmp_path)) == len(done) + 1
  names = {path.name for path in (tmp_path / "run").iterdir()}
  assert names == {"checkpoints", "config.json", "metrics.jsonl", "samples"}
  scores = scoring.evaluate(
    evaluate_config.get_config(),
    folder,
    "programs_heldout",
    str(tmp_path / "scores"),
    limit=1,
  )
  assert scores["programs_heldout/items"] > 0


def read(tmp_path):
  text = (tmp_path / "run" / "metrics.jsonl").read_text()
  return list(map(json.loads, text.splitlines()))
