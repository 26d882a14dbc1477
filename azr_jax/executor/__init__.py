"""A sandboxed pool that runs Python programs, independent of JAX and tasks."""

from azr_jax.executor.job import Job, Result
from azr_jax.executor.pool.executor import Executor

__all__ = ["Executor", "Job", "Result"]
