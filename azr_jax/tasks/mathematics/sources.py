"""Problems by the name of where they come from.

| spec | what it is |
| --- | --- |
| `gym:NAME`, `gym:NAME(min_terms=2)` | reasoning-gym, made on the spot |
| any other | `azr_jax/tasks/records.py`, in a layout of `problem.py` |

Several gym sets are joined by `+`.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from azr_jax.tasks import calls, gym_sets, records
from azr_jax.tasks.mathematics import problem
from azr_jax.tasks.mathematics.problem import Problem


def read(spec: str, count: int = 0, seed: int = 0) -> list[Problem]:
  """Reads or makes problems; a question that comes again is left out.

  Args:
    spec: see the module.
    count: most problems; 0: all that there are, of gym sets 10,000.
    seed: of gym sets.

  Raises:
    ValueError: there is no such source, it needs a package that is missing,
      or a record is no problem.
  """
  kind, found, name = spec.partition(":")
  if kind == "gym" and found:
    raw = _gym(name, count or 10_000, seed)
  else:
    raw = records.read(spec)
  problems: dict[str, Problem] = {}
  for record in raw:
    one = problem.from_record(record)
    problems.setdefault(one.question, one)
    if len(problems) == count:
      break
  if not problems:
    raise ValueError(f"{spec!r}: expected at least one problem")
  return list(problems.values())


def read_all(
  specs: Sequence[str], counts: Sequence[int], seed: int = 0
) -> list[Problem]:
  """Reads several sources after one another, most problems of each given."""
  return [
    problem
    for spec, count in zip(specs, counts, strict=True)
    for problem in read(spec, count, seed)
  ]


def _gym(text: str, count: int, seed: int) -> Iterable[Any]:
  named = [calls.read(part) for part in text.split("+")]
  size = -(-count // len(named))
  made = [
    gym_sets.entries(name, size, seed, settings) for name, settings in named
  ]
  for together in zip(*made, strict=True):
    yield from together
