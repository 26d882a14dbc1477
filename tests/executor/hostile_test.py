"""The hostile programs, in every environment that an executor may meet.

`hostile_run.py` runs them all once per environment, in a process of its own.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from tests.executor.hostile_programs import CASES

REPOSITORY = pathlib.Path(__file__).parents[2]
NOBODY = 65534
LIMIT_S = 180
# Walls left out, by environment.
ENVIRONMENTS = {
  "every_wall": (),
  "unprivileged_user": (),
  "without_landlock": ("landlock",),
  "without_namespaces": ("namespaces",),
  "without_both": ("landlock", "namespaces"),
}


def command(python, *flags):
  return [python, "-m", "tests.executor.hostile_run", *flags]


def run(*flags, python=sys.executable, **options):
  """Runs the script; returns its report."""
  done = subprocess.run(
    command(python, *flags),
    capture_output=True,
    cwd=REPOSITORY,
    env={
      "PATH": os.environ["PATH"],
      "PYTHONPATH": str(REPOSITORY),
      "PYTHONDONTWRITEBYTECODE": "1",
    },
    text=True,
    timeout=LIMIT_S,
    **options,
  )
  assert done.returncode == 0, done.stderr
  return json.loads(done.stdout)


def run_as_nobody(*flags):
  """The same as a user without rights, with a Python that it may run."""
  if os.getuid() != 0:
    pytest.skip("only root can become another user; this user is none")
  nobody = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
  for python in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
    try:
      return run(*flags, "--help", python=python, **nobody)
    except (OSError, AssertionError):
      continue
  pytest.skip("no Python here that an unprivileged user may run")
