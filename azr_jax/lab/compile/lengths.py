"""Distributions of completion lengths, named on the command line.

| name | lengths |
| --- | --- |
| `equal:1024` | all 1,024 tokens |
| `lognormal:1024:1:8096` | mean 1,024, log-sigma 1, at most 8,096 |
| `run:FOLDER` | by group, with the mean and deviation of a run's metrics |
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
    """Draws `count` lengths, in tokens, each at least 1."""
    ...


@dataclasses.dataclass(frozen=True)
class Equal:
  """All completions have the same length, in tokens."""

  tokens: int

  def draw(self, count: int, rng: random.Random) -> list[int]:
    """Draws `count` lengths."""
    del rng
    return [self.tokens] * count


@dataclasses.dataclass(frozen=True)
class LogNormal:
  """A log-normal distribution of lengths.

  Attributes:
    mean: mean length before truncation, in tokens.
    sigma: standard deviation of the logarithm.
    max_length: length that longer ones are truncated to, in tokens.
  """

  mean: float
  sigma: float
  max_length: int

  def draw(self, count: int, rng: random.Random) -> list[int]:
    """Draws `count` lengths."""
    mu = math.log(self.mean) - self.sigma**2 / 2
    drawn = (rng.lognormvariate(mu, self.sigma) for _ in range(count))
    return [min(self.max_length, max(1, round(length))) for length in drawn]


@dataclasses.dataclass(frozen=True)
class LengthMixture:
  """A mixture of distributions, each with a weight."""

  groups: tuple[tuple[float, LogNormal], ...]

  def draw(self, count: int, rng: random.Random) -> list[int]:
    """Draws `count` lengths."""
    weights = [weight for weight, _ in self.groups]
    drawn = rng.choices([group for _, group in self.groups], weights, k=count)
    return [group.draw(1, rng)[0] for group in drawn]


def parse(text: str, longest: int) -> Lengths:
  """Returns the distribution with this name.

  Args:
    text: a name; see the module docstring.
    longest: length that all lengths are truncated to, in tokens.

  Raises:
    ValueError: the name is unknown, or the run has no lengths.
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


def of_run(folder: pathlib.Path, longest: int) -> LengthMixture:
  """Returns the lengths described by a run's metrics, over all of its steps.

  A metric `tokens/GROUP/mean` comes with the standard deviation
  `tokens/GROUP/std` and the number of completions `count/GROUP`.

  Args:
    folder: the run's folder.
    longest: length that all lengths are truncated to, in tokens.

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
  return LengthMixture(tuple(groups))


def _groups(
  metrics: dict[str, float], longest: int
) -> list[tuple[float, LogNormal]]:
  """Returns the groups in one step's metrics, with their counts."""
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
