"""What a run's folder records about its starts."""

import datetime
import json
import pathlib
import platform
import subprocess

import jax
import pytest

from azr_jax.parallel.hosts import Hosts
from azr_jax.run import starts


def test_each_start_is_a_line_with_date_code_and_devices(tmp_path):
  for done in (0, 20):
    starts.record(tmp_path, Hosts(60.0), done)
  lines = (tmp_path / starts.STARTS).read_text().splitlines()
  first, second = map(json.loads, lines)
  assert (first["done"], second["done"]) == (0, 20)
  age = datetime.datetime.now(datetime.UTC) - datetime.datetime.fromisoformat(
    first["time"]
  )
  assert 0 <= age.total_seconds() < 3600
  assert sum(first["devices"].values()) == jax.device_count()
  assert first["jax"] == jax.__version__ and first["processes"] == 1


@pytest.mark.parametrize(
  "text, processor, cpu",
  [
    (
      "vendor : A\nmodel name\t: AMD EPYC 9B14 \n\nmodel name\t: B\n",
      "",
      "AMD EPYC 9B14",
    ),
    ("model name\t:\nBogoMIPS : 50\n", "", None),
    ("", "Neoverse", "Neoverse"),
    (None, "Neoverse", "Neoverse"),
    (None, "aarch64", None),
    (None, "", None),
  ],
)
def test_a_start_has_the_model_of_the_cpu(
  tmp_path, monkeypatch, text, processor, cpu
):
  read_text = pathlib.Path.read_text

  def read(path, *arguments, **options):
    if str(path) != "/proc/cpuinfo":
      return read_text(path, *arguments, **options)
    if text is None:
      raise FileNotFoundError(path)
    return text

  monkeypatch.setattr(pathlib.Path, "read_text", read)
  monkeypatch.setattr(platform, "processor", lambda: processor)
  monkeypatch.setattr(platform, "machine", lambda: "aarch64")
  starts.record(tmp_path, Hosts(60.0), 0)
  assert json.loads((tmp_path / starts.STARTS).read_text())["cpu"] == cpu


def git(folder, *arguments):
  identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
  command = ["git", "-C", str(folder), *identity, *arguments]
  done = subprocess.run(command, capture_output=True, text=True, check=True)
  return done.stdout.strip()


def test_the_commit_is_that_of_code_which_git_tracks(tmp_path):
  package = tmp_path / "package"
  package.mkdir()
  code = package / "__init__.py"
  code.write_text("a = 1\n")
  assert starts.commit(package) is None
  git(tmp_path, "init", "-q")
  # A package installed below an unrelated repository.
  (tmp_path / "other").write_text("")
  git(tmp_path, "add", "other")
  git(tmp_path, "commit", "-qm", "other")
  assert starts.commit(package) is None
  kept = tmp_path / "experiments" / "a" / "runs" / "b_0.json"
  kept.parent.mkdir(parents=True)
  kept.write_text("{}")
  git(tmp_path, "add", "package", "experiments")
  git(tmp_path, "commit", "-qm", "package")
  head = git(tmp_path, "rev-parse", "HEAD")
  assert starts.commit(package) == head[:12]
  kept.write_text("[]")
  assert starts.commit(package) == head[:12]
  # Its time has changed, but not its contents.
  code.touch()
  assert starts.commit(package) == head[:12]
  code.write_text("a = 2\n")
  assert starts.commit(package) == f"{head[:12]}-dirty"


def test_a_torn_line_hides_no_other_start(tmp_path):
  path = tmp_path / starts.STARTS
  path.write_text('{"commit": "abc"}\n[]\n{"commit": null}\n{"comm')
  assert starts.commits(tmp_path) == ["abc"]
  starts.record(tmp_path, Hosts(60.0), 3)
  assert json.loads(path.read_text().splitlines()[-1])["done"] == 3
  assert starts.commits(tmp_path / "no") == []
