"""GAE beside a plain loop; the critic's values, loss and updates."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import update_test

from azr_jax.learner import critic, gae, learner, packing, train_state, update
from azr_jax.learner.settings import CriticSettings
from azr_jax.models import transformer
from azr_jax.parallel import mesh as mesh_lib

MODEL, RULES = update_test.MODEL, update_test.RULES


def gae_of_one_row(values, rewards, mask, segments, gamma, lam):
  """The definition, sequence by sequence, over trained tokens alone."""
  advantages = np.zeros_like(values)
  for segment in np.unique(segments):
    places = np.flatnonzero((segments == segment) & (mask > 0))
    if segment == 0 or not len(places):
      continue
    own = values[places]
    following = np.append(own[1:], 0.0)
    reward = np.zeros(len(places))
    reward[-1] = rewards[places[-1]]
    delta = reward + gamma * following - own
    for index, place in enumerate(places):
      factors = (gamma * lam) ** np.arange(len(places) - index)
      advantages[place] = np.sum(factors * delta[index:])
  return advantages


def random_rows(seed, rows=3, length=24):
  """Rows of sequences, with prompts and gaps that nobody is trained on."""
  rng = np.random.default_rng(seed)
  values = rng.normal(size=(rows, length)).astype(np.float32)
  segments = np.zeros((rows, length), np.int32)
  rewards = np.zeros((rows, length), np.float32)
  for row in range(rows):
    cuts = np.sort(rng.choice(np.arange(1, length), 3, replace=False))
    for number, (a, b) in enumerate(zip(cuts[:-1], cuts[1:], strict=True)):
      segments[row, a:b] = number + 1
      rewards[row, a:b] = rng.normal()
  mask = (rng.random((rows, length)) < 0.7) * (segments > 0) * 1.0
  return values, rewards, mask.astype(np.float32), segments


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("gamma, lam", [(1, 1), (0.9, 0.95), (1, 0), (0.3, 1)])
def test_gae_equals_the_definition(seed, gamma, lam):
  values, rewards, mask, segments = random_rows(seed)
  found, returns = gae.estimate(
    values, rewards, mask, segments, gamma=gamma, gae_lambda=lam
  )
  for row in range(len(values)):
    want = gae_of_one_row(
      values[row], rewards[row], mask[row], segments[row], gamma, lam
    )
    np.testing.assert_allclose(found[row], want, atol=1e-5)
  np.testing.assert_allclose(returns, (found + values) * mask, atol=1e-6)


def test_at_one_and_one_it_is_reward_minus_value():
  values, rewards, mask, segments = random_rows(7)
  found, returns = gae.estimate(
    values, rewards, mask, segments, gamma=1.0, gae_lambda=1.0
  )
  np.testing.assert_allclose(found, (rewards - values) * mask, atol=1e-5)
  np.testing.assert_allclose(returns, rewards * mask, atol=1e-5)


def test_value_loss_takes_the_larger_of_both_errors():
  values, old, target = (
    jnp.array([x]) for x in ([1.0, 0.0, 0.3], [0.0, 0.0, 0.0], [1.0, 1.0, 1.0])
  )
  clipped = critic.value_loss(values, old, target, 0.2)
  np.testing.assert_allclose(clipped[0], [0.32, 0.5, 0.32], atol=1e-6)
  free = critic.value_loss(values, old, target, 0.0)
  np.testing.assert_allclose(free[0], [0.0, 0.5, 0.245], atol=1e-6)


@pytest.mark.parametrize("init, spread", [("paper", 5**0.5), ("code", 5 / 33)])
def test_the_critic_starts_as_the_policy_with_a_new_head(init, spread):
  params = transformer.init_params(MODEL, jax.random.key(0))
  own = critic.init_params(params, jax.random.key(1), init)
  head = own.pop(critic.HEAD)
  update_test.close(own, params, atol=0)
  assert head.shape == (MODEL.config.hidden_size,)
  assert 0.1 * spread < np.abs(head).max() < spread
  with pytest.raises(ValueError, match="head_init"):
    critic.init_params(params, jax.random.key(1), "other")


def rewarded(rows):
  """Packed sequences with a reward in place of an advantage."""
  return jax.tree.map(jnp.asarray, update_test.batch_of(rows))


def learn(mesh, updates, rows=2, gae_lambda=1.0):
  """One step of a learner with SGD, and what it started from."""
  settings = CriticSettings(gae_lambda=gae_lambda, num_minibatches=updates)
  parts = learner.CriticParts(settings, optax.sgd(0.1), normalize=True, seed=3)
  loss_fn = update.make_policy_loss(
    MODEL, on_policy=True, mesh=mesh, **update_test.LOSS
  )
  made = learner.make(MODEL, loss_fn, optax.sgd(1.0), mesh, RULES, parts)
  params = jax.jit(
    lambda key: transformer.init_params(MODEL, key),
    out_shardings=made.abstract.policy.params
    and jax.tree.map(lambda x: x.sharding, made.abstract.policy.params),
  )(jax.random.key(0))
  state = made.init(params)
  start = jax.device_get(state)
  state, metrics = made.update(state, rewarded(rows), None)
  return start, jax.device_get(state), jax.device_get(metrics)


def one_device():
  return mesh_lib.make_mesh(
    {"data": 1, "fsdp": 1, "tensor": 1}, jax.devices()[:1]
  )


def test_the_critic_learns_in_parts_as_a_plain_loop_does():
  start, end, metrics = learn(one_device(), updates=3, rows=1)
  batch = rewarded(1)
  old = jnp.stack(
    [
      critic.values(MODEL, start.critic.params, update.micro_batch(batch, i))
      for i in range(len(batch.tokens))
    ]
  )
  rewards = batch.advantages  # At (1, 1) the returns are the rewards.
  live = int(update.live_micro_batches(batch))
  assert live >= 3

  def loss(params, first, last):
    total, tokens = 0.0, 0.0
    for index in range(first, last):
      micro = update.micro_batch(batch, index)
      error = critic.value_loss(
        critic.values(MODEL, params, micro), old[index], rewards[index], 0.2
      )
      total += jnp.sum(error * micro.loss_mask)
      tokens += jnp.sum(micro.loss_mask)
    return total / tokens

  params = start.critic.params
  for step in range(3):
    grads = jax.grad(loss)(params, step * live // 3, (step + 1) * live // 3)
    params = jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)
  update_test.close(end.critic.params, params)
  assert metrics["critic/updates"] == 3
  moved = jax.tree.map(
    lambda a, b: np.abs(a - b).max(), end.critic.params, start.critic.params
  )
  assert all(x > 0 for x in jax.tree.leaves(moved))


def test_the_policy_learns_from_normalised_advantages():
  start, end, metrics = learn(one_device(), updates=1, gae_lambda=0.9)
  batch = rewarded(2)
  values = jnp.stack(
    [
      critic.values(MODEL, start.critic.params, update.micro_batch(batch, i))
      for i in range(len(batch.tokens))
    ]
  )
  flat = [
    np.asarray(x).reshape(-1, batch.tokens.shape[-1])
    for x in (values, batch.advantages, batch.loss_mask, batch.segment_ids)
  ]
  advantages = np.stack(
    [gae_of_one_row(*row, 1.0, 0.9) for row in zip(*flat, strict=True)]
  )
  trained = flat[2] > 0
  chosen = advantages[trained]
  advantages[trained] = (chosen - chosen.mean()) / chosen.std()
  batch = batch.replace(
    advantages=jnp.asarray(advantages).reshape(batch.tokens.shape)
  )
  boxed = transformer.abstract_params(MODEL)
  optimizer = optax.sgd(1.0)
  mesh = one_device()
  shardings = train_state.state_shardings(boxed, optimizer, mesh, RULES)
  state = train_state.make_init_state(optimizer, shardings)(start.policy.params)
  loss_fn = update.make_policy_loss(
    MODEL, on_policy=True, mesh=mesh, **update_test.LOSS
  )
  want, _ = update.make_update(loss_fn, optimizer, shardings, mesh)(
    state, batch, None
  )
  update_test.close(end.policy.params, jax.device_get(want.params))
  assert metrics["critic/advantage_std"] == pytest.approx(
    chosen.std(), rel=1e-4
  )


def test_a_mesh_changes_nothing():
  axes = {"data": 1, "fsdp": 4, "tensor": 2}
  mesh = mesh_lib.make_mesh(axes, jax.devices()[:8])
  _, alone, alone_metrics = learn(one_device(), updates=2, rows=4)
  _, spread, spread_metrics = learn(mesh, updates=2, rows=4)
  update_test.close(alone.critic.params, spread.critic.params)
  update_test.close(alone.policy.params, spread.policy.params)
  update_test.close(alone_metrics, spread_metrics)


def test_explained_variance_is_one_for_a_perfect_critic_and_falls():
  settings = CriticSettings(num_minibatches=1, value_clip=0.0)
  mesh = one_device()
  estimate = critic.make_estimate(MODEL, settings, mesh, normalize=False)
  params = critic.init_params(
    transformer.init_params(MODEL, jax.random.key(0)), jax.random.key(1), "code"
  )
  batch = rewarded(2)
  _, metrics = estimate(params | {critic.HEAD: params[critic.HEAD] * 0}, batch)
  assert metrics["critic/explained_variance"] == pytest.approx(0, abs=1e-5)
  _, metrics = estimate(
    params | {critic.HEAD: params[critic.HEAD] * 100}, batch
  )
  assert metrics["critic/explained_variance"] < 0


def test_packing_keeps_rewards_for_the_device():
  sequences = update_test.sequences()
  batch = packing.pack(
    sequences, row_length=16, rows_multiple=1, aggregation="token_mean"
  )
  rewards = {round(s.advantage, 5) for s in sequences}
  found = {round(float(x), 5) for x in batch.advantages[batch.loss_mask > 0]}
  assert found == rewards


def test_an_untied_model_has_a_critic_without_its_head():
  config = dataclasses.replace(MODEL.config, tie_embeddings=False)
  model = transformer.Transformer(config)
  params = transformer.init_params(model, jax.random.key(0))
  own = critic.init_params(params, jax.random.key(1), "code")
  assert "head" in params and "head" not in own
  assert own.keys() == critic.abstract_params(model).keys()
  micro = update.micro_batch(rewarded(2), 0)
  found = critic.values(model, own, micro)
  hidden, _ = model.apply(
    {"params": params}, micro.tokens, micro.positions, micro.segment_ids
  )
  np.testing.assert_allclose(found, hidden @ own[critic.HEAD], atol=1e-5)
