"""What learns: a policy alone, or a policy and its critic, as one state.

The loop sees `init`, `abstract` and `update` alike for both; `state.params` is
the policy's.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import optax
from jax.sharding import Mesh

from azr_jax.learner import critic as critic_lib
from azr_jax.learner import train_state
from azr_jax.learner import update as update_lib
from azr_jax.learner.settings import CriticSettings
from azr_jax.models import transformer


@dataclasses.dataclass(frozen=True)
class Learner:
  """A learner's programs.

  Attributes:
    init: from the policy's parameters, which it uses up, to a fresh state;
      `init(params, critic_params)` takes those of a critic too.
    abstract: shapes, dtypes and shardings of a state.
    update: `(state, batch, ref_params) -> (state, metrics)`.
    policy_update: the program in it that learns the policy.
    estimate: the program in it that makes advantages, if there is a critic.
    critic_update: the program in it that learns the critic, if there is one.
  """

  init: Callable[..., Any]
  abstract: Any
  update: Callable[..., Any]
  policy_update: update_lib.Update
  estimate: Any | None = None
  critic_update: update_lib.Update | None = None


@dataclasses.dataclass(frozen=True)
class CriticParts:
  """What a critic needs besides the policy's parts.

  Attributes:
    settings: how the critic estimates and learns.
    optimizer: the critic's own optimizer.
    normalize: whether advantages get mean 0 and deviation 1 over the tokens
      that are trained on.
    seed: draws the value head.
  """

  settings: CriticSettings
  optimizer: optax.GradientTransformation
  normalize: bool
  seed: int


def make(
  model: transformer.Transformer,
  loss_fn: update_lib.MicroLoss,
  optimizer: optax.GradientTransformation,
  mesh: Mesh,
  rules: Mapping[str, str | None],
  critic: CriticParts | None = None,
) -> Learner:
  """Makes a learner.

  Args:
    model: the decoder that policy and critic are instances of.
    loss_fn: of the policy.
    optimizer: of the policy.
    mesh: where everything lies.
    rules: logical axis to mesh axis.
    critic: None: there is none.
  """
  boxed = transformer.abstract_params(model)
  shardings = train_state.state_shardings(boxed, optimizer, mesh, rules)
  init = train_state.make_init_state(optimizer, shardings)
  policy_update = update_lib.make_update(loss_fn, optimizer, shardings, mesh)
  if critic is None:
    abstract = abstract_state(model, optimizer, mesh, rules)
    return Learner(init, abstract, policy_update, policy_update)

  own_shardings = train_state.state_shardings(
    critic_lib.abstract_params(model), critic.optimizer, mesh, rules
  )
  own_init = train_state.make_init_state(critic.optimizer, own_shardings)
  key = jax.random.key(critic.seed)
  make_params = jax.jit(
    lambda params: critic_lib.init_params(
      params, key, critic.settings.head_init
    ),
    out_shardings=own_shardings.params,
  )

  def init_both(
    params: Any, critic_params: Any = None
  ) -> critic_lib.ActorCritic:
    if critic_params is None:  # Before the policy takes its parameters.
      critic_params = make_params(params)
    own = own_init(critic_params)
    return critic_lib.ActorCritic(init(params), own)

  estimate = critic_lib.make_estimate(
    model, critic.settings, mesh, critic.normalize
  )
  critic_update = critic_lib.make_update(
    model, critic.settings, critic.optimizer, own_shardings, mesh
  )
  return Learner(
    init_both,
    abstract_state(model, optimizer, mesh, rules, critic.optimizer),
    critic_lib.make_actor_critic_update(estimate, critic_update, policy_update),
    policy_update,
    estimate,
    critic_update,
  )


def abstract_state(
  model: transformer.Transformer,
  optimizer: optax.GradientTransformation,
  mesh: Mesh,
  rules: Mapping[str, str | None],
  critic_optimizer: optax.GradientTransformation | None = None,
) -> Any:
  """Shapes, dtypes and shardings of a state, for restoring one.

  Args:
    model: the decoder.
    optimizer: of the policy.
    mesh: where it lies.
    rules: logical axis to mesh axis.
    critic_optimizer: of the critic; None: there is none.
  """

  def of(boxed: Any, optimizer: optax.GradientTransformation) -> Any:
    shardings = train_state.state_shardings(boxed, optimizer, mesh, rules)
    return train_state.abstract_state(boxed, optimizer, shardings)

  policy = of(transformer.abstract_params(model), optimizer)
  if critic_optimizer is None:
    return policy
  critic = of(critic_lib.abstract_params(model), critic_optimizer)
  return critic_lib.ActorCritic(policy, critic)
