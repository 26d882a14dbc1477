"""Trains one state: a policy, or a policy with its critic.

The training loop calls `init`, `abstract` and `update` the same way for both.
`state.params` is the policy's.
"""

import dataclasses
from collections.abc import Callable
from typing import TypeAlias

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh
from jax.typing import DTypeLike

from azr_jax import types
from azr_jax.learner import (
  actor_critic,
  gap,
  preparation,
  rounding,
  train_state,
  value_model,
)
from azr_jax.learner import critic as critic_lib
from azr_jax.learner import critic_update as critic_update_lib
from azr_jax.learner import minibatches as minibatches_lib
from azr_jax.learner import update as update_lib
from azr_jax.learner.actor_critic import ActorCritic
from azr_jax.learner.entropy_target import EntropyTarget
from azr_jax.learner.objective import Fixed, MicroLoss
from azr_jax.learner.preparation import Prepare
from azr_jax.learner.rounding import Draws
from azr_jax.models import transformer
from azr_jax.parallel import compiler
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.randomness import keys
from azr_jax.randomness.purposes import Purpose
from azr_jax.types import BoxedParams, Metrics, Params, Rules, Shardings

State: TypeAlias = train_state.TrainState | ActorCritic


@dataclasses.dataclass(frozen=True)
class Learner:
  """The compiled programs of a learner.

  Attributes:
    init: `(params) -> state`: makes a fresh state from the parameters to train
      and donates them. `init(params, critic_params)` also donates
      `critic_params`.
    base: shapes, dtypes and shardings of the frozen parameters; {} without
      adapters.
    abstract: shapes, dtypes and shardings of a state.
    update: `(state, batch, fixed) -> (state, metrics)`, all epochs.
    make_reference: copies a policy's trained parameters for the reference.
    init_policy: the part of `init` that makes the policy's state.
    policy_update: the part of `update` that trains the policy.
    prepare: computes the whole-batch inputs of `policy_update`, if it needs
      any.
    copy_to_critic: makes critic parameters from the policy's. This and the rest
      are None without a critic.
    init_critic: makes the critic's state.
    estimate: computes advantages and returns.
    critic_update: trains the critic.
  """

  init: Callable[..., State]
  base: Params
  abstract: State
  update: Callable[..., tuple[State, Metrics]]
  make_reference: jax.stages.Wrapped
  init_policy: jax.stages.Wrapped
  policy_update: update_lib.Update
  prepare: Prepare | None = None
  copy_to_critic: jax.stages.Wrapped | None = None
  init_critic: jax.stages.Wrapped | None = None
  estimate: critic_lib.Estimate | None = None
  critic_update: update_lib.Update | None = None


@dataclasses.dataclass(frozen=True)
class CriticParts:
  """The critic's optimizer and hyperparameters.

  Attributes:
    optimizer: the critic's own optimizer.
    gamma: discount factor.
    gae_lambda: as in `gae.estimate`.
    num_minibatches: maximum number of optimizer steps per batch.
    value_clip: as in `critic_update.value_loss`.
    grad_clip: the gradient norm that the optimizer clips to; 0 if it does not.
    head_init: as in `value_model.init_params`.
    normalize: whether advantages get mean 0 and deviation 1 over trained
      tokens.
    seed: random seed of the value head and of rounding.
    aggregation: the aggregation that a batch's loss weights implement.
    penalty: the KL penalty of rewards, from `critic.make_kl_penalty`.
  """

  optimizer: optax.GradientTransformation
  gamma: float
  gae_lambda: float
  num_minibatches: int
  value_clip: float
  grad_clip: float
  head_init: str
  normalize: bool
  seed: int
  aggregation: str = "token_mean"
  penalty: critic_lib.Penalty | None = None


