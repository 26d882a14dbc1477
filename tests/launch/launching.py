"""Runs the scripts of `launch/` as a user does."""

import subprocess
import sys

import train_test


def launch(script, workdir, *flags):
  """Runs a script to its end; does not mind how it ends."""
  return subprocess.run(
    [sys.executable, f"launch/{script}.py", f"--workdir={workdir}", *flags],
    cwd=train_test.ROOT,
    capture_output=True,
    text=True,
    check=False,
  )
