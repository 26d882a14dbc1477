"""Checks the shapes in signatures and fields at run time.

`conftest.py` hooks `check` into the import of every module that states shapes.
"""

import collections.abc
import functools
import operator
import pathlib
import types
import typing

import beartype
import flax.struct
import jax
import jaxtyping
import numpy as np

ROOT = pathlib.Path(__file__).parents[1]


def modules():
  """Returns the names of the modules that state shapes."""
  return [
    ".".join(file.relative_to(ROOT).with_suffix("").parts)
    for file in sorted((ROOT / "azr_jax").rglob("*.py"))
    if "\nfrom jaxtyping import" in file.read_text("utf-8")
  ]


def install():
  """Hooks the checks into the imports of these modules.

  Jaxtyping would wrap all of their functions. That costs a tenth of the tests'
  time, so functions and dataclasses without shapes stay as they are.
  """
  wrap = jaxtyping.jaxtyped

  def wrap_shapes(target, *, typechecker):
    function = target.__init__ if isinstance(target, type) else target
    hints = getattr(function, "__annotations__", {})
    if not any(map(_has_shape, hints.values())):
      return target
    return wrap(target, typechecker=typechecker)

  def make_wrapper(*, typechecker):
    return functools.partial(wrap_shapes, typechecker=typechecker)

  # Modules of the hook look it up here.
  setattr(jaxtyping, wrap.__name__, make_wrapper)
  jaxtyping.install_import_hook(modules(), "shape_checks.check")


def check(function):
  """Returns a function that checks its array arguments.

  Other annotations are left to pyrefly, because tests pass stand-ins. Fields of
  pytrees are not checked, because JAX builds trees of placeholders.
  """
  hints = function.__annotations__
  function.__annotations__ = {
    name: _with_host_arrays(hint)
    for name, hint in hints.items()
    if _has_shape(hint)
  }
  checked = beartype.beartype(function)
  if function.__name__ != "__init__":
    return checked

  @functools.wraps(function)
  def check_fields(self, *args, **kwargs):
    if not isinstance(self, flax.struct.PyTreeNode):
      checked(self, *args, **kwargs)

  return check_fields


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
