"""Distributions of the lengths of completions, named on the command line.

| name | lengths |
| --- | --- |
| `equal:1024` | all of 1,024 tokens |
| `lognormal:1024:1:8096` | mean 1,024, log-sigma 1, at most 8,096 |
| `run:FOLDER` | by group, the mean and deviation of a run's metrics |
"""

import dataclasses
import json
import math
import pathlib
import random
from typing import Protocol


class Lengths(Protocol):
  """A distribution of lengths."""

  def draw(self, count: int, rng: random.Random) -> list[int]:
    """Returns that many lengths, in tokens, at least 1."""
    ...


@dataclasses.dataclass(frozen=True)
class Equal:
  """All completions have the same length, in tokens."""

  tokens: int

  def draw(self, count: int, rng: random.Random) -> list[int]:
    """Returns that many lengths."""
    del rng
    return [self.tokens] * count


@dataclasses.dataclass(frozen=True)
class LogNormal:
  """Lengths whose logarithms are normal.

  Attributes:
    mean: mean length before truncation, in tokens.
    sigma: standard deviation of the logarithm.
    max_length: longer ones are truncated to it, in tokens.
  """

  mean: float
  sigma: float
  max_length: int

  def draw(self, count: int, rng: random.Random) -> list[int]:
    """Returns that many lengths."""
    mu = math.log(self.mean) - self.sigma**2 / 2
    drawn = (rng.lognormvariate(mu, self.sigma) for _ in range(count))
    return [min(self.max_length, max(1, round(length))) for length in drawn]


@dataclasses.dataclass(frozen=True)
class Mixture:
  """Lengths of groups of completions, each group as often as it occurs."""

  groups: tuple[tuple[float, LogNormal], ...]

  def draw(self, count: int, rng: random.Random) -> list[int]:
    """Returns that many lengths."""
    weights = [weight for weight, _ in self.groups]
    drawn = rng.choices([group for _, group in self.groups], weights, k=count)
    return [group.draw(1, rng)[0] for group in drawn]


def parse(text: str, longest: int) -> Lengths:
  """Returns the distribution that a text names.

  Args:
    text: see the module's docstring.
    longest: tokens of the longest completion, to which all lengths are
      truncated.

  Raises:
    ValueError: the text names none, or the run has no lengths.
  """
  kind, _, rest = text.partition(":")
  if kind == "run" and rest:
    return of_run(pathlib.Path(rest), longest)
  try:
    numbers = [float(number) for number in rest.split(":")]
    if kind == "equal" and len(numbers) == 1 and numbers[0] >= 1:
      return Equal(min(longest, round(numbers[0])))
    if kind == "lognormal" and len(numbers) == 3 and min(numbers) > 0:
      mean, sigma, max_length = numbers
      return LogNormal(mean, sigma, min(longest, round(max_length)))
  except ValueError:
    pass
  raise ValueError(
    f"lengths={text!r}: expected equal:TOKENS, lognormal:MEAN:SIGMA:MAX (e.g. "
    "lognormal:1024:1:8096) or run:FOLDER of a run"
  )


def of_run(folder: pathlib.Path, longest: int) -> Mixture:
  """Returns the lengths that a run's metrics describe, of all of its steps.

  A metric `tokens/GROUP/mean` has a deviation and, under `count/GROUP`, how
  many completions it is of.

  Args:
    folder: the run's.
    longest: tokens of the longest completion.

  Raises:
    ValueError: the folder has no such metrics.
  """
  path = folder / "metrics.jsonl"
  groups = []
  if path.is_file():
    for line in path.read_text("utf-8").splitlines():
      groups += _groups(json.loads(line), longest)
  if not groups:
    raise ValueError(
      f"lengths=run:{folder}: expected a run's folder, whose metrics.jsonl has "
      "tokens/.../mean"
    )
  return Mixture(tuple(groups))


def _groups(
  metrics: dict[str, float], longest: int
) -> list[tuple[float, LogNormal]]:
  """Returns the groups of one step's metrics, with their counts."""
  found = []
  for name, mean in metrics.items():
    if not (name.startswith("tokens/") and name.endswith("/mean")) or mean <= 0:
      continue
    group = name.removeprefix("tokens/").removesuffix("/mean")
    deviation = metrics.get(f"tokens/{group}/std", 0.0)
    sigma = math.sqrt(math.log(1 + (deviation / mean) ** 2))
    count = metrics.get(f"count/{group}", 1.0)
    found.append((count, LogNormal(mean, sigma, longest)))
  return found
