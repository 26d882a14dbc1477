"""Pickles functions for worker processes; notebook functions by value.

A pickle refers to a function by its module, which the worker imports. Functions
and classes of `__main__`, closures, and what `config.named` loaded from a file
cannot be imported, so cloudpickle sends their code and the variables they read.

Workers start by exec. A fork would need no pickles, but JAX runs threads: a
forked process may inherit a lock that nobody releases, and it shares its
parent's devices.
"""

import pickle
import sys
from typing import Any

import cloudpickle

from azr_jax.config import named


def dumps(value: Any) -> bytes:
  """Returns a pickle that another process with the same Python can load.

  Raises:
    TypeError: the function needs something that cannot be pickled, such as an
      open file or a lock. The message names the function.
  """
  for name, module in list(sys.modules.items()):
    if name.startswith(named.FILE_MODULE):
      cloudpickle.register_pickle_by_value(module)
  try:
    return cloudpickle.dumps(value)
  except (TypeError, AttributeError, ValueError, pickle.PicklingError) as error:
    name = getattr(value, "__name__", repr(value)[:80])
    line = " ".join(str(error).split())[:200]
    raise TypeError(
      f"{name} cannot be sent to another process ({line}): expected a function "
      "that needs no open files, locks or devices; create them in its first "
      "call, or move it to a file and pass FILE.py:NAME"
    ) from error


def loads(data: bytes) -> Any:
  """Loads a pickle from `dumps`. Only for data of this user's own processes."""
  return pickle.loads(data)
