"""The jitted functions of the verbs: forward, backward and a step of AdamW.

A batch is small and has one of a few shapes (`rows.RowShapes`); a call with
more data runs the program several times. So no call compiles a program for its
own number of sequences.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int

from azr_jax.learner import logprobs as logprobs_lib
from azr_jax.learner import objective, train_state, update
from azr_jax.learner.objective import Fixed
from azr_jax.learner.train_state import TrainState
from azr_jax.models import transformer
from azr_jax.parallel import compiler
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.types import Metrics, Params, Rules
from azr_jax.verbs import losses
from azr_jax.verbs.rows import LossRows


class Adam(NamedTuple):
  """The numbers of one step of AdamW, as torch defines them.

  Attributes:
    learning_rate: the factor of the whole step.
    beta1: decay rate of the first moment.
    beta2: decay rate of the second moment.
    eps: added to the root of the second moment.
    weight_decay: decay of all parameters, times the learning rate.
    grad_clip_norm: maximum norm of all gradients together; 0 does not clip.
  """

  learning_rate: float = 1e-4
  beta1: float = 0.9
  beta2: float = 0.95
  eps: float = 1e-12
  weight_decay: float = 0.0
  grad_clip_norm: float = 0.0

  def optimizer(self) -> optax.GradientTransformation:
    """Returns AdamW; its state does not depend on these numbers."""
    return optax.adamw(
      self.learning_rate,
      b1=self.beta1,
      b2=self.beta2,
      eps=self.eps,
      weight_decay=self.weight_decay,
    )


@dataclasses.dataclass(frozen=True)
class Verbs:
  """The functions of a decoder.

  Attributes:
    mesh: the mesh of parameters and rows.
    abstract: shapes, dtypes and shardings of a state, for restoring one.
    init_moments: () -> the step count and the moments of a new state.
    zeros: () -> gradients of 0.
    forward: (params, batch, `Fixed`) -> log-probabilities of the targets.
    backward: by loss: (params, gradients, batches, number of batches, `Fixed`,
      config) -> (gradients, loss of each batch, log-probabilities). Gradients
      are donated and summed. Batches have an axis A before the others; those
      from the given number on are skipped.
    step: (state, gradients, `Adam`) -> (state, metrics). The state is donated.
  """

  mesh: Mesh
  abstract: TrainState
  init_moments: jax.stages.Wrapped
  zeros: jax.stages.Wrapped
  forward: jax.stages.Wrapped
  backward: dict[str, jax.stages.Wrapped]
  step: jax.stages.Wrapped

  def start(self, trained: Params) -> TrainState:
    """Returns a new state, which holds the parameters without a copy."""
    step, moments = self.init_moments()
    return TrainState(step, trained, moments)

  def place(self, batch: LossRows, axis: int = 0) -> LossRows:
    """Puts a batch on the devices; every host has the whole batch.

    Args:
      batch: a batch, or several.
      axis: the axis of the rows.
    """
    sharding = mesh_lib.token_sharding(self.mesh, axis=axis)
    return jax.tree.map(
      lambda x: jax.make_array_from_callback(
        x.shape, sharding, lambda index: x[index]
      ),
      batch,
    )


def make(
  model: transformer.Transformer,
  mesh: Mesh,
  rules: Rules,
  *,
  chunk_tokens: int,
  options: compiler.Options = None,
) -> Verbs:
  """Returns the functions of a decoder. Compiles nothing.

  Args:
    model: the learner's decoder.
    mesh: the mesh of parameters and rows.
    rules: logical parameter axis to mesh axis.
    chunk_tokens: number of tokens whose logits exist at the same time.
    options: XLA compiler options.
  """
  boxed, adam = transformer.abstract_trained(model), Adam().optimizer()
  shardings = train_state.state_shardings(boxed, adam, mesh, rules)
  replicated = mesh_lib.replicated(mesh)
  by_row = mesh_lib.token_sharding(mesh)
  by_row_of_many = mesh_lib.token_sharding(mesh, axis=1)
  score = functools.partial(_score, model, mesh, chunk_tokens)
  jit = functools.partial(jax.jit, compiler_options=options)
  shapes = nn.unbox(boxed)

  def zeros() -> Params:
    return jax.tree.map(lambda x: jnp.zeros(x.shape, jnp.float32), shapes)

  return Verbs(
    mesh=mesh,
    abstract=train_state.abstract_state(boxed, adam, shardings),
    init_moments=jit(
      lambda: (jnp.zeros((), jnp.int32), adam.init(zeros())),
      out_shardings=(shardings.step, shardings.opt_state),
    ),
    zeros=jit(zeros, out_shardings=shardings.params),
    forward=jit(
      score,
      in_shardings=(shardings.params, by_row, None),
      out_shardings=by_row,
    ),
    backward={
      name: jit(
        functools.partial(_backward, score, loss.value),
        in_shardings=(shardings.params,) * 2
        + (by_row_of_many, replicated, None, replicated),
        out_shardings=(shardings.params, replicated, by_row_of_many),
        donate_argnums=1,
      )
      for name, loss in losses.LOSSES.items()
    },
    step=jit(
      _step,
      in_shardings=(shardings, shardings.params, replicated),
      out_shardings=(shardings, replicated),
      donate_argnums=0,
    ),
  )


def _score(
  model: transformer.Transformer,
  mesh: Mesh,
  chunk_tokens: int,
  trained: Params,
  batch: LossRows,
  fixed: Fixed,
) -> Float[Array, "B S ..."]:
  """Returns the log-probabilities of the targets, in nats; 0 in padding."""
  params = fixed.whole(trained)
  hidden = objective.hidden_states(model, params, batch)
  head = transformer.unembedding(params, model.config)
  mask = jnp.where(batch.segment_ids > 0, 1.0, 0.0)

  def of(targets: jax.Array) -> jax.Array:
    logprobs, _ = logprobs_lib.chunked_logprobs(
      *(hidden, head, targets),
      temperature=1.0,
      chunk_tokens=chunk_tokens,
      mesh=mesh,
      mask=mask,
    )
    return jnp.where(mask > 0, logprobs, 0.0)

  if batch.targets.ndim == 2:
    return of(batch.targets)
  # One pass over the logits for each of the K targets of a position.
  by_target = jax.lax.map(of, jnp.moveaxis(batch.targets, -1, 0))
  return jnp.moveaxis(by_target, 0, -1)


def _backward(
  score: Any,
  loss_fn: losses.LossFn,
  trained: Params,
  grads: Params,
  batches: LossRows,
  count: Int[Array, ""],
  fixed: Fixed,
  config: losses.Config,
) -> tuple[Params, Float[Array, " A"], Float[Array, "A B S ..."]]:
  """Adds the gradients of a loss on the first `count` batches to `grads`."""

  def loss(trained: Params, batch: LossRows) -> tuple[jax.Array, jax.Array]:
    logprobs = score(trained, batch, fixed)
    value = loss_fn(
      losses.LossInputs(logprobs, batch.inputs, config, batch.segment_ids)
    )
    is_token = jnp.reshape(
      batch.segment_ids > 0,
      (*batch.segment_ids.shape, *[1] * (value.ndim - 2)),
    )
    return jnp.sum(jnp.where(is_token, value, 0.0)), logprobs

  def add(
    index: Int[Array, ""] | int, found: tuple[Params, jax.Array, jax.Array]
  ) -> tuple[Params, jax.Array, jax.Array]:
    grads, totals, logprobs = found
    (total, of_batch), new = jax.value_and_grad(loss, has_aux=True)(
      trained, update.micro_batch(batches, index)
    )
    return (
      jax.tree.map(jnp.add, grads, new),
      totals.at[index].set(total),
      logprobs.at[index].set(of_batch),
    )

  most, shape = len(batches.tokens), batches.targets.shape
  start = grads, jnp.zeros(most), jnp.zeros(shape)
  if most == 1:
    return add(0, start)
  return jax.lax.fori_loop(0, count, add, start)


def _step(
  state: TrainState, grads: Params, adam: Adam
) -> tuple[TrainState, Metrics]:
  """Takes a step of AdamW, unless a gradient is infinite or NaN."""
  norm = optax.tree.norm(grads)
  is_over = (adam.grad_clip_norm > 0) & (norm > adam.grad_clip_norm)
  factor = jnp.where(is_over, adam.grad_clip_norm / norm, 1.0)
  grads = jax.tree.map(lambda x: x * factor, grads)
  updates, opt_state = adam.optimizer().update(
    grads, state.opt_state, state.params
  )
  after = state.replace(
    step=state.step + 1,
    params=optax.apply_updates(state.params, updates),
    opt_state=opt_state,
  )
  is_finite = jnp.isfinite(norm)
  state = jax.tree.map(lambda x, y: jnp.where(is_finite, x, y), after, state)
  return state, {"grad_norm": norm, "skipped": 1.0 - is_finite}


def as_arrays(numbers: Any) -> Any:
  """Returns a tree of Python numbers as float32 scalars, which are traced."""
  return jax.tree.map(np.float32, numbers)
