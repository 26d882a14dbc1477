"""Entries of reasoning-gym's sets, others for every seed."""

import importlib
from collections.abc import Iterator, Mapping
from typing import Any

# The library draws entry i of a set from its seed + i; seeds side by side
# would give the same entries, shifted.
STRIDE = 10_000_000
MOST_SEEDS = 400  # Some sets draw by NumPy, whose seeds end at 2**32.


def entries(
  name: str, count: int, seed: int, settings: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
  """Yields entries of a set; those of two seeds are drawn independently.

  Args:
    name: of the set.
    count: how many, at most `STRIDE`.
    seed: which entries, below `MOST_SEEDS`; a `seed` among the settings is
      taken instead.
    settings: of the set, where they are not its own.

  Raises:
    ValueError: reasoning-gym is not installed, it has no such set, a setting
      or the seed is not what it expects.
  """
  try:
    reasoning_gym: Any = importlib.import_module("reasoning_gym")
  except ImportError:
    raise ValueError(
      f"gym:{name}: needs `pip install -e '.[gym]'` (reasoning-gym)"
    ) from None
  settings = {"seed": seed} | dict(settings)
  seed = settings.pop("seed")
  if not 0 <= seed < MOST_SEEDS or count > STRIDE:
    raise ValueError(
      f"gym:{name}: seed={seed}, count={count}: expected a seed from 0 to "
      f"{MOST_SEEDS - 1} and at most {STRIDE} entries"
    )
  try:
    made = reasoning_gym.create_dataset(
      name, size=count, seed=seed * STRIDE, **settings
    )
  except (ValueError, TypeError, AssertionError) as error:
    raise ValueError(f"gym:{name}: {error}; expected other settings") from None
  for index in range(count):
    yield made[index]
