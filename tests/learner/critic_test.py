"""GAE, the critic's loss and its updates agree with plain loops."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiny_updates
from typed import instance_of, present

from azr_jax.lab.compile import collectives, hlo
from azr_jax.learner import (
  critic,
  gae,
  learner,
  packing,
  train_state,
  update,
  value_model,
)
from azr_jax.learner import critic_update as critic_update_lib
from azr_jax.learner.actor_critic import ActorCritic
from azr_jax.learner.objective import Fixed
from azr_jax.models import transformer
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.run import first_values

MODEL, RULES = tiny_updates.MODEL, tiny_updates.RULES
GAMMAS_AND_LAMBDAS = [(1.0, 1.0), (0.9, 0.95), (1.0, 0.0), (0.3, 1.0)]


def gae_of_one_row(values, rewards, mask, segments, gamma, lam):
  """Returns advantages by definition, over trained tokens only."""
  advantages = np.zeros_like(values)
  for segment in np.unique(segments):
    positions = np.flatnonzero((segments == segment) & (mask > 0))
    if segment == 0 or not len(positions):
      continue
    value = values[positions]
    next_value = np.append(value[1:], 0.0)
    reward = np.zeros(len(positions))
    reward[-1] = rewards[positions[-1]]
    delta = reward + gamma * next_value - value
    for index, position in enumerate(positions):
      factors = (gamma * lam) ** np.arange(len(positions) - index)
      advantages[position] = np.sum(factors * delta[index:])
  return advantages


def random_rows(seed, rows=3, length=24):
  """Draws rows of sequences, with some untrained tokens."""
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
  arrays = values, rewards, mask.astype(np.float32), segments
  return tuple(map(jnp.asarray, arrays))


@pytest.mark.parametrize("gamma, lam", GAMMAS_AND_LAMBDAS)
def test_gae_equals_the_definition(gamma, lam):
  values, rewards, mask, segments = random_rows(0, rows=15)
  advantages, returns = gae.estimate(
    values, rewards, mask, segments, gamma=gamma, gae_lambda=lam
  )
  rows = zip(*map(np.asarray, (values, rewards, mask, segments)), strict=True)
  want = np.stack([gae_of_one_row(*row, gamma=gamma, lam=lam) for row in rows])
  np.testing.assert_allclose(advantages, want, atol=1e-5)
  np.testing.assert_allclose(returns, (advantages + values) * mask, atol=1e-6)


def test_at_one_and_one_it_is_reward_minus_value():
  values, rewards, mask, segments = random_rows(7)
  advantages, returns = gae.estimate(
    values, rewards, mask, segments, gamma=1.0, gae_lambda=1.0
  )
  np.testing.assert_allclose(advantages, (rewards - values) * mask, atol=1e-5)
  np.testing.assert_allclose(returns, rewards * mask, atol=1e-5)


def test_each_token_s_penalty_lowers_its_reward():
  """At 1 and 1: R, less the penalties from the token on, less its value."""
  values, rewards, mask, segments = random_rows(3)
  penalties = np.random.default_rng(4).normal(size=values.shape)
  got, returns = gae.estimate(
    values,
    rewards,
    mask,
    segments,
    gamma=1.0,
    gae_lambda=1.0,
    penalties=jnp.asarray(penalties, jnp.float32),
  )
  mask, segments = np.asarray(mask), np.asarray(segments)
  for row, t in zip(*np.nonzero(mask), strict=True):
    later = (segments[row] == segments[row, t]) & (mask[row] > 0)
    later &= np.arange(len(later)) >= t
    want = float(rewards[row, t]) - penalties[row][later].sum()
    assert float(returns[row, t]) == pytest.approx(want, abs=1e-4)
    value = float(values[row, t])
    assert float(got[row, t]) == pytest.approx(want - value, abs=1e-4)


def test_a_kl_penalty_is_that_of_the_sampled_tokens(one_device_mesh):
  """It reaches the returns; without a reference's change it is the gap."""
  batch = jax.tree.map(jnp.asarray, rewarded(2))
  params = tiny_updates.init(jax.random.key(0))
  penalty = critic.make_kl_penalty(
    MODEL,
    coef=0.5,
    estimator="k1",
    temperature=1.0,
    chunk_tokens=16,
    mesh=one_device_mesh,
  )
  found = np.asarray(penalty(params, batch))
  for micro in range(len(found)):
    part = jax.tree.map(lambda x, i=micro: x[i], batch)
    hidden, _ = MODEL.apply(
      {"params": params}, part.tokens, part.positions, part.segment_ids
    )
    logits = hidden @ transformer.unembedding(params, MODEL.config)
    logp = jax.nn.log_softmax(logits)
    logp = jnp.take_along_axis(logp, part.targets[..., None], -1)[..., 0]
    want = 0.5 * (part.sampled_logprobs - logp) * part.loss_mask
    np.testing.assert_allclose(found[micro], want, atol=1e-5)
  kwargs = dict(gamma=1.0, gae_lambda=1.0, normalize=False)
  made = critic.make_estimate(MODEL, one_device_mesh, penalty=penalty, **kwargs)
  plain = critic.make_estimate(MODEL, one_device_mesh, **kwargs)
  head = value_model.init_params(params, 32, jax.random.key(1), "code")
  with_kl, metrics = made(head, batch, params)
  without, _ = plain(head, batch)
  assert float(metrics["learner/kl_penalty"]) == pytest.approx(
    found.sum() / float(batch.loss_mask.sum()), rel=1e-4
  )
  # The first token of each response loses the penalties of all of it.
  lost = np.asarray((without.returns - with_kl.returns) * batch.loss_mask)
  assert lost.sum() > found.sum() > 0


