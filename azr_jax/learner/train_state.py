"""Device state that a training step updates, and its sharding."""

from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Int, Int32

from azr_jax.learner import entropy_target, rounding
from azr_jax.learner.entropy_target import EntropyControl
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.types import BoxedParams, Leaf, Params, Rules


class TrainState(flax.struct.PyTreeNode):
  """Parameters, optimizer state and progress.

  Attributes:
    step: the number of updates done.
    params: float32 parameters, or bfloat16 matrices and float32 norm scales.
    opt_state: the optimizer's state.
  """

  step: Int32[Leaf, ""]
  params: Params
  opt_state: optax.OptState


class EntropyTargetState(TrainState):
  """A train state with an adaptive entropy coefficient.

  It is a class of its own because a checkpoint without the field cannot be
  restored as a state whose field is empty.

  Attributes:
    entropy_control: the coefficient that holds the entropy near its target.
  """

  entropy_control: EntropyControl


def state_shardings(
  boxed: BoxedParams,
  optimizer: optax.GradientTransformation,
  mesh: Mesh,
  rules: Rules,
  entropy_coef: float | None = None,
) -> TrainState:
  """Returns the state's shardings; moments are sharded like their parameters.

  Args:
    boxed: parameter shapes with logical axes, from a model's `abstract_params`.
    optimizer: the optimizer whose state is sharded.
    mesh: the device mesh.
    rules: logical axis to mesh axis.
    entropy_coef: the initial value of an adaptive entropy coefficient. None
      without one.
  """
  by_path = {
    _dict_keys(path): param
    for path, param in jax.tree_util.tree_leaves_with_path(
      mesh_lib.sharded_shapes(boxed, mesh, rules)
    )
  }
  replicated = mesh_lib.replicated(mesh)
  return jax.tree_util.tree_map_with_path(
    lambda path, leaf: _sharding_like(by_path, path, leaf) or replicated,
    _shapes(boxed, optimizer, entropy_coef),
  )


def _sharding_like(
  by_path: Mapping[tuple[str, ...], jax.ShapeDtypeStruct],
  path: jax.tree_util.KeyPath,
  leaf: jax.ShapeDtypeStruct,
) -> jax.sharding.Sharding | None:
  """Returns the sharding of the parameter that a leaf of the state belongs to.

  A moment's path ends with its parameter's path. Other keys may precede it:
  with several optimizers, Optax names each optimizer's group of parameters. The
  scales of an 8-bit moment lack one axis.

  Args:
    by_path: each parameter by the dictionary keys of its path.
    path: path of the leaf in the state.
    leaf: shape and dtype of the leaf.

  Returns:
    The sharding. None if the leaf matches no parameter's path and axes.
  """
  keys = _dict_keys(path)
  for start in range(len(keys)):
    param = by_path.get(keys[start:])
    if param is not None and len(param.shape) == len(leaf.shape):
      return mesh_lib.fitting(param.sharding, leaf.shape)
  return None


def _dict_keys(path: jax.tree_util.KeyPath) -> tuple[str, ...]:
  """Returns the dictionary keys of a tree path, in order."""
  return tuple(
    entry.key for entry in path if isinstance(entry, jax.tree_util.DictKey)
  )


def _shapes(
  boxed: BoxedParams,
  optimizer: optax.GradientTransformation,
  entropy_coef: float | None,
) -> TrainState:
  """Returns the shapes and dtypes of a state."""
  return jax.eval_shape(
    lambda params: _fresh(params, optimizer, entropy_coef), nn.unbox(boxed)
  )


def _fresh(
  params: Params,
  optimizer: optax.GradientTransformation,
  entropy_coef: float | None,
) -> TrainState:
  """Returns the state before the first update."""
  state = TrainState(
    step=jnp.zeros((), jnp.int32),
    params=params,
    opt_state=optimizer.init(rounding.widened(params)),
  )
  if entropy_coef is None:
    return state
  return EntropyTargetState(
    state.step,
    state.params,
    state.opt_state,
    entropy_target.start(entropy_coef),
  )


def abstract_state(
  boxed: BoxedParams,
  optimizer: optax.GradientTransformation,
  shardings: TrainState,
  entropy_coef: float | None = None,
) -> TrainState:
  """Returns shapes, dtypes and shardings of a state, for restoring one."""
  return jax.tree.map(
    lambda x, sharding: jax.ShapeDtypeStruct(
      x.shape, x.dtype, sharding=sharding
    ),
    _shapes(boxed, optimizer, entropy_coef),
    shardings,
  )


def restarted(state: TrainState) -> TrainState:
  """Returns the state for a new training stage.

  Parameters and moments stay, with the count that corrects the moments' bias.
  The update count, which drives the learning-rate schedule, restarts at 0.
  """

  def is_schedule(node: object) -> bool:
    return isinstance(node, optax.ScaleByScheduleState)

  def restart(node: Any) -> Any:
    if not is_schedule(node):
      return node
    return node._replace(count=_zero_like(node.count))

  return state.replace(
    step=_zero_like(state.step),
    opt_state=jax.tree.map(restart, state.opt_state, is_leaf=is_schedule),
  )


def _zero_like(x: Int[Array, ""]) -> Int[Array, ""]:
  """Returns zeros with an array's sharding."""
  return jnp.zeros_like(x, device=x.sharding)


def make_init_state(
  optimizer: optax.GradientTransformation,
  shardings: TrainState,
  entropy_coef: float | None = None,
) -> jax.stages.Wrapped:
  """Returns a jitted function from sharded parameters to a fresh state.

  The function donates its argument: the state takes over the buffers.
  """

  def init_state(params: Params) -> TrainState:
    return _fresh(params, optimizer, entropy_coef)

  return jax.jit(
    init_state,
    in_shardings=(shardings.params,),
    out_shardings=shardings,
    donate_argnums=0,
  )
