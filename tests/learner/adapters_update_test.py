"""Updates of adapters: the base stays, and neither mesh nor layout matters."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiny_updates
from tiny_updates import MODEL, RULES, batch_of, close, policy_loss

from azr_jax.learner import learner, packing
from azr_jax.learner.actor_critic import ActorCritic
from azr_jax.learner.learner import CriticParts
from azr_jax.learner.objective import Fixed
from azr_jax.models import (
  adapters,
  products,
  quantization,
  sampling_params,
  transformer,
)
from azr_jax.models.adapters import Lora
from azr_jax.parallel import mesh as mesh_lib
from tests.models import adapter_math

LORA = Lora(rank=2, alpha=4.0)
ADAPTED = MODEL.clone(lora=LORA)
MESH = {"data": 1, "fsdp": 4, "tensor": 2}


@jax.jit
def init_adapters(key):
  """Draws adapters; compiled once for all tests."""
  return transformer.init_adapters(ADAPTED, key)


@functools.cache
def started():
  """Returns a base, and adapters that already change the model."""
  base = tiny_updates.init(jax.random.key(0))
  trained = init_adapters(jax.random.key(1))
  noise = np.random.default_rng(0)
  trained = jax.tree.map(
    lambda x: x + 0.1 * noise.normal(size=x.shape).astype(np.float32), trained
  )
  return jax.device_get((base, trained))


@functools.cache
def sgd_learner(mesh, model, critic, **loss):
  """Returns the learner of `updated`, shared by tests."""
  return learner.make(
    model,
    policy_loss(mesh, model=model, **loss),
    optax.sgd(1.0),
    mesh,
    RULES,
    critic=critic,
  )


def updated(
  mesh, batch, model: Any = ADAPTED, critic=None, reference=None, **loss
):
  """Returns the state after one SGD step, and metrics."""
  made = sgd_learner(mesh, model, critic, **loss)
  base, trained = started()
  if model.unrolled or model.fused:
    base = sampling_params.arrange(model, jax.tree.map(jnp.asarray, base))
  base = jax.device_put(base, jax.tree.map(lambda x: x.sharding, made.base))
  policy = made.abstract
  if isinstance(policy, ActorCritic):
    policy = policy.policy
  shardings = jax.tree.map(lambda x: x.sharding, policy.params)
  state = made.init(jax.device_put(trained, shardings))
  fixed = Fixed(base, reference)
  state, metrics = made.update(state, batch, fixed)
  return jax.device_get((state, metrics))


def test_only_adapters_are_in_the_state():
  made = learner.make(
    ADAPTED,
    policy_loss(None, model=ADAPTED),
    optax.adam(1.0),
    mesh_lib.make_mesh({"data": 1}, jax.devices()[:1]),
    RULES,
  )
  names = {
    path[-2].key
    for path, _ in jax.tree_util.tree_leaves_with_path(made.abstract.params)
  }
  assert names == {f"{target}_lora" for target in adapters.TARGETS}
  sizes = [x.size for x in jax.tree.leaves(made.abstract.params)]
  count = adapters.parameter_count(ADAPTED.config, LORA)
  assert sum(sizes) == count
  everything = sum(x.size for x in jax.tree.leaves(made.abstract))
  assert everything == 3 * count + 2  # Moments; two counts of updates.


def test_gradients_are_those_of_the_whole_model(one_device_mesh):
  """Checks dL/dA = s x^T (dL/dy) B^T by way of dL/dW of the merged kernel.

  dL/dW = x^T (dL/dy) for the merged kernel W + s A B, so dL/dA = s dL/dW B^T
  and dL/dB = s A^T dL/dW.
  """
  batch = batch_of(8)
  state, _ = updated(one_device_mesh, batch)
  base, trained = started()
  merged = adapter_math.merge(base, trained, LORA)
  loss = policy_loss(one_device_mesh)
  micro = jax.tree.map(lambda x: jnp.asarray(x[0]), batch)
  whole = jax.jit(jax.grad(lambda p: loss(p, micro, Fixed())[0]))(merged)
  kernel = whole["layers"]["mlp"]["down"]["kernel"]
  own = trained["layers"]["mlp"]["down_lora"]
  scale = LORA.scale
  after = state.params["layers"]["mlp"]["down_lora"]
  close(
    own["a"] - after["a"], scale * np.einsum("lio,lro->lir", kernel, own["b"])
  )
  close(
    own["b"] - after["b"], scale * np.einsum("lir,lio->lro", own["a"], kernel)
  )


def test_a_mesh_and_packing_change_nothing(one_device_mesh):
  items = tiny_updates.sequences()
  packed = batch_of(8, items=items)
  alone, metrics = updated(one_device_mesh, packed)
  spread, spread_metrics = updated(mesh_lib.make_mesh(MESH), packed)
  close(spread.params, alone.params)
  assert spread_metrics["learner/loss"] == pytest.approx(
    metrics["learner/loss"], rel=1e-4, abs=1e-5
  )
  single = packing.pack(
    items,
    row_length=16,
    rows_multiple=8,
    aggregation="token_mean",
    max_sequences_per_row=1,
  )
  unpacked, _ = updated(
    one_device_mesh, tiny_updates.update.to_micro_batches(single, 8)
  )
  close(unpacked.params, alone.params)


@pytest.mark.parametrize(
  "layout", [{"unrolled": True, "fused": True}, {"fused": True}]
)
def test_a_shared_layout_changes_nothing(one_device_mesh, layout):
  plain, _ = updated(one_device_mesh, batch_of(8))
  shared, _ = updated(
    one_device_mesh, batch_of(8), model=ADAPTED.clone(**layout)
  )
  close(shared.params, plain.params)


def test_the_reference_is_the_base_with_its_first_adapters(one_device_mesh):
  _, trained = started()
  options = dict(kl_coef=0.1, entropy_coef=0.0)
  _, at_home = updated(
    one_device_mesh, batch_of(8), reference=trained, **options
  )
  assert at_home["learner/kl"] == pytest.approx(0, abs=1e-6)
  new = init_adapters(jax.random.key(2))
  _, moved = updated(one_device_mesh, batch_of(8), reference=new, **options)
  assert moved["learner/kl"] > 1e-4


@pytest.mark.slow
def test_the_critic_trains_adapters_and_its_head(one_device_mesh):
  critic = CriticParts(
    optax.sgd(0.1),
    gamma=1.0,
    gae_lambda=1.0,
    num_minibatches=2,
    value_clip=0.0,
    grad_clip=0.0,
    head_init="code",
    normalize=True,
    seed=0,
  )
  batch = batch_of(8)
  batch = batch.replace(advantages=None, rewards=batch.advantages)
  state, metrics = updated(one_device_mesh, batch, critic=critic)
  assert set(state.critic.params) == {"layers", "value_head"}
  _, trained = started()
  for before, after in zip(
    jax.tree.leaves(trained),
    jax.tree.leaves({"layers": state.critic.params["layers"]}),
    strict=True,
  ):
    assert before.shape == after.shape and np.abs(before - after).max() > 0
  assert metrics["critic/value_loss"] > 0
  spread, _ = updated(mesh_lib.make_mesh(MESH), batch, critic=critic)
  close(spread.critic.params, state.critic.params)
  close(spread.policy.params, state.policy.params)


@pytest.mark.parametrize("product", [products.multiply, products.multiply_rows])
@pytest.mark.parametrize("dtype", quantization.DTYPES)
def test_the_backward_pass_keeps_8_bits_of_a_frozen_kernel(product, dtype):
  rng = np.random.default_rng(0)
  x = jnp.asarray(rng.normal(size=(2, 3, 4, 5)), jnp.bfloat16)
  wide = jnp.asarray(rng.normal(size=(4, 5, 7, 6)), jnp.float32)
  kernel, _ = quantization.quantize(wide, quantization.DTYPES[dtype], (0, 1))

  def apply(x):
    return product(x, kernel, (None,) * 4, 2)

  y, backward = jax.vjp(apply, x)
  kept = [
    leaf for leaf in jax.tree.leaves(backward) if leaf.size >= kernel.size
  ]
  assert {x.dtype for x in kept} == {kernel.dtype}
  exact = np.asarray(kernel, np.float32)
  np.testing.assert_allclose(
    np.asarray(y, np.float32),
    np.einsum("bsij,ijkl->bskl", np.asarray(x, np.float32), exact),
    rtol=2e-2,
    atol=2e-2 * np.abs(np.asarray(y, np.float32)).max(),
  )
  grad = jnp.asarray(rng.normal(size=y.shape), jnp.bfloat16)
  want = np.einsum("bskl,ijkl->bsij", np.asarray(grad, np.float32), exact)
  np.testing.assert_allclose(
    np.asarray(backward(grad)[0], np.float32),
    want,
    rtol=2e-2,
    atol=2e-2 * np.abs(want).max(),
  )
