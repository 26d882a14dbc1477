"""Which keys `--help`, `--helpfull` and `--changed` list."""

import json
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PROGRAM = pathlib.Path(__file__).with_name("misuse_program.py")
TRAIN = "train", "--config=configs/orz.py:tiny"
FLAGS = {
  "help": ("--help",),
  "helpfull": ("--helpfull",),
  "changed": ("--changed", "--config.learner.gspo.clip_low=0.01"),
}


@pytest.fixture(scope="module")
def keys():
  """Returns the {key: value} that each of `FLAGS` prints about a config."""
  done = subprocess.run(
    [sys.executable, str(PROGRAM)],
    cwd=ROOT,
    input=json.dumps([[*TRAIN, *words] for words in FLAGS.values()]),
    capture_output=True,
    text=True,
    check=True,
    timeout=100,
  )
  found = {}
  for name, (code, errors, output) in zip(
    FLAGS, json.loads(done.stdout), strict=True
  ):
    assert not code, errors
    found[name] = dict(re.findall(r"^  ([\w.]+) = (.+)$", output, re.M))
  return found


def test_help_hides_expert_keys_that_have_their_defaults(keys):
  short, full = keys["help"], keys["helpfull"]
  assert short.items() < full.items()
  assert "learner.estimator" in short and "optimizer.b2" in short
  hidden = full.keys() - short.keys()
  assert {"sharding.mlp", "learner.gspo.clip_low"} <= hidden


def test_changed_lists_what_file_and_flags_change_and_needs_no_other_flag(keys):
  found = keys["changed"]
  assert found["learner.gspo.clip_low"] == "0.01"
  assert found["optimizer.b2"] == "0.95"
  assert "learner.gspo.clip_high" not in found
