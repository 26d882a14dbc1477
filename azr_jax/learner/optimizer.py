"""The optimizer: AdamW, or Muon for matrices of the layers, with a schedule."""

import jax
import optax
import optax.contrib
from jaxtyping import Array, Float

from azr_jax.learner import moments as moments_lib
from azr_jax.learner.rounding import Draws
from azr_jax.types import Params

_DRAWS = Draws()


def make_optimizer(
  *,
  learning_rate: float,
  muon_learning_rate: float,
  warmup_steps: int,
  decay_steps: int,
  decay: str,
  final_learning_rate: float,
  b1: float,
  b2: float,
  weight_decay: float,
  decay_vectors: bool,
  grad_clip: float,
  moments: str = moments_lib.FLOAT32,
  draws: Draws = _DRAWS,
) -> optax.GradientTransformation:
  """Returns AdamW, or Muon for the layers' matrices and AdamW for the rest.

  The arguments are the fields of `OptimizerSettings`, and the random bits that
  round compressed moments. Norm scales and biases get no weight decay unless
  `decay_vectors` is set. Gradients are first clipped by their global norm.
  Muon's learning rate decays by the same factor as AdamW's.
  """

  def schedule(peak: float) -> optax.Schedule:
    final = final_learning_rate * peak / learning_rate
    return _schedule(peak, final, warmup_steps, decay_steps, decay)

  decays = None if decay_vectors else _decay_mask
  if muon_learning_rate:
    optimizer = optax.contrib.muon(
      schedule(muon_learning_rate),
      weight_decay=weight_decay,
      weight_decay_mask=decays,
      adam_b1=b1,
      adam_b2=b2,
      adam_weight_decay=weight_decay,
      adam_learning_rate=schedule(learning_rate),
      muon_weight_dimension_numbers=lambda params: (
        jax.tree_util.tree_map_with_path(_muon_axes, params)
      ),
    )
  else:
    optimizer = optax.adamw(
      schedule(learning_rate),
      b1=b1,
      b2=b2,
      weight_decay=weight_decay,
      mask=decays,
    )
  if grad_clip:
    optimizer = optax.chain(optax.clip_by_global_norm(grad_clip), optimizer)
  if moments == moments_lib.FLOAT32:
    return optimizer
  return moments_lib.compressed(optimizer, moments, draws)


def _schedule(
  peak: float, final: float, warmup_steps: int, decay_steps: int, decay: str
) -> optax.Schedule:
  """Returns the learning-rate schedule: warm-up to the peak, then decay."""
  start = 0.0 if warmup_steps else peak
  if not decay_steps:
    return optax.linear_schedule(start, peak, max(warmup_steps, 1))
  if decay == "linear":
    return optax.join_schedules(
      [
        optax.linear_schedule(start, peak, max(warmup_steps, 1)),
        optax.linear_schedule(peak, final, decay_steps - warmup_steps),
      ],
      [warmup_steps],
    )
  return optax.warmup_cosine_decay_schedule(
    start, peak, warmup_steps, decay_steps, final
  )


def _decay_mask(params: Params) -> Params:
  """Returns a tree of bools that is False at norm scales, biases and sinks."""
  return jax.tree_util.tree_map_with_path(
    lambda path, _: path[-1].key not in moments_lib.VECTORS, params
  )


def _muon_axes(
  path: jax.tree_util.KeyPath, leaf: Float[Array, "..."]
) -> optax.contrib.MuonDimensionNumbers | None:
  """Returns input and output axes of a layer's matrix, or None for AdamW."""
  names = [entry.key for entry in path]
  if names[0] != "layers" or names[-1] != "kernel" or "router" in names:
    return None
  inputs = 2 if names[-2] == "o" else 1
  # An expert has its own matrix, as a layer has.
  axes = tuple(range(2 if "experts" in names else 1, leaf.ndim))
  return optax.contrib.MuonDimensionNumbers(axes[:inputs], axes[inputs:])
