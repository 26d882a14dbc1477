"""Checks the shapes in signatures at run time.

`conftest.py` hooks `check` into the import of every module of `PACKAGES` whose
signatures state shapes.
"""

import collections.abc
import functools
import operator
import pathlib
import types
import typing

import beartype
import jax
import jaxtyping
import numpy as np

ROOT = pathlib.Path(__file__).parents[1]
PACKAGES = ("learner", "models", "rollout")


def modules():
  """Returns the names of the modules whose signatures state shapes."""
  return [
    f"azr_jax.{package}.{file.stem}"
    for package in PACKAGES
    for file in sorted((ROOT / "azr_jax" / package).glob("*.py"))
    if "\nfrom jaxtyping import" in file.read_text("utf-8")
  ]


def check(function):
  """Returns a function that checks its array arguments.

  Other annotations are left to pyrefly, because tests pass stand-ins. Fields of
  classes are not checked, because JAX builds trees of placeholders.
  """
  if function.__name__ == "__init__":
    return function
  hints = function.__annotations__
  function.__annotations__ = {
    name: _with_host_arrays(hint)
    for name, hint in hints.items()
    if _has_shape(hint)
  }
  return beartype.beartype(function)


def _has_shape(hint):
  if isinstance(hint, type) and issubclass(hint, jaxtyping.AbstractArray):
    return True
  if typing.get_origin(hint) is collections.abc.Callable:
    return False
  return any(map(_has_shape, typing.get_args(hint)))


def _with_host_arrays(hint):
  """Returns a type that also accepts NumPy arrays and numbers."""
  if not _has_shape(hint):
    return hint
  if isinstance(hint, type) and issubclass(hint, jaxtyping.AbstractArray):
    if hint.array_type is not jax.Array:
      return hint
    dtype: typing.Any = hint.dtype
    host = dtype[np.ndarray | np.generic, hint.dim_str]
    either = hint | host
    return either if hint.dims else either | int | float
  origin, parts = typing.get_origin(hint), typing.get_args(hint)
  if origin in (types.UnionType, typing.Union):
    return functools.reduce(operator.or_, map(_with_host_arrays, parts))
  assert origin is not None
  return origin[
    tuple(
      _with_host_arrays(part) if part is ... or _has_shape(part) else typing.Any
      for part in parts
    )
  ]
