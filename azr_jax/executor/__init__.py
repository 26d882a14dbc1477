"""The sandboxed Python pool. Imports no JAX and knows no task."""

from azr_jax.executor.job import Job, Result
from azr_jax.executor.pool import Executor

__all__ = ["Executor", "Job", "Result"]
