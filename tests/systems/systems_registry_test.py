"""External systems: found by module or file, with or without settings."""

import dataclasses
import sys
from typing import Any

import pytest

from azr_jax.config.settings import Invalid
from azr_jax.systems import registry
from azr_jax.systems.system import StepLoad
from azr_jax.trainer import settings

SYSTEM = """
from azr_jax.systems.system import System

class Plain(System):
  name = "plain"

  def collect(self, policy, step):
    raise NotImplementedError

class Other:
  pass

class Nameless(System):
  def collect(self, policy, step):
    raise NotImplementedError
"""


@pytest.fixture(name="file")
def make_file(tmp_path, monkeypatch):
  """Writes a system to a file; unloads its module after the test."""
  path = tmp_path / "plain_system.py"
  path.write_text(SYSTEM)
  monkeypatch.setattr(sys, "path", [*sys.path])
  yield path
  sys.modules.pop(path.stem, None)


@pytest.mark.parametrize("name", registry.SYSTEMS)
def test_every_system_is_loaded_by_its_name(name):
  assert registry.load(name).name == name


def test_a_step_of_groups_trains_on_all_that_it_samples():
  load = StepLoad.of_groups(prompts=3, group_size=4)
  assert (load.prompts, load.sequences, load.trained) == (3, 12, 12)


def test_a_system_needs_no_settings(file):
  config = settings.train_config(f"{file}:Plain")
  assert config.plain.to_dict() == {}
  checked = settings.read_train(config)
  assert checked.system.name == "plain"
  made: Any = checked.system_settings
  assert dataclasses.fields(made) == ()
  config.plain.size = 3
  with pytest.raises(Invalid, match="config.plain.size is an unknown key"):
    settings.read_train(config)


def test_a_module_is_found_by_its_dotted_name(file, monkeypatch):
  monkeypatch.syspath_prepend(str(file.parent))
  assert registry.load("plain_system:Plain").name == "plain"


@pytest.mark.parametrize(
  "name, message",
  [
    ("azzr", "system='azzr': expected one of ('azr', 'countdown'"),
    ("nosuch.module:Plain", "No module named 'nosuch'"),
    ("FOLDER/nosuch.py:Plain", "nosuch.py"),
    ("FOLDER/plain_system.py:Nosuch", "has no function or class 'Nosuch'"),
    ("FOLDER/plain_system.py:Other", "this is not a subclass of it"),
    ("FOLDER/plain_system.py:System", "this lacks collect, name"),
    ("FOLDER/plain_system.py:Nameless", "this lacks name"),
  ],
)
def test_what_is_no_system_is_refused(file, name, message):
  with pytest.raises(Invalid) as caught:
    registry.load(name.replace("FOLDER", str(file.parent)))
  assert message in str(caught.value)


def test_two_files_of_one_name_hold_two_systems(file, tmp_path):
  assert registry.load(f"{file}:Plain").name == "plain"
  for twin in (tmp_path / "twin" / file.name, tmp_path / "json.py"):
    twin.parent.mkdir(exist_ok=True)
    twin.write_text(SYSTEM.replace('"plain"', '"twin"'))
    assert registry.load(f"{twin}:Plain").name == "twin"