def test_value_loss_takes_the_larger_of_both_errors():
  values, old, target = (
    jnp.array([x]) for x in ([1.0, 0.0, 0.3], [0.0, 0.0, 0.0], [1.0, 1.0, 1.0])
  )
  clipped = critic_update_lib.value_loss(values, old, target, 0.2)
  np.testing.assert_allclose(clipped[0], [0.32, 0.5, 0.32], atol=1e-6)
  free = critic_update_lib.value_loss(values, old, target, 0.0)
  np.testing.assert_allclose(free[0], [0.0, 0.5, 0.245], atol=1e-6)


@pytest.mark.parametrize("init, spread", [("paper", 5**0.5), ("code", 5 / 33)])
def test_the_critic_starts_as_the_policy_with_a_new_head(init, spread):
  params = tiny_updates.init(jax.random.key(0))
  critic_params = value_model.init_params(
    params, MODEL.config.hidden_size, jax.random.key(1), init
  )
  head = critic_params.pop(value_model.HEAD)
  tiny_updates.close(critic_params, params, atol=0)
  assert head.shape == (MODEL.config.hidden_size,)
  assert 0.1 * spread < np.abs(head).max() < spread
  with pytest.raises(ValueError, match="head_init"):
    value_model.init_params(
      params, MODEL.config.hidden_size, jax.random.key(1), "other"
    )


@pytest.mark.parametrize("init, is_warned", [("paper", True), ("code", False)])
def test_first_values_of_the_paper_s_head_are_warned_of(init, is_warned):
  policy = tiny_updates.init(jax.random.key(0))
  params = value_model.init_params(
    policy, MODEL.config.hidden_size, jax.random.key(1), init
  )
  values = np.abs(values_of(params, rewarded(4)))
  said = first_values.warning({"critic/abs_value": values.mean()}, [0.0, 1.0])
  assert (said is not None) == is_warned


@jax.jit
def values_of(params, batch):
  """Returns V of every micro-batch."""
  return jax.lax.map(
    lambda micro: value_model.values(MODEL, params, micro), batch
  )


def rewarded(rows, aggregation="token_mean"):
  """Packs sequences with rewards."""
  items = tiny_updates.sequences(20)
  batch = tiny_updates.batch_of(rows, items=items, aggregation=aggregation)
  batch = batch.replace(advantages=None, rewards=batch.advantages)
  return jax.tree.map(jnp.asarray, batch)


