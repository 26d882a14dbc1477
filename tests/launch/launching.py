"""Runs the scripts of `launch/` in a process, as a user does."""

import json
import subprocess
import sys
import time

import training

# A quota of 128 chips of v5e in one zone, and of none in another.
QUOTA = json.dumps(
  {
    "dimensionsInfos": [
      {
        "dimensions": {"zone": "us-west4-a"},
        "details": {"value": "128"},
        "applicableLocations": ["us-west4-a"],
      },
      {"details": {"value": "0"}, "applicableLocations": ["us-east1-c"]},
    ]
  }
)


def launch(script, workdir, *flags):
  """Runs a script to its end and returns its output and exit status."""
  return subprocess.run(
    [sys.executable, f"launch/{script}.py", f"--workdir={workdir}", *flags],
    cwd=training.ROOT,
    capture_output=True,
    text=True,
    check=False,
  )


def wait_until(condition):
  """Returns as soon as a condition holds; fails after a minute."""
  deadline = time.monotonic() + 60
  while not condition():
    assert time.monotonic() < deadline
    time.sleep(0.02)
