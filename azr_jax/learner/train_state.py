"""Everything on the device that a training step changes, and its sharding."""

from collections.abc import Callable, Mapping
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from azr_jax.parallel import mesh as mesh_lib
from azr_jax.types import Leaf


class TrainState(flax.struct.PyTreeNode):
  """Parameters, optimizer state and the number of updates done."""

  step: Leaf
  params: Any
  opt_state: Any


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