MAX_NORM = 3.0  # Some critic steps exceed this.
# Arguments of `learn`.
GAE = dict(gamma=1.0, gae_lambda=0.9, normalize=True)
STEPS = dict(num_minibatches=3, value_clip=0.2, grad_clip=MAX_NORM)


@functools.cache
def make_learner(mesh, epochs=1):
  """Returns an SGD learner with three critic steps per epoch."""
  parts = learner.CriticParts(
    optax.sgd(0.1), **GAE, **STEPS, head_init="code", seed=3
  )
  loss_fn = tiny_updates.policy_loss(mesh, on_policy=epochs == 1)
  return learner.make(
    MODEL, loss_fn, optax.sgd(1.0), mesh, RULES, parts, epochs
  )


def learn(mesh, epochs=1, batch=None):
  """Runs one update of `make_learner`.

  Returns the state before, the state after, and the metrics.
  """
  made = make_learner(mesh, epochs)
  abstract = instance_of(ActorCritic, made.abstract)
  shardings = jax.tree.map(lambda x: x.sharding, abstract.policy.params)
  params = tiny_updates.init(jax.random.key(0))
  state = made.init(jax.device_put(params, shardings))
  start = jax.device_get(state)
  state, metrics = made.update(state, batch or rewarded(4), Fixed())
  return start, jax.device_get(state), jax.device_get(metrics)


@pytest.fixture(scope="module")
def learned(one_device_mesh):
  """Returns the states before and after an update, and its metrics."""
  return learn(one_device_mesh)


@pytest.fixture(scope="module")
def estimated(learned):
  """Returns values, advantages and returns, by definition."""
  start, _, _ = learned
  batch = rewarded(4)
  values = values_of(start.critic.params, batch)
  flat = [
    np.asarray(x).reshape(-1, batch.tokens.shape[-1])
    for x in (values, batch.rewards, batch.loss_mask, batch.segment_ids)
  ]
  advantages = np.stack(
    [
      gae_of_one_row(*row, gamma=1.0, lam=0.9)
      for row in zip(*flat, strict=True)
    ]
  ).reshape(batch.tokens.shape)
  return values, advantages, (advantages + values) * batch.loss_mask


