"""The executor for grader tests."""

import pytest

from azr_jax.executor import Executor


@pytest.fixture(name="executor", scope="session")
def make_executor():
  with Executor(workers=1, timeout_s=5.0, memory_mb=1024) as executor:
    yield executor
