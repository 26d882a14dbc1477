"""The numbers of a step's `policy.sample` calls."""

import enum


class AZRCall(enum.IntEnum):
  """A part of the random keys. Calls with smaller numbers get slots first."""

  PROPOSE = 0
  LEARN = 1
  SOLVE = 2
  VOTE = 3
  GUIDE = 4
