"""Draws the time step between the clocks of a job's runs (`clocks.py`).

Both one step and two steps change the year, month, day of the month, weekday,
hour, minute and second. The step is drawn for each job, so a program cannot
subtract it.
"""

import random

_DAY_S = 86_400
# Adding one of these once or twice, with up to two extra days, changes every
# part of any date.
DAYS = (
  *(400, 401, 403, 404, 407, 408, 414, 415, 417, 418, 421, 422),
  *(429, 431, 432, 435, 436, 438, 443, 445, 446, 449, 450, 452),
)
# Excludes steps that, alone or doubled and with a carry, keep the hour.
HOURS = (*range(1, 11), *range(12, 23))
MINUTES = range(31, 59)
SECONDS = range(1, 30)


def draw(source: random.Random | None = None) -> int:
  """Returns a step in seconds.

  Args:
    source: the random generator. None uses the operating system's randomness,
      which nobody can predict.
  """
  choose = (source or random.SystemRandom()).choice
  minutes = choose(HOURS) * 60 + choose(MINUTES)
  return choose(DAYS) * _DAY_S + minutes * 60 + choose(SECONDS)
