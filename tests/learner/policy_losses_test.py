"""Policy losses and their gradients agree with plain loops over sequences.

The targets are packed as in training: several sequences in a row, targets that
the model did not write, padding.
"""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from azr_jax.config.settings import Invalid
from azr_jax.learner import (
  packing,
  policy_losses,
  surrogate_losses,
  token_selection,
)
from azr_jax.learner.policy_losses import POLICY_LOSSES
from azr_jax.learner.settings import LearnerSettings
from azr_jax.learner.surrogate_losses import Targets

# Three sequences in two rows, as (log ratios to the old policy, A). None marks
# targets that the model did not write. The third has one ratio of e^9.
SEQUENCES = (
  ([math.log(0.5), math.log(1.5), None, math.log(1.1)], 2.0),
  ([math.log(3.0), None, math.log(0.6)], -1.0),
  ([9.0, -0.1], -0.5),
)
OLD = -2.0
CLIP = dict(clip_low=0.2, clip_high=0.2, dual_clip=0.0)


def packed():
  """Packs the sequences as in training, as targets of one micro-batch."""
  examples = [
    packing.TrainingExample(
      token_ids=np.arange(len(ratios) + 1, dtype=np.int32),
      loss_mask=np.array([False, *(r is not None for r in ratios)]),
      advantage=advantage,
      logprobs=np.array([0.0, *(r or 0.0 for r in ratios)], np.float32),
    )
    for ratios, advantage in SEQUENCES
  ]
  batch = packing.pack(
    examples, row_length=8, rows_multiple=2, aggregation="sequence_mean"
  )
  # Packed as if they were the sampler's log-probabilities, so that log ratios
  # end up at the right positions.
  old = OLD * jnp.asarray(batch.segment_ids > 0)
  logprobs = old + batch.sampled_logprobs
  return batch, Targets(
    logprobs=logprobs,
    old_logprobs=old,
    sampled_logprobs=old,
    advantages=jnp.asarray(batch.advantages),
    mask=jnp.asarray(batch.loss_mask),
    segment_ids=jnp.asarray(batch.segment_ids),
    chosen=jnp.zeros(batch.tokens.shape),
  )


def total_and_gradient(name, **settings):
  """Returns the sum of weighted losses, and d(sum) / d(log p) per sequence."""
  batch, targets = packed()
  made = policy_losses.make(name, LearnerSettings(**settings))
  advantages = targets.advantages

  def total(logprobs):
    loss, _ = made.loss(targets.replace(logprobs=logprobs))
    return jnp.sum(batch.loss_weights * loss)

  value, grads = jax.jit(jax.value_and_grad(total))(targets.logprobs)
  advantages, grads = np.asarray(advantages), np.asarray(grads)
  found = {}
  for row in range(2):
    for segment in range(1, int(batch.segment_ids[row].max()) + 1):
      inside = batch.segment_ids[row] == segment
      key = round(float(advantages[row][inside].sum()), 3)
      found[key] = grads[row][inside]
  by_sequence = [
    found[round(a * sum(r is not None for r in ratios), 3)]
    for ratios, a in SEQUENCES
  ]
  return float(value), by_sequence


def expected(token):
  """Returns the total loss and its gradients, by a plain loop.

  Args:
    token: returns a token's loss and its derivative by log p.
  """
  value, grads = 0.0, []
  for ratios, advantage in SEQUENCES:
    written = [r for r in ratios if r is not None]
    weight = 1.0 / (len(SEQUENCES) * len(written))
    own = []
    for log_ratio in ratios:
      if log_ratio is None:
        own.append(0.0)
        continue
      loss, slope = token(log_ratio, advantage, written)
      value += weight * loss
      own.append(weight * slope)
    grads.append(own)
  return value, grads


def clipped(low, high, dual=0.0):
  def token(log_ratio, a, written):
    r = math.exp(log_ratio)
    bound = min(max(r, 1 - low), 1 + high)
    if dual and a < 0 and r > dual:
      return -dual * a, 0.0
    if bound * a < r * a:
      return -bound * a, 0.0
    return -r * a, -r * a

  return token


def cispo(high):
  def token(log_ratio, a, written):
    weight = min(math.exp(log_ratio), high)
    return -weight * a * (OLD + log_ratio), -weight * a

  return token


