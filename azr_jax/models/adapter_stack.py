"""Several adapters of one base, stacked (`adapters.Lora.stacked`).

A stack belongs to a sampling decoder. Its adapters have one rank, scale and set
of targets, to which `fit` brings others without changing what they compute.
Index 0 stays empty: it is the base model.
"""

import dataclasses
from collections.abc import Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from azr_jax.models import adapters, sampling_params, transformer
from azr_jax.models.adapters import Lora
from azr_jax.types import Params


def holding(loras: Sequence[Lora]) -> Lora | None:
  """Returns the shape of a stack that holds some adapters and the base model.

  Args:
    loras: the shape of each adapter. Without any, there is no stack.
  """
  if not loras:
    return None
  rank = max(lora.rank for lora in loras)
  used = {target for lora in loras for target in lora.targets}
  targets = tuple(name for name in adapters.TARGETS if name in used)
  # The scale is 1, so `fit` multiplies an adapter by its own.
  return Lora(rank, float(rank), targets=targets, stacked=len(loras) + 1)


def fit(trained: Params, lora: Lora, stack: Lora) -> Params:
  """Returns an adapter with the rank and the scale of a stack.

  Args:
    trained: float32, with A [L, *in, R] and B [L, R, *out].
    lora: its shape.
    stack: the stack's shape.

  Raises:
    ValueError: the stack has a smaller rank, or lacks a target.
  """
  others = [name for name in lora.targets if name not in stack.targets]
  if lora.rank > stack.rank or others:
    raise ValueError(
      f"an adapter has rank={lora.rank} and targets={lora.targets}: expected "
      f"a rank of at most {stack.rank}, and some of {stack.targets}"
    )
  more = stack.rank - lora.rank

  def fitted(path: jax.tree_util.KeyPath, leaf: jax.Array) -> jax.Array:
    widths = [(0, 0)] * leaf.ndim
    if path[-1].key == "a":
      widths[-1] = (0, more)
      return jnp.pad(leaf, widths)
    widths[1] = (0, more)
    return jnp.pad(leaf * (lora.scale / stack.scale), widths)

  return jax.tree_util.tree_map_with_path(fitted, trained)


def empty(model: transformer.Transformer) -> Params:
  """Returns adapters that change nothing, as a sampling decoder reads them."""
  boxed = adapters.adapters_of(transformer.abstract_params(model))
  return jax.tree.map(
    lambda leaf: jnp.zeros(leaf.shape, model.dtype),
    nn.unbox(boxed),
  )


def put(
  model: transformer.Transformer,
  stack: Params,
  trained: Params,
  index: Int[Array, ""],
) -> Params:
  """Returns a stack with another adapter at an index.

  Args:
    model: the sampling decoder that reads the stack.
    stack: A [*in, N, R] and B [N, R, *out] of each layer, or stacked layers.
    trained: the adapter, from `fit`. Targets that it lacks become 0.
    index: where it goes; not 0, which is the base model.
  """
  assert model.lora is not None
  one = model.clone(lora=dataclasses.replace(model.lora, stacked=0))
  converted = sampling_params.convert_adapters(one, trained)
  by_path = dict(jax.tree_util.tree_leaves_with_path(converted))
  layer_axes = 0 if model.unrolled else 1

  def replaced(path: jax.tree_util.KeyPath, leaf: jax.Array) -> jax.Array:
    axis = leaf.ndim - 2 if path[-1].key == "a" else layer_axes
    new = by_path.get(path)
    if new is None:
      new = jnp.zeros(leaf.shape[:axis] + leaf.shape[axis + 1 :], leaf.dtype)
    return jax.lax.dynamic_update_index_in_dim(leaf, new, index, axis)

  return jax.tree_util.tree_map_with_path(replaced, stack)
