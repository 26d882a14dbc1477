"""The averaged teacher: values, skipped updates, adapters, shards."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import tiny_updates
from tiny_updates import CONFIG, MODEL, RULES, close, init

from azr_jax.learner import (
  averaging,
  distillation,
  objective,
  packing,
  policy_losses,
  train_state,
  update,
)
from azr_jax.learner.objective import Fixed
from azr_jax.learner.optimizer import make_optimizer
from azr_jax.learner.settings import LearnerSettings, OptimizerSettings
from azr_jax.models import products, splash, transformer
from azr_jax.parallel import mesh as mesh_lib

RATE = 0.25
SGD = optax.sgd(1.0)


def batch_of(seed):
  """Returns a micro-batch whose teacher reads other prompts."""
  rng = np.random.default_rng(seed)
  items = [
    dataclasses.replace(
      item,
      teacher_ids=np.append(
        rng.integers(1, CONFIG.vocab_size, 3), item.token_ids
      ).astype(np.int32),
    )
    for item in tiny_updates.sequences(seed=seed)
  ]
  rows = packing.pack(
    items,
    row_length=28,
    rows_multiple=6,
    aggregation="token_mean",
    teacher_row_length=48,
  )
  return update.to_micro_batches(rows, 6)


@functools.cache
def learner(optimizer, teacher, mesh=None):
  """Returns a fresh state's function and an update with distillation alone."""
  scoring = dict(temperature=1.0, chunk_tokens=16, mesh=mesh)
  model = MODEL
  if mesh is not None:
    multiply = products.make(mesh, RULES)
    attend = splash.make_attention(mesh, interpret=True)
    model = MODEL.clone(multiply=multiply, attend=attend)
  loss = objective.make_policy_loss(
    model,
    policy_losses.make("clipped", LearnerSettings()),
    distill=distillation.make(
      model,
      loss="forward_kl",
      weight=1.0,
      policy_weight=0.0,
      teacher=teacher,
      top_k=0,
      **scoring,
    ),
    **scoring,
  )
  mesh = mesh or mesh_lib.make_mesh({"data": 1}, jax.devices()[:1])
  shardings = train_state.state_shardings(
    transformer.abstract_params(MODEL), optimizer, mesh, RULES
  )
  start = train_state.make_init_state(optimizer, shardings)
  return start, update.make_update(loss, optimizer, shardings, mesh)


def average_of(state):
  assert isinstance(state.opt_state, averaging.AveragedState)
  return state.opt_state.average


def test_the_teacher_has_the_average_of_all_earlier_parameters():
  optimizer = averaging.averaged(SGD, RATE)
  start, step = learner(optimizer, "average")
  plain_start, plain_step = learner(SGD, "another")
  state, plain = (
    make(init(jax.random.key(0))) for make in (start, plain_start)
  )
  mean = jax.device_get(plain.params)
  for seed in range(4):
    batch = batch_of(seed)
    if seed == 2:  # Nothing to train on: the average stays, too.
      batch = batch.replace(loss_mask=np.zeros_like(batch.loss_mask))
    state, metrics = step(state, batch, Fixed())
    teacher = jax.tree.map(jnp.asarray, mean)
    plain, others = plain_step(plain, batch, Fixed(teacher=teacher))
    np.testing.assert_allclose(
      metrics["distill/loss"], others["distill/loss"], rtol=1e-5
    )
    after = jax.device_get(plain.params)
    if seed != 2:
      mean = jax.tree.map(lambda m, p: m + RATE * (p - m), mean, after)
    close(jax.device_get(state.params), after, atol=1e-6)
    close(jax.device_get(average_of(state)), mean, atol=1e-6)
  moved = jax.tree.map(lambda m, p: abs(m - p).max(), mean, after)
  assert max(jax.tree.leaves(moved)) > 1e-2


def test_eight_devices_average_like_one():
  optimizer = averaging.averaged(SGD, RATE)
  mesh = mesh_lib.make_mesh({"fsdp": 2, "tensor": 2, "context": 2})
  learners = [learner(optimizer, "average", x) for x in (None, mesh)]
  states = [make(init(jax.random.key(0))) for make, _ in learners]
  for seed in range(3):
    batch = batch_of(seed)
    states = [
      step(state, batch, Fixed())[0]
      for (_, step), state in zip(learners, states, strict=True)
    ]
  spread = jax.tree.leaves(average_of(states[1]))
  assert all(len(x.sharding.device_set) == 8 for x in spread)
  assert any(not x.sharding.is_fully_replicated for x in spread)
  one, eight = (jax.device_get((x.params, average_of(x))) for x in states)
  close(eight, one, atol=2e-6)
  first = jax.device_get(init(jax.random.key(0)))
  moved = jax.tree.map(lambda a, b: abs(a - b).max(), eight[1], first)
  assert max(jax.tree.leaves(moved)) > 1e-3


def test_the_average_follows_changes_that_bfloat16_loses():
  optimizer = averaging.averaged(SGD, RATE)
  params = {"w": jnp.ones(3, jnp.bfloat16)}
  wide = {"w": jnp.ones(3)}
  state = train_state.TrainState(jnp.int32(0), params, optimizer.init(wide))
  grads = {"w": jnp.array([1e-5, 0.0, -1e-5])}
  for is_finite, moved in ((False, 0.0), (True, RATE)):
    state = update.apply(optimizer, state, grads, jnp.bool_(is_finite))
    found = average_of(state)["w"] - 1.0
    np.testing.assert_allclose(found, -moved * grads["w"], atol=1e-7)


def test_a_teacher_has_the_base_below_averaged_adapters():
  base, adapters = {"layers": {"q": 1.0}}, {"layers": {"lora": 2.0}}
  fixed = Fixed(base, reference=adapters)
  state = averaging.AveragedState({"layers": {"lora": 3.0}}, ())
  found = averaging.with_teacher(fixed, state)
  assert found.teacher == {"layers": {"q": 1.0, "lora": 3.0}}
  assert found.reference == adapters
  assert averaging.with_teacher(fixed, ()) is fixed


def test_the_average_is_float32_and_lies_like_the_parameters():
  model = MODEL.clone(param_dtype=jnp.bfloat16)
  boxed = transformer.abstract_params(model)
  settings = OptimizerSettings(moments="int8", muon_learning_rate=0.02)
  optimizer = averaging.averaged(make_optimizer(**vars(settings)), RATE)
  mesh = mesh_lib.make_mesh({"fsdp": 4, "tensor": 2})
  shardings = train_state.state_shardings(boxed, optimizer, mesh, RULES)
  assert average_of(shardings) == shardings.params
  state = train_state.abstract_state(boxed, optimizer, shardings)
  kept = jax.tree.leaves(average_of(state))
  assert {x.dtype for x in kept} == {jnp.dtype(jnp.float32)}