def gspo(low, high):
  def token(log_ratio, a, written):
    s = math.exp(sum(written) / len(written))
    bound = min(max(s, 1 - low), 1 + high)
    if bound * a < s * a:
      return -bound * a, 0.0
    # For a sequence of m targets, d(-s A) / d(log p_t) is -s A / m, and all m
    # targets have this loss.
    return -s * a, -s * a

  return token


def weighted(largest):
  def token(log_ratio, a, written):
    weight = min(math.exp(min(sum(written), 50)), largest)
    return -weight * a * (OLD + log_ratio), -weight * a

  return token


CASES = [
  ("clipped", dict(clip_low=0.2, clip_high=0.3), clipped(0.2, 0.3)),
  (
    "clipped",
    dict(clip_low=0.2, clip_high=0.2, dual_clip=2.5),
    clipped(0.2, 0.2, 2.5),
  ),
  ("cispo", dict(), cispo(5.0)),
  ("cispo", dict(cispo=policy_losses.CispoSettings(1.2)), cispo(1.2)),
  (
    "gspo",
    dict(gspo=policy_losses.GspoSettings(0.3, 0.4)),
    gspo(0.3, 0.4),
  ),
  ("gspo", dict(gspo=policy_losses.GspoSettings(0.9, 99.0)), gspo(0.9, 99)),
  ("sequence_weighted", dict(iw_clip_max=4.0), weighted(4.0)),
  ("clip_cov", dict(clip_low=0.2, clip_high=0.3), clipped(0.2, 0.3)),
  ("kl_cov", dict(), lambda x, a, _: (-math.exp(x) * a,) * 2),
]


@pytest.mark.parametrize("name, settings, token", CASES)
def test_a_loss_and_its_gradient_are_those_of_a_plain_loop(
  name, settings, token
):
  settings.setdefault("epochs", 2)
  value, grads = total_and_gradient(name, **settings)
  want, want_grads = expected(token)
  assert value == pytest.approx(want, rel=1e-5)
  for got, wanted in zip(grads, want_grads, strict=True):
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-7)


def test_every_loss_is_tested():
  assert {name for name, *_ in CASES} == set(POLICY_LOSSES)


def test_gspo_has_the_gradient_of_its_sequence_s_ratio():
  """Compares with automatic differentiation of eq. 5, with eq. 7's ratio."""
  _, targets = packed()
  ratios, advantage = SEQUENCES[0]
  written = jnp.array([r for r in ratios if r is not None])

  def objective(log_ratios):
    return -jnp.exp(jnp.mean(log_ratios)) * advantage

  want = jax.jit(jax.grad(objective))(written)
  row, start = np.argwhere(np.asarray(targets.advantages) == advantage)[0]
  segments, mask = map(np.asarray, (targets.segment_ids, targets.mask))
  inside = segments[row] == segments[row, start]
  weights = inside * mask[row] / len(written)

  def ours(logprobs):
    loss, _ = surrogate_losses.gspo(
      targets.replace(logprobs=logprobs), clip_low=0.9, clip_high=9.0
    )
    return jnp.sum(weights * loss[row])

  gradient = np.asarray(jax.jit(jax.grad(ours))(targets.logprobs))
  got = gradient[row][inside & (mask[row] > 0)]
  np.testing.assert_allclose(got, want, rtol=1e-5)


def test_a_sequence_s_weight_does_not_overflow():
  _, targets = packed()
  targets = targets.replace(logprobs=targets.logprobs + 1000.0)
  _, values = surrogate_losses.sequence_weighted(targets, iw_clip_max=4.0)
  weights = values["learner/weight"][targets.mask > 0]
  np.testing.assert_allclose(weights, 4.0, rtol=1e-5)


def test_on_policy_no_ratio_is_counted_as_clipped():
  _, targets = packed()
  _, values = surrogate_losses.clipped(targets, **CLIP)
  outside = float(jnp.sum(values["learner/clip_fraction"] * targets.mask))
  # 0.5, 1.5, 3, 0.6 and e^9 are outside [0.8, 1.2].
  assert outside == 5
  on_policy = targets.replace(is_on_policy=True)
  assert surrogate_losses.clipped(on_policy, **CLIP)[1] == {}


LOGPROBS = np.array([[-3.0, -0.1, -0.2], [-0.1, -4.0, 0.0]], np.float32)
ADVANTAGES = np.array([[-2.0, 1.0, 1.0], [-2.0, 1.0, 9.0]], np.float32)
MASK = np.array([[1.0, 1.0, 1.0], [1.0, 1.0, 0.0]], np.float32)


