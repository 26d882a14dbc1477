"""The update: gradients accumulated over packed micro-batches, then one step.

`update(state, batch, fixed) -> (state, metrics)` is pure and jitted once. The
batch has a leading axis of micro-batches: arrays [A, B, S]. `fixed` has the
parameters that are not trained (`objective.Fixed`).
"""

import functools
from collections.abc import Callable
from typing import TypeAlias, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int

from azr_jax import types
from azr_jax.learner import averaging, rounding
from azr_jax.learner import sums as sums_lib
from azr_jax.learner.entropy_target import EntropyTarget
from azr_jax.learner.objective import Fixed, MicroLoss
from azr_jax.learner.rounding import Draws
from azr_jax.learner.train_state import EntropyTargetState, TrainState
from azr_jax.models import transformer
from azr_jax.parallel import compiler
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.types import Metrics, Params

# Jitted: (state, batch, `Fixed`) -> (state, metrics). With minibatches, the
# number of one is the fourth argument.
Update: TypeAlias = jax.stages.Wrapped
# A tree of arrays; a batch has arrays [A, ...].
Tree = TypeVar("Tree")

_DRAWS = Draws()


def make_update(
  loss_fn: MicroLoss,
  optimizer: optax.GradientTransformation,
  shardings: TrainState,
  mesh: Mesh,
  options: compiler.Options = None,
  entropy_target: EntropyTarget | None = None,
  draws: Draws = _DRAWS,
  has_minibatches: bool = False,
) -> Update:
  """Returns jitted `(state, batch [A, B, S], fixed) -> (state, metrics)`.

  The update donates its state. If the batch has minibatches, a fourth argument
  is the number of the minibatch to train on, int32.

  Args:
    loss_fn: the loss of one micro-batch.
    optimizer: takes one step per call.
    shardings: from `train_state.state_shardings`.
    mesh: the device mesh of the batch.
    options: XLA compiler options.
    entropy_target: adapts the entropy coefficient, which the state then holds.
      None keeps the coefficient of the loss.
    draws: the random bits that round bfloat16 parameters.
    has_minibatches: whether batches have several minibatches.
  """

  def update(
    state: TrainState,
    batch: types.Batch,
    fixed: Fixed,
    minibatch: Int[Array, ""] | None = None,
  ) -> tuple[TrainState, Metrics]:
    micro_loss, control = loss_fn, None
    fixed = averaging.with_teacher(fixed, state.opt_state)
    start, stop, rows, mask = _part(batch, minibatch)
    if isinstance(state, EntropyTargetState) and entropy_target is not None:
      control = state.entropy_control
      micro_loss = functools.partial(
        loss_fn, entropy_coef=control.active_coef(entropy_target.nats)
      )
    loss, sums, grads = accumulate(
      micro_loss,
      state.params,
      batch,
      fixed,
      start,
      stop,
      is_whole=minibatch is None,
    )
    tokens = jnp.sum(mask)
    metrics = sums_lib.finish(sums, jnp.maximum(tokens, 1.0))
    grad_norm = optax.tree.norm(grads)
    is_finite = jnp.isfinite(loss) & jnp.isfinite(grad_norm)
    # Without tokens, moments and weight decay would still move the parameters.
    can_step = is_finite & (tokens > 0)
    state = apply(optimizer, state, grads, can_step, draws)
    if control is not None and entropy_target is not None:
      metrics["learner/entropy_coef"] = control.active_coef(entropy_target.nats)
      after = entropy_target.adapt(control, metrics["learner/entropy"])
      state = state.replace(entropy_control=_if(can_step, after, control))
    metrics |= {
      "learner/loss": loss,
      "learner/grad_norm": grad_norm,
      "learner/tokens": tokens,
      "learner/rows": jnp.sum(rows),
      "learner/skipped": 1.0 - is_finite,
      "learner/nonfinite": count_nonfinite(state),
    }
    return state, metrics

  # Fixed parameters keep their own shardings.
  rest = (None, None) if has_minibatches else (None,)
  return jax.jit(
    update,
    in_shardings=(shardings, mesh_lib.token_sharding(mesh, axis=1), *rest),
    out_shardings=(shardings, mesh_lib.replicated(mesh)),
    donate_argnums=0,
    compiler_options=options,
  )


def _part(
  batch: types.Batch, minibatch: Int[Array, ""] | None
) -> tuple[
  Int[Array, ""] | int,
  Int[Array, ""],
  Bool[Array, "A B"],
  Float[Array, "A B S"],
]:
  """Returns the part of a batch that a step trains on.

  Args:
    batch: all micro-batches.
    minibatch: number of the part. None takes the whole batch.

  Returns:
    The first micro-batch, one past the last, the part's rows, and its targets.
  """
  rows = jnp.any(batch.segment_ids > 0, axis=-1)
  if minibatch is None or batch.minibatch is None:
    return 0, nonempty_micro_batches(batch), rows, batch.loss_mask
  rows &= batch.minibatch[:, :, 0] == minibatch
  inside = jnp.any(rows, axis=1)
  start = jnp.argmax(inside).astype(jnp.int32)
  stop = start + jnp.sum(inside, dtype=jnp.int32)
  return start, stop, rows, batch.loss_mask * rows[:, :, None]


def micro_batch(batch: Tree, index: Int[Array, ""] | int) -> Tree:
  """Returns one micro-batch, as arrays [...] of a tree of arrays [A, ...]."""
  return jax.tree.map(
    lambda x: jax.lax.dynamic_index_in_dim(x, index, keepdims=False), batch
  )