def make(
  model: transformer.Transformer,
  loss_fn: MicroLoss,
  optimizer: optax.GradientTransformation,
  mesh: Mesh,
  rules: Rules,
  critic: CriticParts | None = None,
  epochs: int = 1,
  minibatches: int = 1,
  options: compiler.Options = None,
  prepare: Prepare | None = None,
  entropy_target: EntropyTarget | None = None,
  base_dtype: DTypeLike | None = None,
  seed: int = 0,
) -> Learner:
  """Compiles the functions that initialize and update a policy.

  With `critic`, they do the same for its critic.

  Args:
    model: the decoder of both policy and critic.
    loss_fn: the policy's loss.
    optimizer: the policy's optimizer.
    mesh: the device mesh of state and batch.
    rules: logical axis to mesh axis.
    critic: parts of the critic. None trains without one.
    epochs: number of passes over each batch.
    minibatches: number of the policy's optimizer steps per pass.
    options: XLA compiler options.
    prepare: from `preparation.make_prepare`.
    entropy_target: adapts the entropy coefficient. None keeps the coefficient
      of the loss.
    base_dtype: dtype of a frozen base; None uses the model's compute type.
    seed: random seed of the policy's rounding.
  """
  boxed = transformer.abstract_trained(model)
  coef = None if entropy_target is None else entropy_target.start
  shardings = train_state.state_shardings(boxed, optimizer, mesh, rules, coef)
  init = train_state.make_init_state(optimizer, shardings, coef)
  policy_update = update_lib.make_update(
    loss_fn,
    optimizer,
    shardings,
    mesh,
    options,
    entropy_target,
    Draws(seed, rounding.POLICY),
    has_minibatches=minibatches > 1,
  )
  policy_pass = minibatches_lib.make_pass(policy_update, minibatches)
  policy_learner = Learner(
    init,
    abstract_base(model, mesh, rules, base_dtype or model.dtype),
    abstract_state(model, optimizer, mesh, rules, entropy_coef=coef),
    _repeated(policy_pass, epochs, prepare),
    _make_reference(model, shardings.params),
    init,
    policy_update,
    prepare,
  )
  if critic is None:
    return policy_learner
  abstract = abstract_state(
    model, optimizer, mesh, rules, critic.optimizer, coef
  )
  critic_shardings = train_state.state_shardings(
    value_model.abstract_params(model), critic.optimizer, mesh, rules
  )
  return _with_critic(
    dataclasses.replace(policy_learner, abstract=abstract),
    model,
    critic,
    critic_shardings,
    mesh,
    policy_pass,
    epochs,
    options,
  )


def _with_critic(
  policy_learner: Learner,
  model: transformer.Transformer,
  critic: CriticParts,
  shardings: train_state.TrainState,
  mesh: Mesh,
  policy_pass: minibatches_lib.Pass,
  epochs: int,
  options: compiler.Options,
) -> Learner:
  """Returns the learner of a policy and its critic.

  Args:
    policy_learner: the policy's learner, with the abstract state of both.
    model: the decoder of both policy and critic.
    critic: parts of the critic.
    shardings: the shardings of the critic's state.
    mesh: the device mesh of state and batch.
    policy_pass: trains the policy on each batch once.
    epochs: number of passes over each batch.
    options: XLA compiler options.
  """
  init_critic = train_state.make_init_state(critic.optimizer, shardings)
  make_critic_params = jax.jit(
    lambda params: value_model.init_params(
      params,
      model.config.hidden_size,
      keys.of(critic.seed, Purpose.VALUE_HEAD),
      critic.head_init,
    ),
    out_shardings=shardings.params,
  )

  def init_both(
    params: Params, critic_params: Params | None = None
  ) -> ActorCritic:
    # The critic comes first, because `init` donates the policy's parameters.
    if critic_params is None:
      critic_params = make_critic_params(params)
    critic_state = init_critic(critic_params)
    return ActorCritic(policy_learner.init_policy(params), critic_state)

  estimate = critic_lib.make_estimate(
    model,
    mesh,
    gamma=critic.gamma,
    gae_lambda=critic.gae_lambda,
    normalize=critic.normalize,
    penalty=critic.penalty,
    options=options,
  )
  critic_update = critic_update_lib.make_update(
    model,
    critic.optimizer,
    shardings,
    mesh,
    num_minibatches=critic.num_minibatches,
    value_clip=critic.value_clip,
    grad_clip=critic.grad_clip,
    aggregation=critic.aggregation,
    options=options,
    draws=Draws(critic.seed, rounding.CRITIC),
  )
  return dataclasses.replace(
    policy_learner,
    init=init_both,
    update=actor_critic.make_actor_critic_update(
      estimate,
      critic_update,
      policy_pass,
      epochs,
      policy_learner.prepare,
      uses_reference=critic.penalty is not None,
    ),
    copy_to_critic=make_critic_params,
    init_critic=init_critic,
    estimate=estimate,
    critic_update=critic_update,
  )


