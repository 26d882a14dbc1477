"""Dockerfiles, parsed by `dockerfile-parse`: what they copy and install."""

import json
import re
import shlex

import dockerfile_parse
import pytest
import training

FILES = sorted((training.ROOT / "launch" / "docker").glob("*.Dockerfile"))


def _name(path):
  return path.name


def _read(path, tmp_path):
  # The parser reads and writes a file named Dockerfile in a folder.
  (tmp_path / "Dockerfile").write_text(path.read_text())
  return dockerfile_parse.DockerfileParser(str(tmp_path))


def _values(parser, instruction):
  return [
    step["value"]
    for step in parser.structure
    if step["instruction"] == instruction
  ]


@pytest.mark.parametrize("path", FILES, ids=_name)
def test_an_image_copies_what_is_there_and_runs_as_nobody(path, tmp_path):
  parser = _read(path, tmp_path)
  assert re.fullmatch(r"python:3\.\d+-slim-bookworm", parser.baseimage)
  copied = {
    word for value in _values(parser, "COPY") for word in value.split()[:-1]
  }
  assert copied >= {"setup.py", "azr_jax", "configs", "README.md"}
  assert all((training.ROOT / word).exists() for word in copied)
  assert _values(parser, "USER") == ["1000"]
  assert "--uid 1000" in " ".join(_values(parser, "RUN"))


@pytest.mark.parametrize("path", FILES, ids=_name)
def test_the_extras_of_an_image_exist(path, tmp_path):
  setup = (training.ROOT / "setup.py").read_text()
  runs = " ".join(_values(_read(path, tmp_path), "RUN"))
  for names in re.findall(r"\.\[([\w,]+)\]", runs):
    for name in names.split(","):
      assert f'    "{name}": ' in setup


def test_the_gpu_image_runs_a_module(tmp_path):
  gpu = _read(training.ROOT / "launch" / "docker" / "gpu.Dockerfile", tmp_path)
  assert json.loads(_values(gpu, "ENTRYPOINT")[0]) == ["python", "-m"]
  assert json.loads(gpu.cmd) == ["azr_jax.train", "--help"]
  assert gpu.envs["NVIDIA_DRIVER_CAPABILITIES"] == "compute,utility"


def test_an_executor_node_has_what_scripts_may_import(tmp_path):
  path = training.ROOT / "launch" / "docker" / "executor.Dockerfile"
  executor = _read(path, tmp_path)
  (installs, _) = _values(executor, "RUN")
  words = shlex.split(installs)
  assert "--no-deps" in words and "ray==${RAY}" in words
  setup = (training.ROOT / "setup.py").read_text()
  block = setup.partition("SCRIPTS_REQUIRES = [")[2].partition("]")[0]
  assert {*re.findall(r'"([^"]+)"', block)} <= {*words}
