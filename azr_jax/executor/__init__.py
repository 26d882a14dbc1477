"""A sandboxed pool that runs Python programs; it knows no JAX and no task."""

from azr_jax.executor.executor import Executor
from azr_jax.executor.job import Job, Result

__all__ = ["Executor", "Job", "Result"]
