"""The optimizer: AdamW, or Muon for the layers' matrices, with a schedule."""

from typing import Any

import jax
import optax
import optax.contrib

from azr_jax.learner.settings import OptimizerSettings
from azr_jax.types import Params


def make_optimizer(c: OptimizerSettings) -> optax.GradientTransformation:
  """Returns AdamW, or Muon for matrices and AdamW for the rest.

  Norms and biases have no weight decay. Gradients are clipped by their global
  norm before.
  """
  if c.muon_learning_rate:
    optimizer = optax.contrib.muon(
      _schedule(c, c.muon_learning_rate),
      weight_decay=c.weight_decay,
      weight_decay_mask=_decay_mask,
      adam_b1=c.b1,
      adam_b2=c.b2,
      adam_weight_decay=c.weight_decay,
      adam_learning_rate=_schedule(c, c.learning_rate),
      muon_weight_dimension_numbers=lambda params: (
        jax.tree_util.tree_map_with_path(_muon_axes, params)
      ),
    )
  else:
    optimizer = optax.adamw(
      _schedule(c, c.learning_rate),
      b1=c.b1,
      b2=c.b2,
      weight_decay=c.weight_decay,
      mask=_decay_mask,
    )
  if c.grad_clip == 0:
    return optimizer
  return optax.chain(optax.clip_by_global_norm(c.grad_clip), optimizer)


def _schedule(c: OptimizerSettings, peak: float) -> optax.Schedule:
  """Returns warm-up to a peak rate, then decay; both rates fall alike."""
  start = 0.0 if c.warmup_steps else peak
  if not c.decay_steps:
    return optax.linear_schedule(start, peak, max(c.warmup_steps, 1))
  final = c.final_learning_rate * peak / c.learning_rate
  if c.decay == "linear":
    return optax.join_schedules(
      [
        optax.linear_schedule(start, peak, max(c.warmup_steps, 1)),
        optax.linear_schedule(peak, final, c.decay_steps - c.warmup_steps),
      ],
      [c.warmup_steps],
    )
  return optax.warmup_cosine_decay_schedule(
    start, peak, c.warmup_steps, c.decay_steps, final
  )


def _decay_mask(params: Params) -> Any:
  """Returns which parameters decay: all but scales and biases."""
  return jax.tree_util.tree_map_with_path(
    lambda path, _: path[-1].key not in ("scale", "bias"), params
  )


def _muon_axes(
  path: tuple[Any, ...], leaf: Any
) -> optax.contrib.MuonDimensionNumbers | None:
  """Input and output axes of a stacked kernel; None leaves it to AdamW."""
  names = [entry.key for entry in path]
  if names[0] != "layers" or names[-1] != "kernel":
    return None
  inputs = 2 if names[-2] == "o" else 1
  axes = tuple(range(1, leaf.ndim))
  return optax.contrib.MuonDimensionNumbers(axes[:inputs], axes[inputs:])
