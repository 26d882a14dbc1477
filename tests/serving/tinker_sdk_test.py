"""The tinker SDK against a training server that needs no device."""

import gc
import json
import os
import pathlib
import subprocess
import sys

import pytest

from tests.serving import tinker_program
from tests.serving.bigrams import hosted
from tests.serving.tinker_client import NAME
from tests.wheel_test import uv


@pytest.mark.filterwarnings(
  "ignore::ResourceWarning",
  "ignore::pytest.PytestUnraisableExceptionWarning",
)
def test_a_program_of_the_sdk_trains_samples_and_resumes(tmp_path, monkeypatch):
  monkeypatch.setenv("TINKER_TELEMETRY", "0")
  with hosted(tmp_path) as server:
    found = tinker_program.main(server.url, NAME)
  gc.collect()  # The SDK never closes its connections.
  check(found)


def check(found):
  """Checks what a program found."""
  losses = found["losses"]
  assert losses == sorted(losses, reverse=True) and losses[0] > losses[-1]
  assert found["after"] == found["resumed"]
  assert found["after"][0] < losses[-1]
  assert found["forward"] < losses[-1]
  first, again = found["tokens"]
  assert first == again and first[0] != first[1]
  assert found["lora_rank"] == 2
  assert found["path"].endswith("/weights/third")


@pytest.mark.slow
def test_a_program_of_the_oldest_sdk_does_the_same(tmp_path):
  """Its version has an environment of its own."""
  environment = tmp_path / "old"
  python = environment / "bin" / "python"
  uv("venv", "--quiet", "--python", sys.executable, environment)
  uv("pip", "install", "--quiet", "--python", python, "tinker==0.25.0")
  program = pathlib.Path(tinker_program.__file__)
  with hosted(tmp_path / "states") as server:
    done = subprocess.run(
      [python, program, server.url, NAME],
      env=os.environ | {"TINKER_TELEMETRY": "0", "PYTHONPATH": ""},
      stdout=subprocess.PIPE,
      text=True,
      timeout=300,
      check=True,
    )
  found = json.loads(done.stdout)
  assert found["version"] == "0.25.0"
  check(found)
