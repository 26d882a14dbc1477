"""The metrics and texts that a run stores for a step."""

import json
import math
import subprocess
import sys

import numpy as np
import pytest

from azr_jax import types
from azr_jax.run import metrics, storage


def trajectory(group, number):
  nothing = np.zeros(0, np.int32)
  completion = types.Completion(
    nothing,
    nothing.astype(np.float32),
    nothing > 0,
    "stop",
    f"{group} {number}",
  )
  prompt = types.Prompt("?", (1,), None)
  return types.Trajectory(prompt, completion, 1.0, group, {})


@pytest.mark.parametrize("count", [0, 1, 5, 12, 100])
def test_every_group_has_its_part_of_the_kept_texts(tmp_path, count):
  sizes = {"a": 9, "b": 1, "c": 7, "d": 2, "e": 9}
  some = [trajectory(g, n) for g, size in sizes.items() for n in range(size)]
  metrics.write_samples(tmp_path, 3, some, count)
  path = tmp_path / metrics.SAMPLES / "000003.jsonl"
  if not count:
    assert not path.exists()
    return
  kept = [json.loads(line)["group"] for line in path.read_text().splitlines()]
  assert len(kept) == min(count, len(some))
  assert len(set(kept)) == min(count, len(sizes))
  if count == 12:
    assert {g: kept.count(g) for g in sizes} == dict(a=3, b=1, c=3, d=2, e=3)


def write_steps(folder, first, last, rows=()):
  """Writes some steps, and returns the rows of the checkpoint after them."""
  writer = metrics.MetricsWriter(folder, first, rows)
  for step in range(first, last + 1):
    writer.write(step, {"loss": 1 / step, "time/step": 2.0})
  kept = writer.take_rows()
  writer.close()
  return kept


def in_store(folder, is_stored):
  return storage.resolve(f"file://{folder}") if is_stored else folder


@pytest.mark.parametrize("is_stored", [False, True])
@pytest.mark.parametrize(
  "damage",
  [
    lambda data: data[:-7],
    lambda data: data[:-1],
    lambda data: data[: data.rindex(b'{"step": 4')],
    lambda data: data.replace(b'{"step": 4', b'{"step"\xff 4'),
    lambda data: data + b'{"step": 5, "lo',
    lambda data: b"",
  ],
)
def test_lines_that_a_file_lost_come_back_from_the_checkpoint(
  tmp_path, damage, is_stored, capsys
):
  folder = in_store(tmp_path, is_stored)
  rows = write_steps(folder, 1, 4)
  assert [row["step"] for row in rows] == [1, 2, 3, 4]
  path = tmp_path / metrics.METRICS
  whole = path.read_bytes()
  path.write_bytes(damage(whole))
  rows = write_steps(folder, 5, 6, json.loads(json.dumps(rows)))
  assert path.read_bytes().startswith(whole)
  assert [row["step"] for row in rows] == [5, 6]
  lines = path.read_text().splitlines()
  assert [json.loads(line)["step"] for line in lines] == [1, 2, 3, 4, 5, 6]
  assert capsys.readouterr().err == ""


def test_a_hole_that_nothing_fills_is_told(tmp_path, capsys):
  write_steps(tmp_path, 1, 9)
  path = tmp_path / metrics.METRICS
  lines = path.read_text().splitlines(keepends=True)
  path.write_text("".join(lines[:1] + lines[8:]))
  write_steps(tmp_path, 10, 10, [{"step": 8, "loss": 0.5}])
  [line] = capsys.readouterr().err.splitlines()
  assert line == f"{path} has lost the metrics of steps 2, 3, 4, 5, 6, ..."
  steps = [json.loads(line)["step"] for line in path.read_text().splitlines()]
  assert steps == [1, 8, 9, 10]


@pytest.mark.parametrize("is_stored", [False, True])
def test_what_is_not_finite_is_left_out_of_the_json(tmp_path, is_stored):
  writer = metrics.MetricsWriter(in_store(tmp_path, is_stored), 1)
  writer.write(1, {"a": math.nan, "b": math.inf, "c": -math.inf, "d": 1.0})
  writer.close()

  def refuse(word):
    raise AssertionError(word)

  text = (tmp_path / metrics.METRICS).read_text()
  assert json.loads(text, parse_constant=refuse) == {"step": 1, "d": 1.0}


@pytest.fixture(name="store")
def make_store(tmp_path, monkeypatch):
  """A folder as an object store whose next writes fail with a client error."""
  folder = storage.resolve(f"file://{tmp_path}")
  left = {"failures": 0}
  write_text = type(folder).write_text

  def write(path, text, **options):
    if left["failures"]:
      left["failures"] -= 1
      raise KeyError("503")
    return write_text(path, text, **options)

  monkeypatch.setattr(type(folder), "write_text", write)
  monkeypatch.setattr(storage, "_RETRY_DELAYS_S", (0.0, 0.0, 0.0))
  return folder, left


@pytest.mark.parametrize(
  "failures, is_written", [(0, True), (3, True), (9, False)]
)
def test_a_store_may_refuse_some_writes(
  tmp_path, store, capsys, failures, is_written
):
  folder, left = store
  left["failures"] = failures
  metrics.write_samples(folder, 1, [trajectory("a", 1)], 1)
  assert (tmp_path / "samples" / "000001.jsonl").exists() == is_written
  assert ("is not written" in capsys.readouterr().err) != is_written
  left["failures"] = failures
  writer = metrics.MetricsWriter(folder, 1)
  writer.write(1, {"loss": 1.0})
  if is_written:
    writer.flush()
  else:  # A checkpoint must not be ahead of the metrics.
    with pytest.raises(OSError, match="cannot be written .*503"):
      writer.flush()
  left["failures"] = 0
  writer.close()
  assert len((tmp_path / metrics.METRICS).read_text().splitlines()) == 1


def test_a_full_disk_is_an_error_for_texts_too(tmp_path):
  (tmp_path / "samples").write_text("a file, in place of the folder")
  with pytest.raises(OSError):
    metrics.write_samples(tmp_path, 1, [trajectory("a", 1)], 1)


def test_events_are_written_without_importing_torch(tmp_path):
  code = (
    "import sys, pathlib; from azr_jax.run import metrics;"
    f"writer = metrics.MetricsWriter(pathlib.Path({str(tmp_path)!r}), 1);"
    "writer.write(1, {'loss': 2.0}); writer.close();"
    "assert 'torch' not in sys.modules"
  )
  subprocess.run([sys.executable, "-c", code], check=True)
  assert list((tmp_path / "tensorboard").iterdir())
