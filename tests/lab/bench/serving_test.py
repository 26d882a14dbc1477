"""Tests the server under the benchmark's clients, some of which abort."""

import json
import subprocess
import sys

import pytest
import training

pytest.importorskip("aiohttp", reason="needs the extra serve")


@pytest.mark.slow
def test_every_client_gets_the_sampler_s_own_tokens():
  done = subprocess.run(
    [sys.executable, "-m", "azr_jax.benchmark", "serve", "--clients=12"]
    + ["--seconds=6", "--questions=16", "--new_tokens=16", "--slots=8"]
    + ["--cut=0.3"],
    cwd=training.ROOT,
    env=training.environment(),
    capture_output=True,
    text=True,
    check=False,
  )
  assert done.returncode == 0, done.stderr[-2000:]
  found = json.loads(done.stdout)
  assert found["failed"] == 0 and found["cut"] > 0
  assert found["same"] > 16 and found["different"] == 0
