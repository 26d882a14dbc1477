"""Entries of reasoning-gym's sets; different seeds give different entries."""

import contextlib
import dataclasses
import difflib
import importlib
import io
import random
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from azr_jax.config import extras

# The library draws entry i of a set with seed + i. Adjacent seeds would give
# the same entries, shifted; therefore seeds are multiplied by this number.
SEED_STRIDE = 10_000_000
# Some sets use NumPy seeds, which must be below 2**32.
MAX_SEEDS = 400
# The entries of these sets show what a program gave. Where it draws from
# generators of the process, nobody can find that out.
_OF_PROGRAMS = ("codeio",)


def entries(
  name: str, count: int, seed: int, settings: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
  """Yields entries of a set; the entries of two seeds are independent.

  Args:
    name: the name of the set.
    count: number of entries, at most `SEED_STRIDE`.
    seed: seed for the entries, below `MAX_SEEDS`; a `seed` in `settings`
      replaces it.
    settings: settings of the set that replace its defaults.

  Yields:
    The entries, except those of programs with random output.

  Raises:
    ValueError: reasoning-gym is not installed or has no such set, or the seed,
      the count or a setting is not allowed.
  """
  chosen = open_set(name, count, seed, settings)
  for index in range(count):
    entry = chosen.entry(index)
    if name in _OF_PROGRAMS and repr(chosen.entry(index, 1)) != repr(entry):
      continue
    yield entry


@dataclasses.dataclass(frozen=True)
class GymSet:
  """A set of reasoning-gym with its settings.

  Attributes:
    dataset: the library's object, which also scores answers.
    first: the number of the first entry, by which it is seeded.
  """

  dataset: Any
  first: int

  def entry(self, index: int, shift: int = 0) -> dict[str, Any]:
    """Returns an entry; `shift` changes the seed of the process's generators.

    It changes nothing but the output of programs that draw from them.
    """
    with _alone(self.first + index + shift):
      return self.dataset[index]


def open_set(
  name: str, count: int, seed: int, settings: Mapping[str, Any]
) -> GymSet:
  """Returns a set; arguments and errors are those of `entries`."""
  try:
    with warnings.catch_warnings():
      # Compiling the package for the first time shows its SyntaxWarnings.
      warnings.simplefilter("ignore", SyntaxWarning)
      reasoning_gym: Any = importlib.import_module("reasoning_gym")
  except ModuleNotFoundError as error:
    raise ValueError(
      f"gym:{name}: {extras.missing(error.name or '')}"
    ) from None
  sets = reasoning_gym.factory.DATASETS
  if name not in sets:
    near = difflib.get_close_matches(name, sets, 3)
    raise ValueError(
      f"gym:{name}: reasoning-gym has no such set: expected one of its "
      f"{len(sets)}" + (f", such as {', '.join(near)}" if near else "")
    )
  settings = {"seed": seed} | dict(settings)
  seed = settings.pop("seed")
  if not 0 <= seed < MAX_SEEDS or count > SEED_STRIDE:
    raise ValueError(
      f"gym:{name}: seed={seed}, count={count}: expected a seed from 0 to "
      f"{MAX_SEEDS - 1} and at most {SEED_STRIDE} entries"
    )
  try:
    dataset = reasoning_gym.create_dataset(
      name, size=count, seed=seed * SEED_STRIDE, **settings
    )
  except (ValueError, TypeError, AssertionError) as error:
    raise ValueError(f"gym:{name}: {error}; expected other settings") from None
  return GymSet(dataset, seed * SEED_STRIDE)


@contextlib.contextmanager
def _alone(number: int) -> Iterator[None]:
  """Isolates an entry from the process's random generators and stdout.

  `list_functions` draws from Python's own generator, programs of `codeio` from
  this one and from NumPy's; both are seeded here. `bf` prints a dot for each
  program.
  """
  state, numpy_state = random.getstate(), np.random.get_state()
  random.seed(number)
  np.random.seed(number)
  try:
    with contextlib.redirect_stdout(io.StringIO()):
      yield
  finally:
    random.setstate(state)
    np.random.set_state(numpy_state)
