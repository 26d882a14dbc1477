"""Which hash seeds programs run with.

The order of a set of texts depends on the seed, so runs of a job with different
seeds show whether its value does. How many sets of random words have the same
order with two of the seeds, and with all three:

| words | two seeds | three seeds |
| --- | --- | --- |
| 2 | 49 % | 24 % |
| 3 | 17 % | 3 % |
| 4 | 4 % | 0.1 % |

The job alone determines its seeds. So a verdict does not depend on the
machine's load or on its number of zygotes, and no proposer can rely on two of
the seeds. Jobs with rules run proposed programs. Their seeds do not depend on
the input, so a program is graded with a seed that it was validated with.
"""

import random
import zlib

from azr_jax.executor.job import Job

HASH_SEEDS = (1, 2, 3)
ZYGOTES_PER_WORKER = 2


def of_zygotes(workers: int) -> list[int]:
  """Returns the seed of each zygote of a pool, which has every seed."""
  count = max(ZYGOTES_PER_WORKER * workers, len(HASH_SEEDS))
  return [HASH_SEEDS[index % len(HASH_SEEDS)] for index in range(count)]


def of_runs(job: Job) -> list[int]:
  """Returns the seed of each run of a job; up to three runs differ."""
  inputs = () if job.forbidden else job.inputs
  text = "\0".join((job.code, job.entry, *inputs))
  first = zlib.crc32(text.encode("utf-8", "surrogatepass"))
  return [
    HASH_SEEDS[(first + index) % len(HASH_SEEDS)] for index in range(job.runs)
  ]


def of_comparisons() -> int:
  """Returns the seed of zygotes that compare values, which nobody can guess.

  With a seed that it knows, a program could write texts of one hash, and a set
  of them takes quadratic time.
  """
  return random.SystemRandom().randrange(1 << 31, 1 << 32)
