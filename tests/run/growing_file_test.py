"""Growing files: uploads to an object store, and what a fault leaves behind."""

import itertools
import pathlib
import re
import subprocess
import sys

import pytest

from azr_jax.run import growing_file, storage
from azr_jax.run.growing_file import GrowingFile


@pytest.fixture
def path(strict_store):
  return strict_store / "lines.jsonl"


@pytest.fixture
def clock(monkeypatch):
  """A clock that advances with every reading."""
  seconds = itertools.count(0.0, 1.0)
  monkeypatch.setattr(growing_file.time, "monotonic", lambda: next(seconds))


def stored(tmp_path):
  file = tmp_path / "run" / "lines.jsonl"
  return file.read_text().split() if file.exists() else None


def test_a_store_has_lines_now_and_then_and_all_at_the_end(
  path, tmp_path, monkeypatch, clock
):
  monkeypatch.setattr(growing_file, "UPLOAD_S", 9.0)
  seen = []
  with GrowingFile(path, True) as file:
    for number in range(40):
      file.append(f"{number}\n")
      seen.append(stored(tmp_path))
  lines = [str(number) for number in range(40)]
  assert stored(tmp_path) == lines
  uploads = [found for found, _ in itertools.groupby(seen)]
  assert uploads[0] is None and 3 <= len(uploads) <= 6
  assert all(found == lines[: len(found or "")] for found in uploads[1:])
  with GrowingFile(path, True) as file:
    assert file.here.read_text().split() == lines
    file.append("more\n")
  assert stored(tmp_path) == [*lines, "more"]


def test_uploads_that_take_long_are_few(path, monkeypatch):
  now = [0.0]
  monkeypatch.setattr(growing_file.time, "monotonic", lambda: now[0])
  uploads = []

  def upload(here, target):
    now[0] += 20.0
    uploads.append(now[0])

  monkeypatch.setattr(storage, "replace", upload)
  with GrowingFile(path, True) as file:
    for _ in range(1000):
      now[0] += 1.0
      file.append("a line\n")
    # Uploads of 20 seconds each take a tenth of the time.
    assert 4 <= len(uploads) <= 6


@pytest.mark.parametrize("is_stored", [False, True])
def test_what_was_written_before_an_error_stays(path, tmp_path, is_stored):
  target = path if is_stored else tmp_path / "run" / "lines.jsonl"
  (tmp_path / "run").mkdir()
  with pytest.raises(KeyboardInterrupt):
    with GrowingFile(target, True) as file:
      file.append("one\n")
      raise KeyboardInterrupt
  assert stored(tmp_path) == ["one"]


def test_a_store_that_refuses_is_told_and_at_the_end_an_error(
  path, monkeypatch, capsys
):
  def refuse(here, target):
    raise OSError(f"{target.name} cannot be written")

  text = r"lacks lines, which are in (\S+)"

  monkeypatch.setattr(storage, "replace", refuse)
  monkeypatch.setattr(growing_file, "UPLOAD_S", -1.0)
  with pytest.raises(OSError, match=text) as error:
    with GrowingFile(path, True) as file:
      file.append("one\n")
      told = "lines.jsonl cannot be written"
      assert told in capsys.readouterr().err
  kept = pathlib.Path(re.findall(text, str(error.value))[0])
  assert kept.read_text() == "one\n"
  with pytest.raises(KeyboardInterrupt):
    with GrowingFile(path, True) as file:
      raise KeyboardInterrupt


def test_an_upload_that_is_cut_short_replaces_nothing(
  path, tmp_path, monkeypatch
):
  with GrowingFile(path, True) as file:
    file.append("one\ntwo\n")

  def interrupt(source, sink, size):
    sink.write(b"on")
    raise KeyboardInterrupt

  with pytest.raises(KeyboardInterrupt):
    with GrowingFile(path, True) as file:
      file.append("three\n")
      monkeypatch.setattr(storage.shutil, "copyfileobj", interrupt)
  assert stored(tmp_path) == ["one", "two"]


KILLED = """
import os, signal, sys
from azr_jax.run import session, storage
from azr_jax.run.growing_file import GrowingFile

def replace_and_get_another(path, target, replace=storage.replace):
  os.kill(os.getpid(), signal.SIGTERM)
  replace(path, target)

storage.replace = replace_and_get_another
with session.open_run(
  sys.argv[1], {}, 1.0, section="", stops_after_step=False
) as run:
  with GrowingFile(run.folder / "lines.jsonl", True) as file:
    file.append("one\\n")
    os.kill(os.getpid(), signal.SIGTERM)
    signal.pause()
"""


def test_sigterm_uploads_what_is_new(tmp_path):
  folder = f"file://{tmp_path}/run"
  done = subprocess.run([sys.executable, "-c", KILLED, folder], timeout=120)
  assert done.returncode == 143
  assert stored(tmp_path) == ["one"]


def test_one_process_writes_and_others_read(path, tmp_path):
  with GrowingFile(path, False) as file:
    file.append("one\n")
    assert not file.here.exists()
  assert stored(tmp_path) is None
  with GrowingFile(path, True):
    pass
  assert stored(tmp_path) == []
