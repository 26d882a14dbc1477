"""Functions that users bring, called in processes of their own.

`spec.py` says how a function is found, `by_value.py` takes one out of a
notebook, `pool.py` calls it with limits of time and memory, `worker.py` is the
program of a process, and `keeper.py` ends what it leaves. This package imports
no JAX.
"""
