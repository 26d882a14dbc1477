"""What the gradients of many batches say about their expectation.

Norms and inner products of expected gradients are means over pairs of different
batches, which noise does not bias. Errors are jackknife errors over blocks of
batches.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

# Batches that a first moment with b1 = 0.9 averages over: (1 + b1) / (1 - b1).
_AVERAGED = 19
# With a smaller squared norm, relative to the noise's, no direction is given.
_NO_SIGNAL = 1e-4


@dataclasses.dataclass
class Moments:
  """Sums over the batches of a block, for one variant.

  Attributes:
    count: number of batches.
    total: sum of the gradients [parameters].
    squares: sum of the squared norms.
    crosses: sum of the inner products with the true estimate of the same batch;
      0 if that is of other batches.
    metrics: sums of other numbers, by name.
  """

  count: int = 0
  total: jax.Array | float = 0.0
  squares: float = 0.0
  crosses: float = 0.0
  metrics: dict[str, float] = dataclasses.field(default_factory=dict)

  def add(
    self,
    gradient: jax.Array,
    true: jax.Array | None,
    metrics: Mapping[str, float] | None = None,
  ) -> None:
    """Adds the gradient of a batch."""
    self.count += 1
    self.total = self.total + gradient
    self.squares += float(jnp.vdot(gradient, gradient))
    if true is not None:
      self.crosses += float(jnp.vdot(gradient, true))
    for name, value in (metrics or {}).items():
      self.metrics[name] = self.metrics.get(name, 0.0) + float(value)


def numbers(
  own: Sequence[Moments], true: Sequence[Moments], is_shared: bool
) -> dict[str, float]:
  """Returns what the blocks of a variant say.

  Args:
    own: the variant's blocks.
    true: the blocks of the true gradient.
    is_shared: whether both have the same batches.

  Returns:
    `alignment`: cosine of the expected gradient with the true one; NaN without
    signal. `signal2`: squared norm of the expected gradient over the noise's of
    one batch. `progress`: inner product of one batch's gradient with the true
    direction over its root mean square norm. `averaged`: the same for the mean
    of 19 batches. `length`: norm of the expected gradient over the true one's;
    NaN without signal. And the mean of each metric. Without a true direction,
    all that need it are NaN.
  """
  n, m = (sum(block.count for block in one) for one in (own, true))
  mean = functools.reduce(jnp.add, [block.total for block in own])
  aim = functools.reduce(jnp.add, [block.total for block in true])
  squares = sum(block.squares for block in own)
  norm2 = (float(jnp.vdot(mean, mean)) - squares) / (n * (n - 1))
  noise2 = squares / n - norm2
  aim2 = float(jnp.vdot(aim, aim)) - sum(block.squares for block in true)
  aim_norm = math.sqrt(aim2 / (m * (m - 1))) if aim2 > 0 else math.nan
  inner = float(jnp.vdot(mean, aim))
  if is_shared:
    crosses = sum(block.crosses for block in own)
    inner = (inner - crosses) / (n * (n - 1))
  else:
    inner /= n * m
  along = inner / aim_norm
  has_signal = norm2 > _NO_SIGNAL * noise2
  norm = math.sqrt(norm2) if has_signal else math.nan
  metrics = {
    name: sum(block.metrics[name] for block in own) / n
    for name in own[0].metrics
  }
  return {
    "alignment": along / norm,
    "signal2": norm2 / noise2,
    "progress": along / math.sqrt(squares / n),
    "averaged": along / math.sqrt(max(norm2, 0.0) + noise2 / _AVERAGED),
    "length": norm / aim_norm,
    **metrics,
  }


def compared(
  blocks: Mapping[str, Sequence[Moments]],
  true: Sequence[Moments],
  base: str,
  is_shared: bool,
) -> dict[str, dict[str, float]]:
  """Returns `numbers` of each variant, with errors and differences.

  Args:
    blocks: the blocks of each variant.
    true: the blocks of the true gradient.
    base: the variant to subtract from the others.
    is_shared: whether all have the same batches.

  Returns:
    For each variant its numbers, `NAME_error` for each, and the difference to
    `base` in `averaged` with its error, `averaged_minus` and
    `averaged_minus_error`.
  """
  full = {name: numbers(own, true, is_shared) for name, own in blocks.items()}
  parts = [
    {
      name: numbers(_without(own, i), _without(true, i), is_shared)
      for name, own in blocks.items()
    }
    for i in range(len(true))
  ]
  for one in (full, *parts):
    middle = one[base]["averaged"]
    for row in one.values():
      row["averaged_minus"] = row["averaged"] - middle
  for name, row in full.items():
    for key in list(row):
      row[f"{key}_error"] = _jackknife([part[name][key] for part in parts])
  return full


def _jackknife(values: Sequence[float]) -> float:
  spread = np.mean((np.array(values) - np.mean(values)) ** 2)
  return float(np.sqrt(spread * (len(values) - 1)))


def _without(blocks: Sequence[Moments], index: int) -> list[Moments]:
  return [block for i, block in enumerate(blocks) if i != index]
