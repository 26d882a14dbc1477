"""Hash seeds of zygotes and runs.

The iteration order of a set of strings depends on the hash seed, so runs with
different seeds reveal values that depend on it. Fraction of sets of random
words that have the same order with two of the seeds, and with all three:

| words | two seeds | three seeds |
| --- | --- | --- |
| 2 | 49 % | 24 % |
| 3 | 17 % | 3 % |
| 4 | 4 % | 0.1 % |

The job alone determines its seeds. So a verdict does not depend on the
machine's load or the number of zygotes, and a proposer cannot rely on a fixed
pair of seeds. Jobs with rules (`forbidden`) run proposed programs. Their seeds
do not depend on the input, so a program is graded with a seed that it was
validated with.
"""

import random
import zlib

from azr_jax.executor.job import Job

HASH_SEEDS = (1, 2, 3)
ZYGOTES_PER_WORKER = 2


def of_zygotes(workers: int) -> list[int]:
  """Returns the seed of each zygote of a pool; every seed occurs."""
  count = max(ZYGOTES_PER_WORKER * workers, len(HASH_SEEDS))
  return [HASH_SEEDS[index % len(HASH_SEEDS)] for index in range(count)]


def of_runs(job: Job) -> list[int]:
  """Returns the seeds of a job's runs, distinct for up to three runs."""
  inputs = () if job.forbidden else job.inputs
  text = "\0".join((job.code, job.entry, *inputs))
  first = zlib.crc32(text.encode("utf-8", "surrogatepass"))
  return [
    HASH_SEEDS[(first + index) % len(HASH_SEEDS)] for index in range(job.runs)
  ]


def of_comparisons() -> int:
  """Returns an unpredictable seed for the zygotes that compare values.

  A program that knows the seed could return strings with the same hash, and
  building a set of them takes quadratic time.
  """
  return random.SystemRandom().randrange(1 << 31, 1 << 32)
