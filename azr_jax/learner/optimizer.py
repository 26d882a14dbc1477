"""The optimizer: AdamW, or Muon for the layers' matrices, with a schedule."""

import jax
import optax
import optax.contrib

from azr_jax.learner.settings import OptimizerSettings
from azr_jax.types import Params


def make_optimizer(c: OptimizerSettings) -> optax.GradientTransformation:
  """Returns AdamW, or Muon for the layers' matrices and AdamW for the rest.

  Norms and biases have no weight decay unless `decay_vectors` is set. Gradients
  are first clipped by their global norm.

  Args:
    c: rates, schedule and moments; Muon's rate falls by the same factor as
      AdamW's.
  """
  decays = None if c.decay_vectors else _decay_mask
  if c.muon_learning_rate:
    optimizer = optax.contrib.muon(
      _schedule(c, c.muon_learning_rate),
      weight_decay=c.weight_decay,
      weight_decay_mask=decays,
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
      mask=decays,
    )
  if c.grad_clip == 0:
    return optimizer
  return optax.chain(optax.clip_by_global_norm(c.grad_clip), optimizer)


def _schedule(c: OptimizerSettings, peak: float) -> optax.Schedule:
  """Returns the rate by update: warm-up to the peak, then the decay."""
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


def _decay_mask(params: Params) -> Params:
  """Returns a tree of bools: whether a parameter has weight decay.

  Scales of norms and biases have none.
  """
  return jax.tree_util.tree_map_with_path(
    lambda path, _: path[-1].key not in ("scale", "bias"), params
  )


def _muon_axes(
  path: jax.tree_util.KeyPath, leaf: jax.Array
) -> optax.contrib.MuonDimensionNumbers | None:
  """Returns input and output axes of a layers' matrix, or None for AdamW."""
  names = [entry.key for entry in path]
  if names[0] != "layers" or names[-1] != "kernel":
    return None
  inputs = 2 if names[-2] == "o" else 1
  axes = tuple(range(1, leaf.ndim))
  return optax.contrib.MuonDimensionNumbers(axes[:inputs], axes[inputs:])
