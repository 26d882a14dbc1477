"""Which keys `--help`, `--helpfull` and `--changed` list."""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]


def keys(*words):
  """Returns {key: value} from what a command prints about a config."""
  done = subprocess.run(
    [sys.executable, "-m", "azr_jax.train", "--config=configs/orz.py:tiny"]
    + list(words),
    cwd=ROOT,
    capture_output=True,
    text=True,
    check=True,
    timeout=100,
  )
  return dict(re.findall(r"^  ([\w.]+) = (.+)$", done.stdout, re.M))


def test_help_hides_expert_keys_that_have_their_defaults():
  short, full = keys("--help"), keys("--helpfull")
  assert short.items() < full.items()
  assert "learner.estimator" in short and "optimizer.b2" in short
  hidden = full.keys() - short.keys()
  assert {"sharding.mlp", "learner.gspo.clip_low"} <= hidden


def test_changed_lists_what_file_and_flags_change_and_needs_no_other_flag():
  found = keys("--changed", "--config.learner.gspo.clip_low=0.01")
  assert found["learner.gspo.clip_low"] == "0.01"
  assert found["optimizer.b2"] == "0.95"
  assert "learner.gspo.clip_high" not in found
