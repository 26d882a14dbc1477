"""Everything on the device that a training step changes, and its sharding."""

from collections.abc import Callable, Mapping
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from azr_jax.models import transformer
from azr_jax.parallel import mesh as mesh_lib


class TrainState(flax.struct.PyTreeNode):
  """Parameters, optimizer state and the number of updates done."""

  step: jax.Array
  params: Any
  opt_state: Any


def make_optimizer(
  *,
  learning_rate: float,
  warmup_steps: int,
  decay_steps: int,
  final_learning_rate: float,
  b1: float,
  b2: float,
  weight_decay: float,
  grad_clip: float,
) -> optax.GradientTransformation:
  """AdamW with a linear warm-up, then constant or cosine to a final rate.

  Args:
    learning_rate: peak rate.
    warmup_steps: updates from 0 to the peak; 0 starts at the peak.
    decay_steps: updates from the start to the final rate; 0 stays constant.
    final_learning_rate: the rate at and after `decay_steps`.
    b1: decay of the first moment.
    b2: decay of the second moment.
    weight_decay: decoupled decay of matrices; norms and biases have none.
    grad_clip: largest global gradient norm; 0 turns clipping off.
  """
  if decay_steps:
    schedule = optax.warmup_cosine_decay_schedule(
      0.0 if warmup_steps else learning_rate,
      learning_rate,
      warmup_steps,
      decay_steps,
      final_learning_rate,
    )
  else:
    schedule = optax.linear_schedule(
      0.0 if warmup_steps else learning_rate, learning_rate, warmup_steps
    )
  adamw = optax.adamw(
    schedule,
    b1=b1,
    b2=b2,
    weight_decay=weight_decay,
    mask=lambda params: jax.tree_util.tree_map_with_path(_decays, params),
  )
  if grad_clip == 0:
    return adamw
  return optax.chain(optax.clip_by_global_norm(grad_clip), adamw)


def _decays(path: tuple[Any, ...], leaf: jax.Array) -> bool:
  return path[-1].key not in ("scale", "bias")


def state_shardings(
  model: transformer.Transformer,
  optimizer: optax.GradientTransformation,
  mesh: Mesh,
  rules: Mapping[str, str | None],
) -> TrainState:
  """Returns a `TrainState` of shardings; moments lie like their parameters."""
  boxed = transformer.abstract_params(model)
  params = mesh_lib.param_shardings(boxed, mesh, rules)
  opt_state = jax.eval_shape(
    optimizer.init, jax.eval_shape(lambda: _unboxed_zeros(boxed))
  )
  everywhere = NamedSharding(mesh, PartitionSpec())
  opt_shardings = optax.tree_map_params(
    optimizer,
    lambda _, sharding: sharding,
    opt_state,
    params,
    transform_non_params=lambda _: everywhere,
  )
  return TrainState(step=everywhere, params=params, opt_state=opt_shardings)


def _unboxed_zeros(boxed: Any) -> Any:
  return jax.tree.map(
    lambda box: jnp.zeros(box.value.shape, box.value.dtype),
    boxed,
    is_leaf=lambda leaf: hasattr(leaf, "names"),
  )


def abstract_state(
  model: transformer.Transformer,
  optimizer: optax.GradientTransformation,
  shardings: TrainState,
) -> TrainState:
  """Shapes, dtypes and shardings of a state, for restoring one."""
  params = jax.eval_shape(
    lambda: _unboxed_zeros(transformer.abstract_params(model))
  )
  state = jax.eval_shape(
    lambda p: TrainState(jnp.zeros((), jnp.int32), p, optimizer.init(p)),
    params,
  )
  return jax.tree.map(
    lambda x, sharding: jax.ShapeDtypeStruct(
      x.shape, x.dtype, sharding=sharding
    ),
    state,
    shardings,
  )


def make_init_state(
  optimizer: optax.GradientTransformation, shardings: TrainState
) -> Callable[[Any], TrainState]:
  """Returns a jitted function from sharded parameters to a fresh state."""

  def init_state(params: Any) -> TrainState:
    return TrainState(
      step=jnp.zeros((), jnp.int32),
      params=params,
      opt_state=optimizer.init(params),
    )

  return jax.jit(
    init_state,
    in_shardings=(shardings.params,),
    out_shardings=shardings,
    donate_argnums=0,
  )
