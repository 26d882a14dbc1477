"""Functions that users bring, called in processes of their own.

`spec.py` says how a function is found, `by_value.py` takes one out of a
notebook, `pool.py` calls it with a limit of time, `worker.py` is the program of
a process. This package imports no JAX.
"""