def covariances():
  """Returns covariances of targets whose mean log p is -1.48, mean A -0.2.

  The first one is 1.52 x 1.8 = 2.736.
  """
  return jax.jit(token_selection.covariances)(LOGPROBS, ADVANTAGES, MASK)


def test_covariances_are_products_of_distances_from_the_means():
  want = (LOGPROBS - -1.48) * (ADVANTAGES - -0.2)
  kept = MASK > 0
  np.testing.assert_allclose(covariances()[kept], want[kept], rtol=1e-5)
  population = np.cov(LOGPROBS[kept], ADVANTAGES[kept], bias=True)[0, 1]
  assert float(covariances()[kept].mean()) == pytest.approx(population)


@pytest.mark.parametrize("fraction, want", [(0.2, [0]), (0.4, [0, 2])])
def test_kl_cov_takes_the_largest_covariances(fraction, want):
  """The covariances are 2.736, 1.656, 1.536, -2.484 and -3.024."""
  chosen = token_selection.choose_kl_cov(
    covariances(), jnp.asarray(MASK), jax.random.key(0), fraction=fraction
  )
  flat = np.flatnonzero(np.asarray(chosen))
  order = np.argsort(-np.asarray(covariances())[MASK > 0])[: len(want)]
  np.testing.assert_array_equal(np.sort(order), flat)
  assert len(flat) == len(want)


def test_kl_cov_punishes_a_change_of_the_chosen_alone():
  _, targets = packed()
  chosen = jnp.zeros_like(targets.mask).at[0, 1].set(1.0)
  plain, _ = surrogate_losses.kl_cov(targets, coef=0.5)
  found, _ = surrogate_losses.kl_cov(targets.replace(chosen=chosen), coef=0.5)
  ratio = float(targets.logprobs[0, 1] - OLD)
  assert ratio != 0
  want = np.zeros(plain.shape)
  want[0, 1] = 0.5 * abs(ratio)
  np.testing.assert_allclose(found - plain, want, atol=1e-6)


def test_clip_cov_draws_between_its_limits_and_takes_their_gradient():
  choose = jax.jit(
    functools.partial(
      token_selection.choose_clip_cov, fraction=0.2, low=1.5, high=2.0
    )
  )
  found, drawn = covariances(), set()
  for seed in range(30):
    chosen = choose(found, jnp.asarray(MASK), jax.random.key(seed))
    (index,) = np.flatnonzero(np.asarray(chosen)).tolist()
    drawn.add(index)
  found = np.asarray(found)
  inside = (found > 1.5) & (found < 2.0) & (MASK > 0)
  assert drawn == set(np.flatnonzero(inside).tolist())
  assert len(drawn) == 2
  _, targets = packed()
  first = jnp.zeros_like(targets.mask).at[0, 0].set(1.0)
  loss, _ = surrogate_losses.clip_cov(targets.replace(chosen=first), **CLIP)
  plain, _ = surrogate_losses.clipped(targets, **CLIP)
  assert loss[0, 0] == 0 != plain[0, 0]
  np.testing.assert_array_equal(loss[0, 1:], plain[0, 1:])


def test_none_is_chosen_where_no_covariance_is_inside():
  chosen = token_selection.choose_clip_cov(
    covariances(),
    jnp.asarray(MASK),
    jax.random.key(0),
    fraction=1.0,
    low=50.0,
    high=60.0,
  )
  assert not chosen.any()


def test_a_penalty_of_rewards_needs_a_reward_per_token():
  with pytest.raises(Invalid, match="kl_in='reward': expected 'loss' with"):
    LearnerSettings(kl_in="reward", kl_coef=0.1)
  with pytest.raises(
    Invalid, match="kl_estimator='full': expected k1, k2 or k3 with"
  ):
    LearnerSettings(
      kl_in="reward", kl_coef=0.1, estimator="gae", kl_estimator="full"
    )
  with pytest.raises(Invalid, match="kl_in='reward': expected 'loss' with .*0"):
    LearnerSettings(kl_in="reward", estimator="gae")
  c = LearnerSettings(kl_in="reward", estimator="gae", kl_coef=0.1)
  assert (c.kl_reward_coef, c.kl_loss_coef) == (0.1, 0.0)


def test_a_penalty_that_is_always_zero_is_refused():
  with pytest.raises(
    Invalid, match="policy_loss='kl_cov'.*minibatches above 1"
  ):
    LearnerSettings(policy_loss="kl_cov")
  LearnerSettings(policy_loss="kl_cov", ratio_to="sampled")
