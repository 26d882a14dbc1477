"""User functions, called in separate processes.

`spec.py` finds a function, `by_value.py` sends one from a notebook, `pool.py`
calls it within time and memory limits, `worker.py` is the program of a worker
process, and `keeper.py` ends the worker and its children. This package does not
import JAX.
"""
