"""The sandboxed Python pool. Imports no JAX and knows no task."""

from azr_jax.executor.executor import Executor
from azr_jax.executor.job import Job, Result

__all__ = ["Executor", "Job", "Result"]
