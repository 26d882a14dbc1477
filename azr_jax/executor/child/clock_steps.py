"""Draws by how much the clocks of a job's runs differ (`clocks.py`).

A step leads to another year, month, day of the month and of the week, hour,
minute and second, after one step and after two. It is drawn for each job, so a
program cannot undo it.
"""

import random

_DAY_S = 86_400
# One or two of these steps, and up to two more days, change every part of any
# date.
DAYS = (
  *(400, 401, 403, 404, 407, 408, 414, 415, 417, 418, 421, 422),
  *(429, 431, 432, 435, 436, 438, 443, 445, 446, 449, 450, 452),
)
# None of these is 0 or, after carries, as much as a whole turn of its hand.
HOURS = (*range(1, 11), *range(12, 23))
MINUTES = range(31, 59)
SECONDS = range(1, 30)


def draw(source: random.Random | None = None) -> int:
  """Returns a step in seconds.

  Args:
    source: draws it. None: the operating system, so that nobody can guess it.
  """
  choose = (source or random.SystemRandom()).choice
  minutes = choose(HOURS) * 60 + choose(MINUTES)
  return choose(DAYS) * _DAY_S + minutes * 60 + choose(SECONDS)
