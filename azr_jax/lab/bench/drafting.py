"""Texts on which drafts are measured, and what drafts gain on them.

Worked sums say their numbers again and again, and code that is written with a
small change says most of it again: what drafts find earlier in a text.
"""

import dataclasses
import random
import time
from collections.abc import Callable, Sequence

import numpy as np

from azr_jax.rollout.policy import Policy

_NAMES = ("total", "value", "result", "count")
_FUNCTION = """\
def {name}(numbers, limit):
    {var} = {start}
    for number in numbers:
        if number > limit:
            {var} = {var} + number * {factor}
        else:
            {var} = {var} - number
    return {var}
"""


@dataclasses.dataclass(frozen=True)
class Gain:
  """What drafts gained on some prompts.

  Attributes:
    tokens_per_iteration: that a slot got with drafts; 1 without.
    speedup: seconds without drafts over seconds with them.
    same: completions that are those without drafts.
    completions: how many there were.
  """

  tokens_per_iteration: float
  speedup: float
  same: int
  completions: int


def arithmetic(index: int) -> str:
  """Returns two worked sums of four numbers, and a sum to be worked."""
  rng = random.Random(index)
  sums = [[rng.randrange(10, 100) for _ in range(4)] for _ in range(3)]
  shown = "\n\n".join(map(_worked, sums[:2]))
  return f"{shown}\n\nAdd {' + '.join(map(str, sums[2]))}.\n"


def code(index: int) -> str:
  """Returns a function, it with a docstring, and one that lacks it."""
  rng = random.Random(index)
  first, second = (
    _FUNCTION.format(
      name=f"{rng.choice(_NAMES)}_{rng.randrange(100)}",
      var=rng.choice(_NAMES),
      start=rng.randrange(10),
      factor=rng.randrange(2, 10),
    )
    for _ in range(2)
  )
  head, body = first.split("\n", 1)
  return (
    f"# Without a docstring\n{first}\n# With a docstring\n{head}\n"
    f'    """Adds large numbers, takes small ones away."""\n{body}\n'
    f"# Without a docstring\n{second}\n# With a docstring\n"
  )


TEXTS: dict[str, Callable[[int], str]] = {
  "arithmetic": arithmetic,
  "code": code,
}


def gain(
  plain: Policy,
  drafting: Policy,
  texts: Sequence[str],
  samples: int,
  temperature: float,
  repeats: int,
) -> Gain:
  """Samples with and without drafts, in turn.

  Args:
    plain: makes no drafts.
    drafting: makes drafts in every call.
    texts: the prompts.
    samples: of each.
    temperature: of sampling.
    repeats: of each, after one that is not timed.
  """
  seconds: list[tuple[float, float]] = []
  for _ in range(repeats + 1):
    without, want = _sample(plain, texts, samples, temperature)
    drafting.sampler.meter.take()
    with_drafts, found = _sample(drafting, texts, samples, temperature)
    seconds.append((without, with_drafts))
  counts = drafting.sampler.meter.counts
  return Gain(
    counts.decoded / max(counts.live_slot_steps, 1),
    float(np.median([a / b for a, b in seconds[1:]])),
    sum(found[key] == ids for key, ids in want.items()),
    len(want),
  )


def _sample(
  policy: Policy, texts: Sequence[str], samples: int, temperature: float
) -> tuple[float, dict[tuple[int, int], list[int]]]:
  """Returns seconds, and tokens by prompt and sample."""
  start = time.perf_counter()
  found = {
    (index, sample): completion.token_ids.tolist()
    for index, sample, completion in policy.sample(
      [policy.prompt(text) for text in texts],
      samples,
      temperature=temperature,
      call=0,
    )
  }
  return time.perf_counter() - start, found


def _worked(numbers: Sequence[int]) -> str:
  """Returns a sum, worked number by number."""
  lines, total = [f"Add {' + '.join(map(str, numbers))}."], numbers[0]
  for number in numbers[1:]:
    lines.append(f"{total} + {number} = {total + number}")
    total += number
  return "\n".join([*lines, f"The sum is {total}."])
