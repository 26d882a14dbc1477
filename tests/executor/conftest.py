"""Fixtures: a pool shared by all tests, which must leave it usable."""

import pytest

from azr_jax.executor import Executor, Job


@pytest.fixture(scope="session")
def executor():
  with Executor(workers=1, timeout_s=0.5, memory_mb=256) as pool:
    yield pool


@pytest.fixture
def run(executor):
  """Returns a function that runs a program on inputs.

  Its keyword arguments are fields of `Job`.
  """

  def run_program(code, *inputs, **options):
    job = Job("job", code, inputs or ("",), **options)
    return executor.submit(job).result(timeout=60)

  return run_program
