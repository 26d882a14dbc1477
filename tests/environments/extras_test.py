"""The packages of extras are imported where they are asked for."""

import subprocess
import sys

import training

PROGRAM = """
import sys
for name in ("httpx", "openai", "verifiers", "gem", "reasoning_gym", "aiohttp"):
  sys.modules[name] = None  # Importing it fails.
from azr_jax.configs import environment
from azr_jax.systems import registry
from azr_jax.trainer import settings
assert registry.healthy_metrics()
settings.read_train(environment.get_config("tiny"))
import azr_jax.report.__main__
"""


def test_reports_and_environments_of_ones_own_need_no_extra():
  done = subprocess.run(
    [sys.executable, "-c", PROGRAM],
    cwd=training.ROOT,
    env=training.environment(),
    capture_output=True,
    text=True,
    check=False,
  )
  assert done.returncode == 0, done.stderr[-2000:]