def nonempty_micro_batches(batch: types.Batch) -> Int[Array, ""]:
  """Returns the number of micro-batches that hold a sequence.

  Empty ones come last and are skipped, so one compiled program serves steps
  with different numbers of sequences.
  """
  return jnp.sum(jnp.any(batch.segment_ids > 0, axis=(1, 2)))


def accumulate(
  loss_fn: Callable[[Params, Tree, Fixed], tuple[Float[Array, ""], Metrics]],
  params: Params,
  batch: Tree,
  fixed: Fixed,
  start: Int[Array, ""] | int,
  stop: Int[Array, ""] | int,
  *,
  is_whole: bool = False,
) -> tuple[Float[Array, ""], Metrics, Params]:
  """Sums loss, metrics and float32 gradients over micro-batches [start, stop).

  Args:
    loss_fn: the loss of one micro-batch.
    params: the parameters at which gradients are taken.
    batch: a tree of arrays [A, ...], whose micro-batches `loss_fn` takes.
    fixed: the third argument of `loss_fn`.
    start: the first micro-batch.
    stop: one past the last micro-batch.
    is_whole: whether the range has every micro-batch that holds a sequence. The
      only micro-batch of a batch then needs no loop; if it is empty, its
      gradients are 0.
  """

  # Gradients of the token table and the output head have several terms, which
  # are added in float32. Kernels of the layers have one.
  whole = {
    name: part if name == transformer.LAYERS else rounding.widened(part)
    for name, part in params.items()
  }

  def grad_fn(micro: Tree) -> tuple[jax.Array, Metrics, Params]:
    (loss, sums), grads = jax.value_and_grad(loss_fn, has_aux=True)(
      whole, micro, fixed
    )
    return loss, sums, rounding.widened(grads)

  def add(
    index: jax.Array, total: tuple[jax.Array, Metrics, Params]
  ) -> tuple[jax.Array, Metrics, Params]:
    loss, sums, grads = grad_fn(micro_batch(batch, index))
    return (
      total[0] + loss,
      sums_lib.add(total[1], sums),
      jax.tree.map(jnp.add, total[2], grads),
    )

  if is_whole and jax.tree.leaves(batch)[0].shape[0] == 1:
    return grad_fn(jax.tree.map(lambda x: x[0], batch))
  zeros = jax.tree.map(
    lambda x: jnp.zeros(x.shape, x.dtype),
    jax.eval_shape(grad_fn, jax.tree.map(lambda x: x[0], batch)),
  )
  return jax.lax.fori_loop(start, stop, add, zeros)


@jax.named_scope("optimizer")
def apply(
  optimizer: optax.GradientTransformation,
  state: TrainState,
  grads: Params,
  can_step: Bool[Array, ""],
  draws: Draws = _DRAWS,
) -> TrainState:
  """Returns the state after one optimizer step.

  Args:
    optimizer: computes the step.
    state: the state before the step.
    grads: the gradients.
    can_step: whether loss and gradients are finite and the batch has targets.
      If not, parameters, moments and counts keep their values. It is known
      before the first parameter is written, so no second copy of the state is
      needed.
    draws: the random bits that round bfloat16 parameters.
  """
  updates, opt_state = optimizer.update(
    grads, state.opt_state, rounding.widened(state.params)
  )
  after = state.replace(
    step=state.step + 1,
    params=rounding.add(state.params, cast(Params, updates), draws, state.step),
    opt_state=opt_state,
  )
  return _if(can_step, after, state)


def _if(condition: Bool[Array, ""], new: Tree, old: Tree) -> Tree:
  """Returns `new` where the condition holds, else `old`."""
  return jax.tree.map(lambda x, y: jnp.where(condition, x, y), new, old)


def count_nonfinite(state: TrainState) -> Float[Array, ""]:
  """Returns the number of parameters and moments that are infinite or NaN."""
  leaves = jax.tree.leaves((state.params, state.opt_state))
  if any(leaf.dtype.itemsize < 4 for leaf in leaves):
    # XLA would otherwise count in the kernels of the step. These would then
    # write parameters to new arrays, and copy them.
    leaves = jax.lax.optimization_barrier(leaves)
  counts = [
    jnp.sum(~jnp.isfinite(leaf), dtype=jnp.float32)
    for leaf in leaves
    if jnp.issubdtype(leaf.dtype, jnp.inexact)
  ]
  return sum(counts, start=jnp.zeros((), jnp.float32))


def to_micro_batches(batch: types.Batch, rows: int) -> types.Batch:
  """Reshapes arrays [A x B, S, ...] to [A, B, S, ...]."""
  return jax.tree.map(lambda x: x.reshape(-1, rows, *x.shape[1:]), batch)


def without_padding(batch: types.Batch) -> types.Batch:
  """Returns the micro-batches [A', B, S] that hold a sequence, on the host.

  Empty micro-batches come last. Rows are filled from their first column, so
  only that column is read. The whole batch may be many gigabytes, most of it
  empty.
  """
  first_column = np.asarray(batch.segment_ids[:, :, 0])
  count = np.count_nonzero(np.any(first_column > 0, axis=1))
  return jax.tree.map(lambda x: x[:count], batch)


def place(batch: types.Batch, mesh: Mesh) -> types.Batch:
  """Puts micro-batches [A, B, S] on the devices as `make_update` expects them.

  Every host holds the whole batch and sends its own devices their rows.
  """
  sharding = mesh_lib.token_sharding(mesh, axis=1)
  return jax.tree.map(
    lambda x: jax.make_array_from_callback(
      x.shape, sharding, lambda index: x[index]
    ),
    batch,
  )
