"""Checks the shapes in signatures and fields at run time.

`conftest.py` hooks `check` into the import of every module that states shapes.
"""

import collections.abc
import functools
import inspect
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
# Attention also holds these for one layer, or with two axes swapped.
_OTHER_LAYOUTS = ("Pool", "Entries")


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

  def make_wrapper(*context, **options):
    if context:  # `jaxtyped("context")`
      return wrap(*context)
    return functools.partial(wrap_shapes, **options)

  # Modules of the hook look it up here.
  setattr(jaxtyping, wrap.__name__, make_wrapper)
  jaxtyping.install_import_hook(modules(), "shape_checks.check")


def check(function):
  """Returns a function that checks its array arguments.

  Other annotations are left to pyrefly, because tests pass stand-ins. Fields of
  a pytree are checked where all of them have values, because JAX also builds
  trees of placeholders and, while tracing, of arrays with fewer or more axes.
  """
  hints = function.__annotations__
  function.__annotations__ = {
    name: _with_host_arrays(hint)
    for name, hint in hints.items()
    if _has_shape(hint)
  }
  names = function.__annotations__.keys()
  checked = beartype.beartype(function)
  if function.__name__ != "__init__":
    return checked
  signature = inspect.signature(function)

  @functools.wraps(function)
  def check_fields(self, *args, **kwargs):
    fields = signature.bind(self, *args, **kwargs).arguments
    leaves = jax.tree.leaves([fields.get(name) for name in names])
    is_checked = leaves and all(map(_is_concrete, leaves))
    if not isinstance(self, flax.struct.PyTreeNode) or (
      is_checked and type(self).__name__ not in _OTHER_LAYOUTS
    ):
      checked(self, *args, **kwargs)

  return check_fields


def _is_concrete(leaf):
  return isinstance(leaf, np.ndarray | np.generic) or (
    isinstance(leaf, jax.Array) and not isinstance(leaf, jax.core.Tracer)
  )


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
