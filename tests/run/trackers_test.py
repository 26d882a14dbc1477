"""Runs in Weights & Biases (offline) and in Trackio, resumed and rejected."""

import glob
import json
import pathlib
import sqlite3
import struct
from typing import Any

import pytest

from azr_jax.config.settings import Invalid
from azr_jax.run import trackers
from azr_jax.run.trackers import Trackers, TrackerSettings


@pytest.fixture
def folder(tmp_path, monkeypatch):
  """A run folder, with trackers that have no account and no network."""
  monkeypatch.setenv("WANDB_MODE", "offline")
  monkeypatch.setenv("WANDB_SILENT", "true")
  monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
  run = tmp_path / "run"
  run.mkdir()
  (run / "config.json").write_text(json.dumps({"seed": 3}))
  return run


def write(folder, names, steps):
  opened = Trackers(names, "p", folder)
  for step in steps:
    opened.write(step, {"reward/solve/mean": step / 10})
  opened.close()


def log_records(data):
  """Yields the records of a W&B file, a log in LevelDB's format."""
  position, record = 7, b""  # After the file header.
  while position + 7 <= len(data):
    if (left := 32768 - position % 32768) < 7:
      position += left
      continue
    _, size, kind = struct.unpack_from("<IHB", data, position)
    record += data[position + 7 : position + 7 + size]
    position += 7 + size
    if kind in (1, 4):  # A whole record, or the last part of one.
      yield record
      record = b""


def wandb_records(folder):
  """Returns (run id, config, history rows) of each W&B file."""

  import wandb
  from wandb.proto import wandb_internal_pb2

  messages: Any = wandb_internal_pb2  # Its classes are made by protobuf.
  wandb.teardown()  # Its service writes the files until it ends.
  found = []
  for path in sorted(glob.glob(f"{folder}/wandb/offline-run-*/run-*.wandb")):
    run_id, config, rows = "", {}, []
    for data in log_records(pathlib.Path(path).read_bytes()):
      record = messages.Record()
      record.ParseFromString(data)
      if record.WhichOneof("record_type") == "run":
        run_id = record.run.run_id
        items = record.run.config.update
        config |= {item.key: json.loads(item.value_json) for item in items}
      if record.WhichOneof("record_type") == "history":
        rows.append(
          {
            (item.key or "/".join(item.nested_key)): json.loads(item.value_json)
            for item in record.history.item
          }
        )
    found.append((run_id, config, rows))
  return found


@pytest.mark.slow
def test_a_resumed_run_continues_in_weights_and_biases(folder):
  write(folder, ("wandb",), [1, 2, 3])
  write(folder, ("wandb",), [3, 4])
  (first, config, some), (second, _, others) = wandb_records(folder)
  assert first == second and config["seed"] == 3
  rows = [(row["step"], row["reward/solve/mean"]) for row in some + others]
  # Both files may be from the same second, so their order is unknown.
  assert sorted(rows) == [(1, 0.1), (2, 0.2), (3, 0.3), (3, 0.3), (4, 0.4)]


def test_a_resumed_run_continues_in_trackio(folder, tmp_path):
  write(folder, ("trackio",), [1, 2])
  write(folder, ("trackio",), [3])
  connection = sqlite3.connect(tmp_path / "trackio" / "p.db")
  rows = connection.execute("SELECT run_name, step FROM metrics").fetchall()
  name = f"run-{json.loads((folder / 'trackers.json').read_text())['id']}"
  assert sorted(rows) == [(name, 1), (name, 2), (name, 3)]


def test_what_cannot_be_opened_is_refused_before_the_first_step(
  folder, monkeypatch
):
  import wandb

  wandb.teardown()  # Restarts it: it reads the environment at start.
  monkeypatch.setenv("WANDB_MODE", "online")
  monkeypatch.setenv("WANDB_API_KEY", "not a key")
  with pytest.raises(Invalid, match="train.trackers.names='wandb': expected"):
    Trackers(("wandb",), "p", folder)


def test_a_tracker_that_fails_is_left_out_and_the_run_goes_on(
  folder, monkeypatch, capsys
):
  opened = Trackers(("trackio",), "p", folder)

  def full_disk(*_, **__):
    raise OSError("no space left on device")

  tracker: Any = opened._open["trackio"]
  monkeypatch.setattr(tracker._run, "log", full_disk)
  for step in (1, 2):
    opened.write(step, {"loss": 1.0})
  opened.close()
  printed = capsys.readouterr()
  assert (printed.out + printed.err).count("no space left on device") == 1


def test_a_tracker_that_does_not_exist_is_named():
  with pytest.raises(Invalid, match="names"):
    TrackerSettings(names=("mlflow",))
  assert set(trackers.TRACKERS) == {"wandb", "trackio"}
