"""Checks at run time the shapes that signatures state.

`conftest.py` hooks `check` into the import of every module of `PACKAGES` that
has such signatures.
"""

import pathlib
import typing

import beartype
import jaxtyping

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
  """Returns a function that checks its arguments that have a shape.

  Other annotations are left to pyrefly, because tests pass stand-ins. Fields of
  classes are not checked, because JAX makes trees of placeholders.
  """
  if function.__name__ == "__init__":
    return function
  hints = function.__annotations__
  function.__annotations__ = {
    name: hint for name, hint in hints.items() if _has_shape(hint)
  }
  return beartype.beartype(function)


def _has_shape(hint):
  if isinstance(hint, type) and issubclass(hint, jaxtyping.AbstractArray):
    return True
  return any(map(_has_shape, typing.get_args(hint)))
