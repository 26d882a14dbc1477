"""The state and the update of a policy with a critic."""

from collections.abc import Callable
from typing import TypeAlias

import flax.struct

from azr_jax import types
from azr_jax.learner import gap, minibatches, preparation, update
from azr_jax.learner.critic import Estimate
from azr_jax.learner.objective import Fixed
from azr_jax.learner.train_state import TrainState
from azr_jax.types import Metrics, Params


class ActorCritic(flax.struct.PyTreeNode):
  """The device state that a step updates when there is a critic."""

  policy: TrainState
  critic: TrainState

  @property
  def params(self) -> Params:
    """The policy's trained parameters."""
    return self.policy.params


# (ActorCritic, batch, fixed) -> (ActorCritic, metrics).
ActorCriticUpdate: TypeAlias = Callable[
  [ActorCritic, types.Batch, Fixed], tuple[ActorCritic, Metrics]
]


def make_actor_critic_update(
  estimate: Estimate,
  critic_update: update.Update,
  policy_pass: minibatches.Pass,
  epochs: int = 1,
  prepare: preparation.Prepare | None = None,
  uses_reference: bool = False,
) -> ActorCriticUpdate:
  """Returns `(ActorCritic, batch, fixed) -> (ActorCritic, metrics)`.

  Runs three programs in sequence; see `critic.py`. Advantages and
  returns are estimated once and stay fixed while the critic and policy updates
  run in every epoch, as in PPO.

  Args:
    estimate: computes advantages and returns.
    critic_update: from `critic_update.make_update`.
    policy_pass: from `minibatches.make_pass`.
    epochs: number of passes over a batch. Metrics come from the last epoch,
      except the gap to the sampler, which comes from the first.
    prepare: computes the whole-batch inputs of the policy update.
    uses_reference: whether rewards have a KL penalty.
  """

  def learn(
    state: ActorCritic, batch: types.Batch, fixed: Fixed
  ) -> tuple[ActorCritic, Metrics]:
    reference = ()
    if uses_reference:
      assert fixed.reference is not None
      reference = (fixed.whole(fixed.reference),)
    params = fixed.whole(state.critic.params)
    estimates, metrics = estimate(params, batch, *reference)
    value_batch = estimates.of(batch)
    policy, critic = state.policy, state.critic
    policy_batch, prepared = preparation.prepared(
      prepare, policy, value_batch.batch, fixed
    )
    metrics |= prepared
    for _ in range(epochs):
      critic, critic_metrics = critic_update(critic, value_batch, fixed)
      policy, policy_metrics = policy_pass(policy, policy_batch, fixed)
      policy_metrics = gap.keep_first(metrics, policy_metrics)
      metrics = metrics | critic_metrics | policy_metrics
    return ActorCritic(policy, critic), metrics

  return learn
