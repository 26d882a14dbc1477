"""One pool for the graders' tests."""

import pytest

from azr_jax.executor import Executor


@pytest.fixture(scope="session")
def executor():
  with Executor(workers=1, timeout_s=1.0, memory_mb=256) as pool:
    yield pool
