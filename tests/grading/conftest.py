"""The pool of the graders' tests."""

import pytest

from azr_jax.executor import Executor


@pytest.fixture(scope="session")
def executor():
  """Starts a pool with a short time limit, because some answers never end."""
  with Executor(workers=2, timeout_s=1.0, memory_mb=512) as pool:
    yield pool
