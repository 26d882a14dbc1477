"""Functions that users bring, called in processes of their own.

`spec.py` says how a function is found, `by_value.py` sends one from a
notebook, `pool.py` calls it within limits of time and memory, `worker.py` is
the program of a worker process, and `keeper.py` ends the worker and its
children. This package does not import JAX.
"""
