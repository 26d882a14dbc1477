"""One pool for the executor's tests; every test must leave it usable."""

import pytest

from azr_jax.executor import Executor, Job


@pytest.fixture(scope="session")
def executor():
  with Executor(workers=1, timeout_s=1.0, memory_mb=256) as pool:
    yield pool


@pytest.fixture
def run(executor):
  """Runs a program on inputs; the keywords are those of `Job`."""

  def run_program(code, *inputs, **options):
    job = Job("job", code, inputs or ("",), **options)
    return executor.submit(job).result(timeout=60)

  return run_program
