"""The commands of an installation, their list and their versions."""

import contextlib
import re
import subprocess
import sys

import pytest
import setup_file

import azr_jax
from azr_jax import __main__ as listing
from azr_jax.cli import commands, errors, front
from azr_jax.config import extras


def test_setup_and_the_list_have_the_same_commands(monkeypatch, capsys):
  scripts = setup_file.arguments()["entry_points"]["console_scripts"]
  names = re.findall(r"^azr-([\w-]+)=", "\n".join(scripts), re.MULTILINE)
  assert names == list(commands.COMMANDS)
  monkeypatch.setattr(sys, "argv", ["azr_jax"])
  listing.run()
  shown = capsys.readouterr().out
  lines = re.findall(r"^azr-([\w-]+) +(.+[.])$", shown, re.MULTILINE)
  assert [name for name, _ in lines] == names
  assert all(len(line) <= 100 for line in shown.splitlines())


def test_a_command_of_the_list_names_its_own_script(monkeypatch, capsys):
  monkeypatch.setattr(sys, "argv", ["azr_jax", "train", "--config=a.py"])
  with pytest.raises(SystemExit):
    listing.run()
  shown = capsys.readouterr().err
  assert "expected `azr-train` or `python -m azr_jax.train`" in shown


def test_a_start_does_not_wait_for_what_few_runs_need():
  """These take a tenth of the time to the first line of a command."""
  program = """
import sys, azr_jax.train, azr_jax.evaluate, azr_jax.sft, azr_jax.serve
from azr_jax.systems.azr import system
unwanted = "tensorflow_datasets", "torch", "transformers", "scipy.cluster"
print({*unwanted} & {*sys.modules})
"""
  done = subprocess.run(
    [sys.executable, "-c", program], capture_output=True, text=True, check=True
  )
  assert done.stdout == "set()\n"


@pytest.mark.parametrize(
  "command",
  [
    lambda: front.run("What it does.", lambda: None),
    lambda: errors.guard(lambda: errors.Parser("What it does.").parse_args()),
  ],
)
def test_a_command_tells_its_version(command, monkeypatch, capsys):
  monkeypatch.setattr(sys, "argv", ["command", "--version"])
  monkeypatch.setattr(front.library_noise, "silence", lambda: None)
  with contextlib.suppress(SystemExit):
    command()
  assert capsys.readouterr().out == f"azr_jax {azr_jax.__version__}\n"


def test_an_extra_that_is_named_exists():
  extra = setup_file.arguments()["extras_require"]
  for module, name in extras.EXTRAS.items():
    assert name in extra, module
  everything = " ".join(word for words in extra.values() for word in words)
  # Not all can be installed at once: gem-llm pins another version.
  assert "gem-llm" not in " ".join(extra["environments"] + extra["test"])
  assert "gem-llm" in everything