def test_the_critic_learns_in_parts_as_a_plain_loop_does(learned, estimated):
  start, end, metrics = learned
  batch = rewarded(4)
  old, _, returns = estimated
  count = int(update.nonempty_micro_batches(batch))
  assert count >= 3

  @jax.jit
  def gradients(params, index):
    """Returns a micro-batch's gradients of the summed loss, and its tokens."""
    micro = update.micro_batch(batch, index)

    def loss(params):
      error = critic_update_lib.value_loss(
        value_model.values(MODEL, params, micro),
        old[index],
        returns[index],
        0.2,
      )
      return jnp.sum(error * micro.loss_mask)

    return jax.grad(loss)(params), jnp.sum(micro.loss_mask)

  params = start.critic.params
  norms = []
  for step in range(3):
    parts = [
      jax.device_get(gradients(params, index))
      for index in range(step * count // 3, (step + 1) * count // 3)
    ]
    grads, tokens = jax.tree.map(lambda *x: sum(x), *parts)
    squares = sum(np.sum(grad**2) for grad in jax.tree.leaves(grads))
    norms.append(np.sqrt(squares) / tokens)
    rate = 0.1 / tokens
    params = jax.tree.map(lambda p, g, rate=rate: p - rate * g, params, grads)
  tiny_updates.close(end.critic.params, params)
  assert metrics["critic/updates"] == 3
  assert metrics["critic/grad_norm"] == pytest.approx(np.mean(norms), rel=1e-3)
  clipped = np.mean([norm > MAX_NORM for norm in norms])
  assert metrics["critic/clipped_fraction"] == pytest.approx(clipped)
  moved = jax.tree.map(
    lambda a, b: np.abs(a - b).max(), end.critic.params, start.critic.params
  )
  assert all(x > 0 for x in jax.tree.leaves(moved))


def test_fewer_micro_batches_than_minibatches_have_one_step_each(
  one_device_mesh,
):
  kept = np.arange(len(rewarded(4).tokens)) < 2
  batch = jax.tree.map(
    lambda x: jnp.asarray(np.where(kept[:, None, None], x, 0), x.dtype),
    rewarded(4),
  )
  _, end, metrics = learn(one_device_mesh, batch=batch)
  assert metrics["learner/rows"] == 8  # Two micro-batches of four rows.
  assert metrics["critic/updates"] == end.critic.step == 2


@pytest.mark.parametrize(
  "aggregation",
  ["token_mean", "sequence_mean", "sequence_sum", "row_mean", "fixed_length"],
)
def test_a_minibatch_s_value_loss_is_aggregated_like_the_policy_s(aggregation):
  """Checks the closed-form gradient for a V that is a single number."""
  batch = rewarded(2, aggregation)
  returns = batch.rewards
  step = jnp.zeros((), jnp.int32)
  state = train_state.TrainState(step, {"value": jnp.zeros(())}, ())

  def loss_fn(params, micro, fixed):
    loss = critic_update_lib.value_loss(
      params["value"] * micro.batch.loss_mask,
      micro.old_values,
      micro.returns,
      0.0,
    )
    return jnp.sum(micro.batch.loss_weights * loss), {
      "sum": jnp.sum(loss * micro.batch.loss_mask)
    }

  _, grad = critic_update_lib._minibatch_gradients(
    loss_fn,
    state.params,
    critic.ValueBatch(batch, returns * 0, returns),
    Fixed(),
    critic_update_lib._fractions(batch, aggregation),
    jnp.int32(1),
    jnp.int32(3),
  )
  # By definition, sequence by sequence of the minibatch alone.
  part = jax.tree.map(lambda x: np.asarray(x[1:3]), batch)
  length = part.tokens.shape[-1]
  rows = [x.reshape(-1, length) for x in (part.segment_ids, part.loss_mask)]
  targets = part.rewards.reshape(-1, length)
  sums, counts, row_means = [], [], []
  for segments, mask, target in zip(*rows, targets, strict=True):
    for segment in range(1, segments.max() + 1):
      inside = (segments == segment) & (mask > 0)
      sums.append(-target[inside].sum())
      counts.append(inside.sum())
    if mask.any():
      row_means.append(-target[mask > 0].mean())
  sums, counts = np.array(sums), np.array(counts)
  want = {
    "token_mean": sums.sum() / counts.sum(),
    "sequence_mean": (sums / counts).mean(),
    "sequence_sum": sums.mean(),
    "row_mean": np.mean(row_means),
    "fixed_length": sums.mean() / length,
  }
  assert float(grad["value"]) == pytest.approx(want[aggregation], rel=1e-4)


@pytest.mark.slow
def test_advantages_stay_fixed_over_epochs(learned, one_device_mesh):
  """The second epoch uses values from before the critic's first update."""
  start, once, metrics = learned
  _, twice, again = learn(one_device_mesh, epochs=2)
  batch = rewarded(4)
  estimate = critic.make_estimate(MODEL, one_device_mesh, **GAE)
  boxed = value_model.abstract_params(MODEL)
  optimizer = optax.sgd(0.1)
  shardings = train_state.state_shardings(
    boxed, optimizer, one_device_mesh, RULES
  )
  critic_update = critic_update_lib.make_update(
    MODEL, optimizer, shardings, one_device_mesh, **STEPS
  )
  valued, _ = estimate(start.critic.params, batch)
  want = jax.tree.map(jnp.asarray, start.critic)
  for _ in range(2):
    want, _ = critic_update(want, valued.of(batch), Fixed())
  tiny_updates.close(twice.critic.params, jax.device_get(want.params))
  # Advantages of the updated critic would give a different result.
  late, _ = estimate(jax.tree.map(jnp.asarray, once.critic.params), batch)
  other, _ = critic_update(
    jax.tree.map(jnp.asarray, once.critic), late.of(batch), Fixed()
  )
  apart = jax.tree.map(
    lambda a, b: np.abs(a - b).max(), twice.critic.params, other.params
  )
  assert max(jax.tree.leaves(apart)) > 1e-4
  assert again["critic/explained_variance"] == pytest.approx(
    metrics["critic/explained_variance"]
  )


def test_the_policy_learns_from_normalized_advantages(
  learned, estimated, one_device_mesh
):
  start, end, metrics = learned
  batch = rewarded(4)
  advantages = estimated[1].copy()
  trained = np.asarray(batch.loss_mask) > 0
  sizes = np.abs(np.asarray(estimated[0])[trained])
  assert metrics["critic/abs_value"] == pytest.approx(sizes.mean(), rel=1e-4)
  chosen = advantages[trained]
  advantages[trained] = (chosen - chosen.mean()) / chosen.std()
  batch = batch.replace(advantages=jnp.asarray(advantages), rewards=None)
  boxed = transformer.abstract_params(MODEL)
  optimizer = optax.sgd(1.0)
  shardings = train_state.state_shardings(
    boxed, optimizer, one_device_mesh, RULES
  )
  state = train_state.make_init_state(optimizer, shardings)(start.policy.params)
  loss_fn = tiny_updates.policy_loss(one_device_mesh)
  want, _ = update.make_update(loss_fn, optimizer, shardings, one_device_mesh)(
    state, batch, Fixed()
  )
  tiny_updates.close(end.policy.params, jax.device_get(want.params))
  assert metrics["critic/advantage_std"] == pytest.approx(
    chosen.std(), rel=1e-4
  )


def test_a_mesh_changes_nothing(learned):
  axes = {"data": 1, "fsdp": 4, "tensor": 2}
  _, spread, spread_metrics = learn(mesh_lib.make_mesh(axes))
  _, alone, alone_metrics = learned
  tiny_updates.close(alone.critic.params, spread.critic.params)
  tiny_updates.close(alone.policy.params, spread.policy.params)
  tiny_updates.close(alone_metrics, spread_metrics)


def test_no_device_gathers_the_batch_to_estimate():
  mesh = mesh_lib.make_mesh(
    {"data": 1, "fsdp": 4, "tensor": 1}, jax.devices()[:4]
  )
  made = make_learner(mesh)
  by_row = mesh_lib.token_sharding(mesh, axis=1)
  shape = 5, 4, 48
  batch = jax.tree.map(
    lambda x: jax.ShapeDtypeStruct(shape, x.dtype, sharding=by_row), rewarded(4)
  )
  params = instance_of(ActorCritic, made.abstract).critic.params
  compiled = present(made.estimate).lower(params, batch).compile()
  sizes = [
    math.prod(size)
    for op in hlo.parse(present(compiled.as_text())).operations.values()
    if op.kind.removesuffix("-start") in collectives.KINDS
    for _, size in op.arrays
  ]
  # Weights are gathered, but never the batch, whose size no parameter shares.
  assert len(sizes) > 5 and math.prod(shape) not in sizes


SEGMENTS = np.array([[1, 1, 1, 1, 2, 2, 2, 0], [1, 1, 1, 1, 2, 2, 2, 2]])
TRAINED = np.array([[0, 1, 1, 1, 0, 1, 1, 0], [0, 0, 1, 1, 0, 1, 1, 1]])


def repetition_metrics(onsets, values, advantages):
  """Returns the metrics of four responses, and the tokens of each.

  Args:
    onsets: for some responses, the trained token from which they repeat.
    values: [2, 8].
    advantages: [2, 8].
  """
  repetition, tokens = np.zeros((2, 8)), {}
  for number in range(4):
    row, segment = divmod(number, 2)
    is_own = (SEGMENTS[row] == segment + 1) & (TRAINED[row] > 0)
    tokens[number] = [(row, i) for i in np.flatnonzero(is_own)]
    for place in tokens[number][onsets.get(number, 8) :]:
      repetition[place] = 1
  shape = (1, *SEGMENTS.shape)
  empty = jax.tree.map(
    lambda x: jnp.asarray(np.zeros(shape, x.dtype)), rewarded(4)
  )
  batch = empty.replace(
    repetition=jnp.asarray(repetition, jnp.float32)[None],
    loss_mask=jnp.asarray(TRAINED, jnp.float32)[None],
    segment_ids=jnp.asarray(SEGMENTS)[None],
  )
  found = jax.jit(critic._of_repetition)(
    jnp.asarray(values)[None], jnp.asarray(advantages)[None], batch
  )
  return (
    found["critic/advantage_on_repetition"],
    found["critic/value_fall_at_repetition"],
    tokens,
  )


@pytest.mark.parametrize("onsets", [{}, {1: 0}, {0: 2}, {0: 2, 1: 1, 2: 0}])
def test_what_the_critic_gives_to_repetition(onsets):
  rng = np.random.default_rng(3)
  values, advantages = rng.normal(size=(2, 2, 8)).astype(np.float32)
  advantage, fall, tokens = repetition_metrics(onsets, values, advantages)
  on = [advantages[t] for n, k in onsets.items() for t in tokens[n][k:]]
  falls = [
    np.mean([values[t] for t in tokens[n][:k]])
    - np.mean([values[t] for t in tokens[n][k:]])
    for n, k in onsets.items()
    if k
  ]
  for value, parts in ((advantage, on), (fall, falls)):
    if parts:
      assert value == pytest.approx(np.mean(parts), abs=1e-6)
    else:
      assert np.isnan(value)


def test_a_value_of_its_own_for_each_response_is_no_fall():
  """If responses were pooled, the long one's value would look like a fall."""
  values = np.where(SEGMENTS == 1, 1.0, -1.0)
  _, fall, _ = repetition_metrics({0: 2, 3: 1}, values, values)
  assert fall == 0


def test_explained_variance_is_zero_for_constant_values_and_falls(
  one_device_mesh,
):
  estimate = critic.make_estimate(
    MODEL, one_device_mesh, gamma=1.0, gae_lambda=1.0, normalize=False
  )
  params = value_model.init_params(
    tiny_updates.init(jax.random.key(0)),
    MODEL.config.hidden_size,
    jax.random.key(1),
    "code",
  )
  batch = rewarded(4)
  _, metrics = estimate(
    params | {value_model.HEAD: params[value_model.HEAD] * 0}, batch
  )
  assert metrics["critic/explained_variance"] == pytest.approx(0, abs=1e-5)
  _, metrics = estimate(
    params | {value_model.HEAD: params[value_model.HEAD] * 100}, batch
  )
  assert metrics["critic/explained_variance"] < 0


def test_a_batch_has_advantages_or_rewards():
  sequences = [
    dataclasses.replace(sequence, reward=float(number))
    for number, sequence in enumerate(tiny_updates.sequences())
  ]
  packing_of = functools.partial(
    packing.pack,
    sequences,
    row_length=16,
    rows_multiple=1,
    aggregation="token_mean",
  )
  batch = packing_of(for_critic=True)
  packed = present(batch.rewards)[batch.loss_mask > 0]
  assert set(packed.tolist()) == set(range(len(sequences)))
  assert batch.advantages is None
  assert packing_of().rewards is None and packing_of().advantages is not None


def test_an_untied_model_has_a_critic_without_its_head():
  config = dataclasses.replace(MODEL.config, tie_embeddings=False)
  model = transformer.Transformer(config)
  params = jax.jit(lambda key: transformer.init_params(model, key))(
    jax.random.key(0)
  )
  critic_params = value_model.init_params(
    params, MODEL.config.hidden_size, jax.random.key(1), "code"
  )
  assert "head" in params and "head" not in critic_params
  assert critic_params.keys() == value_model.abstract_params(model).keys()
  micro = update.micro_batch(rewarded(4), 0)
  values = jax.jit(lambda p: value_model.values(model, p, micro))(critic_params)
  hidden, _ = jax.jit(model.apply)(
    {"params": params}, micro.tokens, micro.positions, micro.segment_ids
  )
  want = hidden @ critic_params[value_model.HEAD]
  np.testing.assert_allclose(values, want, atol=1e-5)
