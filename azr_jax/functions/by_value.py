"""Pickles functions for worker processes, those of notebooks by their code.

A pickle names a function by its module, which a worker process imports.
Functions and classes of `__main__` and closures have no such name, so
cloudpickle sends their code and the variables that it reads.

Workers start by exec. A fork would need no pickles, but JAX runs threads: a
forked process may inherit a lock that nobody releases, and it shares the
devices of its parent.
"""

import pickle
from typing import Any

import cloudpickle


def dumps(value: Any) -> bytes:
  """Returns a pickle that another process with the same Python can load.

  Raises:
    TypeError: the function needs something that cannot be pickled, such as an
      open file or a lock; the message names the function.
  """
  try:
    return cloudpickle.dumps(value)
  except (TypeError, AttributeError, ValueError, pickle.PicklingError) as error:
    name = getattr(value, "__name__", repr(value)[:80])
    line = " ".join(str(error).split())[:200]
    raise TypeError(
      f"{name} cannot be sent to another process ({line}): expected a function "
      "that needs no open files, locks or devices; it can make them in its "
      "first call, or lie in a file of its own, given as FILE.py:NAME"
    ) from error


def loads(data: bytes) -> Any:
  """Loads what `dumps` pickled; call it only on data of this user's process."""
  return pickle.loads(data)
