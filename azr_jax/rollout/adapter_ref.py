"""Which adapter of a sampler samples a request."""

from typing import NamedTuple


class AdapterRef(NamedTuple):
  """An adapter that a sampler holds.

  Attributes:
    index: its index among the stacked adapters.
    number: counts the adapters that were loaded. The keys and values of an
      adapter that was replaced are never read, because its successor at the
      same index has another number.
  """

  index: int
  number: int


# The base model, whose adapter is 0; also the one adapter of a sampler that
# holds no stack.
BASE = AdapterRef(0, 0)
