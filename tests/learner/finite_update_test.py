"""Updates with a non-finite loss, gradients or parameters."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny_updates
from typed import instance_of, present

from azr_jax.learner import learner
from azr_jax.learner.actor_critic import ActorCritic
from azr_jax.learner.objective import Fixed
from azr_jax.learner.optimizer import make_optimizer
from azr_jax.learner.settings import OptimizerSettings
from azr_jax.learner.train_state import TrainState
from azr_jax.parallel import mesh as mesh_lib

HUGE = 1e38


def make(mesh, rate=1e-3, minibatches=0, **optimizer):
  """Returns an AdamW learner and its state before the first update.

  Without minibatches it has no critic.
  """
  numbers = vars(OptimizerSettings(learning_rate=rate, **optimizer))
  chosen = make_optimizer(**numbers)
  loss_fn = tiny_updates.policy_loss(mesh)
  parts = None
  if minibatches:
    parts = learner.CriticParts(
      chosen,
      gamma=1.0,
      gae_lambda=1.0,
      num_minibatches=minibatches,
      value_clip=0.0,
      grad_clip=numbers["grad_clip"],
      head_init="code",
      normalize=False,
      seed=3,
    )
  made = learner.make(
    tiny_updates.MODEL, loss_fn, chosen, mesh, tiny_updates.RULES, parts
  )
  abstract = made.abstract
  if minibatches:
    abstract = instance_of(ActorCritic, abstract).policy
  shardings = jax.tree.map(lambda x: x.sharding, abstract.params)
  params = tiny_updates.init(jax.random.key(0))
  return made, made.init(jax.device_put(params, shardings))


def poisoned(batch, value):
  """Replaces the advantage of one sequence in a batch."""
  advantages, segments = map(np.array, (batch.advantages, batch.segment_ids))
  advantages[0, 0][segments[0, 0] == 1] = value
  return batch.replace(advantages=advantages)


def equal(one, other):
  jax.tree.map(np.testing.assert_array_equal, one, other)


@functools.cache
def learner_over(sizes):
  """Returns a learner over a mesh of these sizes, with its state; cached."""
  axes = dict(zip(tiny_updates.AXES, sizes, strict=False))
  mesh = mesh_lib.make_mesh(axes, jax.devices()[: int(np.prod(sizes))])
  made, state = make(mesh, decay_steps=5, warmup_steps=2)
  return made, jax.device_get(state), jax.tree.map(lambda x: x.sharding, state)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, HUGE])
@pytest.mark.parametrize(
  "sizes", [pytest.param((1, 1, 1), marks=pytest.mark.slow), (1, 4, 2)]
)
def test_a_step_that_is_not_finite_changes_nothing(value, sizes):
  """The next step runs as if the skipped one had never happened."""
  batch = tiny_updates.batch_of(8)
  made, start, shardings = learner_over(sizes)
  state = jax.device_put(start, shardings)
  state, clean = made.update(state, batch, Fixed())
  assert (clean["learner/skipped"], clean["learner/nonfinite"]) == (0, 0)
  before = jax.device_get(state)
  state, metrics = made.update(state, poisoned(batch, value), Fixed())
  equal(jax.device_get(state), before)
  assert (metrics["learner/skipped"], metrics["learner/nonfinite"]) == (1, 0)
  assert not np.isfinite(metrics["learner/grad_norm"])
  state, _ = made.update(state, batch, Fixed())
  other = jax.device_put(start, shardings)
  for _ in range(2):
    other, _ = made.update(other, batch, Fixed())
  equal(jax.device_get(state), jax.device_get(other))
  assert int(instance_of(TrainState, state).step) == 2


def test_a_batch_without_targets_changes_nothing():
  """Moments and weight decay would otherwise still move the parameters."""
  batch = tiny_updates.batch_of(8)
  made, start, shardings = learner_over((1, 1, 1))
  state, trained = made.update(jax.device_put(start, shardings), batch, Fixed())
  before = jax.device_get(state)
  empty = jax.tree.map(lambda x: np.zeros_like(np.asarray(x)), batch)
  state, metrics = made.update(state, empty, Fixed())
  equal(jax.device_get(state), before)
  assert (trained["learner/tokens"] > 0) and metrics["learner/tokens"] == 0
  assert (metrics["learner/skipped"], metrics["learner/loss"]) == (0, 0)


def test_parameters_that_overflow_are_counted(one_device_mesh):
  made, state = make(one_device_mesh, rate=HUGE, weight_decay=1000.0)
  state, metrics = made.update(state, tiny_updates.batch_of(8), Fixed())
  assert metrics["learner/skipped"] == 0
  leaves = jax.tree.leaves(jax.device_get(state.params))
  count = sum(np.sum(~np.isfinite(leaf)) for leaf in leaves)
  assert metrics["learner/nonfinite"] == count > 0


@pytest.mark.slow
def test_a_critic_leaves_out_its_own_steps(one_device_mesh):
  made, state = make(one_device_mesh, minibatches=3)
  items = tiny_updates.sequences(20)
  batch = jax.tree.map(jnp.asarray, tiny_updates.batch_of(4, items=items))
  before = jax.device_get(state)
  state, metrics = made.update(state, poisoned(batch, np.nan), Fixed())
  state = instance_of(ActorCritic, state)
  equal(jax.device_get(state.policy), before.policy)
  assert metrics["learner/skipped"] == 1 and metrics["critic/nonfinite"] == 0
  # Two of three minibatches do not contain the sequence with a NaN reward.
  assert metrics["critic/skipped"] == 1 and metrics["critic/updates"] == 3
  assert int(state.critic.step) == 2
  state, metrics = made.update(state, batch, Fixed())
  assert metrics["learner/skipped"] == metrics["critic/skipped"] == 0


def test_no_second_copy_of_the_state_is_held(one_device_mesh):
  """Selecting between whole states would hold three times the parameters."""
  made, state = make(one_device_mesh)
  size = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
  compiled = made.policy_update.lower(
    state, tiny_updates.batch_of(8), Fixed()
  ).compile()
  memory = present(compiled.memory_analysis())
  assert memory.alias_size_in_bytes >= size
  assert memory.output_size_in_bytes - memory.alias_size_in_bytes < 1000
