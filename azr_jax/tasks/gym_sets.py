"""Generates entries of reasoning-gym's datasets ("sets").

Different seeds give independent entries.
"""

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

# The library seeds entry i with seed + i, so adjacent seeds would give the same
# entries, shifted by one. Multiplying seeds by this number keeps them apart.
SEED_STRIDE = 10_000_000
# Some sets use NumPy seeds, which must be below 2**32.
MAX_SEEDS = 400
# Entries of these sets ask about the output of a program. If the program draws
# from the process's random generators, the output is unpredictable.
_OF_PROGRAMS = ("codeio",)


def entries(
  name: str, count: int, seed: int, settings: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
  """Yields entries of a set, skipping programs with random output.

  Args:
    count: the number of entries to generate, at most `SEED_STRIDE`.
    seed: the seed, below `MAX_SEEDS`. A `seed` in `settings` takes precedence.
    settings: settings that override the set's defaults.

  Raises:
    ValueError: reasoning-gym is not installed or has no such set, or the seed,
      the count or a setting is invalid.
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
    dataset: the library's dataset, which also scores answers.
    first: the library's seed of entry 0; entry i has seed `first + i`.
  """

  dataset: Any
  first: int

  def entry(self, index: int, shift: int = 0) -> dict[str, Any]:
    """Returns an entry.

    `shift` offsets the seed of the process's random generators. It affects only
    programs that draw from these generators.
    """
    with _alone(self.first + index + shift):
      return self.dataset[index]


def open_set(
  name: str, count: int, seed: int, settings: Mapping[str, Any]
) -> GymSet:
  """Creates a set. Arguments and errors are the same as for `entries`."""
  try:
    with warnings.catch_warnings():
      # The package has SyntaxWarnings, shown when it is first compiled.
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

  `list_functions` draws from Python's global generator, and programs of
  `codeio` draw from Python's and NumPy's. Both are seeded with `number`, then
  restored. Stdout is hidden because `bf` prints a dot per program.
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
