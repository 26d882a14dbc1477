"""Everything on the device that a training step changes, and its sharding."""

from collections.abc import Callable, Mapping
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import optax
import optax.contrib
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from azr_jax.parallel import mesh as mesh_lib
from azr_jax.types import Leaf

DECAYS = ("cosine", "linear")


class TrainState(flax.struct.PyTreeNode):
  """Parameters, optimizer state and the number of updates done."""

  step: Leaf
  params: Any
  opt_state: Any


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
  grad_clip: float,
) -> optax.GradientTransformation:
  """AdamW, or Muon for the layers' matrices, with warm-up and decay.

  Args:
    learning_rate: peak rate of AdamW.
    muon_learning_rate: peak rate of Muon on the layers' matrices (everything
      else stays with AdamW); 0 leaves Muon out.
    warmup_steps: updates from 0 to the peak; 0 starts at the peak.
    decay_steps: updates from the start to the final rate; 0 stays constant.
    decay: the way down, one of `DECAYS`.
    final_learning_rate: AdamW's rate at and after `decay_steps`; Muon's
      falls by the same factor.
    b1: decay of the first moment.
    b2: decay of the second moment.
    weight_decay: decoupled decay of matrices; norms and biases have none.
    grad_clip: largest global gradient norm; 0 turns clipping off.
  """

  def schedule(peak: float) -> optax.Schedule:
    start = 0.0 if warmup_steps else peak
    if not decay_steps:
      return optax.linear_schedule(start, peak, max(warmup_steps, 1))
    final = final_learning_rate * peak / learning_rate
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

  def decays(params: Any) -> Any:
    return jax.tree_util.tree_map_with_path(_decays, params)

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
  if grad_clip == 0:
    return optimizer
  return optax.chain(optax.clip_by_global_norm(grad_clip), optimizer)


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


def _decays(path: tuple[Any, ...], leaf: jax.Array) -> bool:
  return path[-1].key not in ("scale", "bias")


def state_shardings(
  boxed: Any,
  optimizer: optax.GradientTransformation,
  mesh: Mesh,
  rules: Mapping[str, str | None],
) -> TrainState:
  """Returns a `TrainState` of shardings; moments lie like their parameters.

  Args:
    boxed: parameters as shapes with logical axes, `abstract_params` of a
      model.
    optimizer: whose state is laid out.
    mesh: the device mesh.
    rules: logical axis to mesh axis.
  """
  params = mesh_lib.param_shardings(boxed, mesh, rules)
  opt_state = jax.eval_shape(
    optimizer.init, jax.eval_shape(lambda: _unboxed_zeros(boxed))
  )
  everywhere = NamedSharding(mesh, PartitionSpec())
  by_path = {
    _dict_keys(path): sharding
    for path, sharding in jax.tree_util.tree_leaves_with_path(params)
  }
  # A moment sits in the optimizer state under its parameter's own path.
  opt_shardings = jax.tree_util.tree_map_with_path(
    lambda path, _: by_path.get(_dict_keys(path), everywhere), opt_state
  )
  return TrainState(step=everywhere, params=params, opt_state=opt_shardings)


def _dict_keys(path: tuple[Any, ...]) -> tuple[str, ...]:
  """The dictionary keys of a tree path, in order."""
  return tuple(
    entry.key for entry in path if isinstance(entry, jax.tree_util.DictKey)
  )


def _unboxed_zeros(boxed: Any) -> Any:
  return jax.tree.map(
    lambda box: jnp.zeros(box.value.shape, box.value.dtype),
    boxed,
    is_leaf=lambda leaf: hasattr(leaf, "names"),
  )


def abstract_state(
  boxed: Any,
  optimizer: optax.GradientTransformation,
  shardings: TrainState,
) -> TrainState:
  """Shapes, dtypes and shardings of a state, for restoring one."""
  params = jax.eval_shape(lambda: _unboxed_zeros(boxed))
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