def _make_reference(
  model: transformer.Transformer, shardings: Shardings
) -> jax.stages.Wrapped:
  """Returns the jitted function that copies a policy for the KL term.

  The copy has the compute dtype. The reference's matrices are used in that
  dtype anyway, so results are the same and the copy takes half the memory.
  """

  def copy(params: Params) -> Params:
    # Without the copy, an unchanged output would alias the policy's array.
    return jax.tree.map(
      jnp.copy, transformer.compute_params(model.dtype, params)
    )

  return jax.jit(copy, out_shardings=shardings)


def restarted(state: State) -> State:
  """Returns the state for a new training stage; see `train_state.restarted`."""
  if isinstance(state, ActorCritic):
    return ActorCritic(
      train_state.restarted(state.policy), train_state.restarted(state.critic)
    )
  return train_state.restarted(state)


def _repeated(
  update: minibatches_lib.Pass, epochs: int, prepare: Prepare | None
) -> Callable[..., tuple[State, Metrics]]:
  """Returns an update of several epochs, with the last epoch's metrics.

  The gap to the sampler comes from the first epoch.
  """
  if epochs == 1 and prepare is None:
    return update

  def repeated(
    state: train_state.TrainState,
    batch: types.Batch,
    fixed: Fixed,
  ) -> tuple[train_state.TrainState, Metrics]:
    batch, prepared = preparation.prepared(prepare, state, batch, fixed)
    metrics: Metrics = {}
    for _ in range(epochs):
      state, latest = update(state, batch, fixed)
      metrics = gap.keep_first(metrics, latest)
    return state, prepared | metrics

  return repeated


def abstract_base(
  model: transformer.Transformer, mesh: Mesh, rules: Rules, dtype: DTypeLike
) -> Params:
  """Returns shapes, dtypes and shardings of a frozen base; {} without one.

  Args:
    model: the decoder.
    mesh: the device mesh of the base.
    rules: logical axis to mesh axis.
    dtype: the dtype of matrices and biases that have no dtype of 8 bits.
  """
  return abstract_frozen(
    transformer.abstract_base(model), model.kernel_dtype, mesh, rules, dtype
  )


def abstract_frozen(
  boxed: BoxedParams,
  kernel_dtype: jnp.dtype | None,
  mesh: Mesh,
  rules: Rules,
  dtype: DTypeLike,
) -> Params:
  """Returns shapes, dtypes and shardings of parameters that are not trained.

  Args:
    boxed: their shapes, with logical axes.
    kernel_dtype: 8-bit dtype of kernels; None: not quantized.
    mesh: as for `abstract_base`.
    rules: as for `abstract_base`.
    dtype: as for `abstract_base`.
  """
  shapes = mesh_lib.sharded_shapes(boxed, mesh, rules)

  def cast(
    path: jax.tree_util.KeyPath, leaf: jax.ShapeDtypeStruct
  ) -> jax.ShapeDtypeStruct:
    own = jnp.dtype(dtype)
    if transformer.is_float32(*(entry.key for entry in path)):
      own = jnp.dtype(jnp.float32)
    elif path[-1].key == "kernel" and kernel_dtype is not None:
      own = kernel_dtype
    return jax.ShapeDtypeStruct(leaf.shape, own, sharding=leaf.sharding)

  return jax.tree_util.tree_map_with_path(cast, shapes)


def abstract_state(
  model: transformer.Transformer,
  optimizer: optax.GradientTransformation,
  mesh: Mesh,
  rules: Rules,
  critic_optimizer: optax.GradientTransformation | None = None,
  entropy_coef: float | None = None,
) -> State:
  """Returns shapes, dtypes and shardings of a state, for restoring one.

  Args:
    model: the decoder.
    optimizer: the policy's optimizer.
    mesh: the device mesh of the state.
    rules: logical axis to mesh axis.
    critic_optimizer: the critic's optimizer. None without a critic.
    entropy_coef: as in `train_state.state_shardings`.
  """

  def abstract(
    boxed: BoxedParams,
    optimizer: optax.GradientTransformation,
    coef: float | None = None,
  ) -> train_state.TrainState:
    shardings = train_state.state_shardings(boxed, optimizer, mesh, rules, coef)
    return train_state.abstract_state(boxed, optimizer, shardings, coef)

  policy = abstract(
    transformer.abstract_trained(model), optimizer, entropy_coef
  )
  if critic_optimizer is None:
    return policy
  critic = abstract(value_model.abstract_params(model), critic_optimizer)
  return ActorCritic(policy, critic)
