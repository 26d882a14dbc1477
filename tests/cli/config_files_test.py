"""Config files by name, their keys as flags, and the error messages."""

import pathlib
import subprocess
import sys

import pytest
from typed import present

from azr_jax.cli import config_files
from azr_jax.cli.errors import UsageError
from azr_jax.config.settings import Invalid

ROOT = pathlib.Path(__file__).parents[2]
TINY = "--config=configs/azr.py:tiny"
CONFIG = """
import ml_collections

def get_config(variant="small"):
  if variant not in ("small", "large"):
    raise ValueError(f"variant {variant!r}: expected small or large")
  size = 1 if variant == "small" else 2
  return ml_collections.ConfigDict({"a": {"size": size, "name": "x"}})
"""


@pytest.fixture(name="folder")
def make_folder(tmp_path, monkeypatch):
  """A working directory with a config file but without `configs`."""
  (tmp_path / "mine.py").write_text(CONFIG)
  monkeypatch.chdir(tmp_path)
  return tmp_path


def test_a_shipped_config_is_found_from_every_folder(folder):
  spec = config_files.resolve("configs/azr.py:tiny")
  path, _, variant = spec.partition(":")
  assert pathlib.Path(path).samefile(ROOT / "configs" / "azr.py")
  assert variant == "tiny"
  assert config_files.load(spec).azr.prompts == 16


def test_a_file_of_the_working_directory_comes_first(folder):
  assert config_files.resolve("mine.py:large") == "mine.py:large"
  assert config_files.load("mine.py:large").a.size == 2
  assert config_files.load("mine.py").a.size == 1
  (folder / "configs").mkdir()
  (folder / "configs" / "azr.py").write_text(CONFIG)
  spec = config_files.resolve("configs/azr.py:large")
  assert config_files.load(spec).a.size == 2


@pytest.mark.parametrize(
  "words",
  [
    ["azr-train", "--a=1", "--config=mine.py:large", "--config.a.name=y"],
    ["azr-train", "--a=1", "--config", "mine.py:large", "--config.a.name=y"],
    ["azr-train", "--a=1", "-config=mine.py:large", "--config.a.name=y"],
  ],
)
def test_the_config_is_the_first_flag(folder, words):
  resolved = config_files.resolve_argument(words)
  expected = ["--config=mine.py:large", "--a=1", "--config.a.name=y"]
  assert resolved == ["azr-train", *expected]
  assert present(config_files.named(resolved)).a.size == 2


def test_a_default_is_used_where_no_word_names_a_config(folder):
  words = ["azr-propose", "--config.a.name=y"]
  assert config_files.resolve_argument(words) == words
  assert config_files.named(words) is None
  resolved = config_files.resolve_argument(words, "mine.py")
  assert resolved == ["azr-propose", "--config=mine.py", "--config.a.name=y"]
  words = ["azr-propose", "--config=mine.py:large"]
  assert config_files.resolve_argument(words, "mine.py") == words


@pytest.mark.parametrize(
  "spec, message",
  [
    ("mine.py:huge", "--config=mine.py:huge: variant 'huge': expected small"),
    ("mine.py:", "--config=mine.py:: variant '': expected small or large"),
    ("configs/azzr.py:tiny", "no such file; did you mean configs/azr.py?"),
    ("nosuch", "--config=nosuch: there is no such file; expected one of"),
    ("", "--config=: there is no such file"),
    ("empty.py", "expected a file with get_config()"),
  ],
)
def test_what_is_no_config_is_refused(folder, spec, message):
  (folder / "empty.py").write_text("")
  with pytest.raises(UsageError) as caught:
    config_files.resolve_argument(["azr-train", f"--config={spec}"])
  assert message in str(caught.value)


def test_every_shipped_config_is_named_once(folder):
  with pytest.raises(UsageError) as caught:
    config_files.load("nosuch")
  assert str(caught.value).count("configs/azr.py") == 1


@pytest.mark.parametrize(
  "word, message",
  [
    ("--config.a.siz=3", "--config.a.siz: the configuration has no such key"),
    ("--config.a.siz=3", "did you mean --config.a.size?"),
    ("--config.a.siz", "did you mean --config.a.size?"),
    ("--noconfig.a.siz", "did you mean --config.a.size?"),
    ("--config.zzzzzz=3", "--help lists all"),
    ("--config.a=3", "it is a section: set one of its keys, as --config.a.KEY"),
  ],
)
def test_a_key_that_the_config_lacks_is_named(folder, word, message):
  words = ["azr-train", "--config=mine.py", word]
  with pytest.raises(UsageError) as caught:
    config_files.check_overrides(words)
  assert message in str(caught.value)


def test_keys_that_the_config_has_are_allowed(folder):
  words = ["azr-train", "--config=mine.py", "--config.a.size=3"]
  config_files.check_overrides([*words, "--config.a.name[0]=x", "--other=1"])
  config_files.check_overrides(["azr-train", "--config.a.siz=3"])


@pytest.mark.parametrize(
  "words", [["--config.system=orz"], ["--config.system", "orz"]]
)
def test_another_system_brings_its_section(words):
  words = ["azr-train", TINY, *words, "--config.orz.prompts=3"]
  resolved = config_files.resolve_argument(words)
  config = present(config_files.named(resolved))
  assert config.system == "orz" and "azr" not in config
  assert config.orz.prompts == 128
  assert config.train.steps == 40  # The other sections come from the file.
  config_files.check_overrides(resolved)
  with pytest.raises(UsageError, match="no such key"):
    config_files.check_overrides([*resolved, "--config.azr.prompts=3"])


def test_the_system_of_the_file_changes_nothing():
  words = ["azr-train", TINY, "--config.system=azr"]
  resolved = config_files.resolve_argument(words)
  assert "switched" not in resolved[1]
  assert present(config_files.named(resolved)).azr.prompts == 16


def test_an_unknown_system_is_refused():
  words = ["azr-train", TINY, "--config.system=orzz"]
  resolved = config_files.resolve_argument(words)
  with pytest.raises(Invalid, match="config.system='orzz': expected one of"):
    config_files.check_overrides(resolved)


def test_words_after_two_dashes_are_left_alone(tmp_path):
  launcher = str(ROOT / "launch" / "local_multiprocess.py")
  done = subprocess.run(
    [sys.executable, launcher, "--dry_run", "--processes=1", "--"]
    + ["azr_jax.train", "--config=configs/azr.py:nosuch", "--help"],
    cwd=tmp_path,
    capture_output=True,
    text=True,
    timeout=100,
    check=False,
  )
  assert "azr_jax.train --config=configs/azr.py:nosuch --help" in done.stdout
