"""Tests that compiled programs outlive their process."""

import os
import pathlib
import subprocess
import sys
import types

import jax
import pytest

from azr_jax import api
from azr_jax.cli import compilation_cache, host_flags

NAMES = (
  "jax_compilation_cache_dir",
  "jax_persistent_cache_min_compile_time_secs",
  "jax_persistent_cache_enable_xla_caches",
)
PROGRAM = """
import jax
from azr_jax.cli import compilation_cache
compilation_cache.enable()
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
hits = []
jax.monitoring.register_event_listener(lambda event, **_: hits.append(event))
jax.jit(lambda x: x * 3 + 1)(2.0).block_until_ready()
print("hits", hits.count("/jax/compilation_cache/cache_hits"))
"""


@pytest.fixture
def config(monkeypatch, tmp_path):
  """Unsets the tests' compilation cache, and restores it afterwards."""
  before = {name: getattr(jax.config, name) for name in NAMES}
  monkeypatch.setattr(compilation_cache, "_FOLDER", tmp_path / "compiled")
  jax.config.update(NAMES[0], None)
  yield tmp_path / "compiled"
  for name, value in before.items():
    jax.config.update(name, value)


def run(home, **changes):
  environment = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith(("JAX_COMPILATION", "JAX_PERSISTENT"))
  }
  return subprocess.run(
    [sys.executable, "-c", PROGRAM],
    env=environment | {"HOME": str(home)} | changes,
    capture_output=True,
    text=True,
    timeout=120,
    check=True,
  )


def test_a_second_process_finds_the_programs_of_the_first(tmp_path):
  assert "hits 0" in run(tmp_path).stdout
  again = run(tmp_path)
  assert "hits 0" not in again.stdout and again.stderr == ""
  (folder,) = (tmp_path / ".cache/azr_jax/compiled").iterdir()
  assert any(folder.glob("*-cache"))
  off = run(tmp_path, JAX_ENABLE_COMPILATION_CACHE="false")
  assert "hits 0" in off.stdout


def test_a_folder_that_cannot_be_made_ends_nothing(tmp_path):
  (tmp_path / ".cache").write_text("a file")
  done = run(tmp_path)
  assert "hits 0" in done.stdout and done.stderr == ""


def test_damaged_programs_are_compiled_again(tmp_path):
  run(tmp_path)
  for path in (tmp_path / ".cache/azr_jax/compiled").glob("*/*-cache"):
    path.write_bytes(path.read_bytes()[:20])
  assert "hits 0" in run(tmp_path).stdout


def test_a_folder_of_the_user_stays(config):
  jax.config.update(NAMES[0], "/somewhere/else")
  compilation_cache.enable()
  assert getattr(jax.config, NAMES[0]) == "/somewhere/else"
  assert "autotune" in getattr(jax.config, NAMES[2])


def test_xla_writes_nothing_into_a_bucket(config):
  jax.config.update(NAMES[0], "gs://bucket/compiled")
  compilation_cache.enable()
  assert getattr(jax.config, NAMES[0]) == "gs://bucket/compiled"
  assert getattr(jax.config, NAMES[2]) == "none"


def test_several_processes_keep_nothing_by_default(config, monkeypatch):
  monkeypatch.setattr(jax.distributed, "is_initialized", lambda: True)
  compilation_cache.enable()
  assert getattr(jax.config, NAMES[0]) is None
  assert not config.exists()


def test_processors_with_other_features_have_their_own_folders(
  config, monkeypatch
):
  read_text = pathlib.Path.read_text
  found = []
  for flags, clock in (("sse avx512f", 1), ("sse avx512f", 2), ("sse", 1)):

    def read(path, *args, flags=flags, clock=clock):
      if str(path) == "/proc/cpuinfo":
        return (
          f"model name : X\nflags : {flags}\ncpu MHz : {clock}\n\nflags : y"
        )
      return read_text(path, *args)

    monkeypatch.setattr(pathlib.Path, "read_text", read)
    jax.config.update(NAMES[0], None)
    compilation_cache.enable()
    found.append(getattr(jax.config, NAMES[0]))
  assert found[0] == found[1] != found[2]
  assert all(pathlib.Path(folder).parent == config for folder in found)


class EnabledError(Exception):
  """Shows that a command has reached the cache."""


def test_commands_and_the_interface_enable_it(monkeypatch):
  def enable():
    raise EnabledError

  def define(*_, **__):
    return types.SimpleNamespace(value=None)

  monkeypatch.setattr(compilation_cache, "enable", enable)
  for name in ("DEFINE_bool", "DEFINE_string", "DEFINE_integer"):
    monkeypatch.setattr(host_flags.flags, name, define)
  starts = (
    host_flags.define(),
    lambda: api.train("model", [], len, "folder"),
    lambda: api.load("model"),
  )
  for start in starts:
    with pytest.raises(EnabledError):
      start()
