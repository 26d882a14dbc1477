"""Logical names of parameter axes."""

from typing import cast

import flax.linen as nn


def named(
  initializer: nn.initializers.Initializer, axes: tuple[str | None, ...]
) -> nn.initializers.Initializer:
  """Returns an initializer that boxes its array with logical axis names."""
  boxed = nn.with_logical_partitioning(initializer, axes)
  # `Module.param` opens the box, so modules see an array.
  return cast(nn.initializers.Initializer, boxed)
