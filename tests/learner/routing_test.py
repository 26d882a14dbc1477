"""Updates of a model with experts: on eight devices, and their metrics."""

import dataclasses
import functools
import math

import flax.linen as nn
import jax
import numpy as np
import optax
import pytest
from learner import tiny_updates

from azr_jax.learner import train_state, update
from azr_jax.learner.objective import Fixed
from azr_jax.models import expert_sharding, experts, products, transformer
from azr_jax.models.config import ExpertShape
from azr_jax.parallel import mesh as mesh_lib

CONFIG = dataclasses.replace(
  tiny_updates.CONFIG, family="qwen3_moe", experts=ExpertShape(4, 2, 16)
)
MODEL = transformer.Transformer(CONFIG)
RULES = tiny_updates.RULES | {"experts": "expert"}


def start():
  """Returns random parameters."""
  rng = np.random.default_rng(0)
  return jax.tree.map(
    lambda x: np.asarray(0.3 * rng.normal(size=x.shape), x.dtype),
    nn.unbox(transformer.abstract_params(MODEL)),
  )


@functools.cache
def parts(mesh):
  """Returns what initializes and updates a state on a mesh."""
  model = MODEL.clone(
    multiply=products.make(mesh, RULES),
    compute_experts=expert_sharding.make(mesh, RULES, tokens=1),
  )
  optimizer = optax.sgd(1.0)
  shardings = train_state.state_shardings(
    transformer.abstract_params(model), optimizer, mesh, RULES
  )
  loss_fn = tiny_updates.policy_loss(mesh, False, model)
  return (
    train_state.make_init_state(optimizer, shardings),
    update.make_update(loss_fn, optimizer, shardings, mesh),
    shardings.params,
  )


def updated(mesh, params):
  init_state, update_fn, shardings = parts(mesh)
  state = init_state(jax.device_put(params, shardings))
  state, metrics = update_fn(state, tiny_updates.batch_of(4), Fixed())
  return jax.device_get(state.params), jax.device_get(metrics)


def test_eight_devices_equal_one(one_device_mesh):
  mesh = mesh_lib.make_mesh({"fsdp": 2, "expert": 2, "tensor": 2})
  gate = start()["layers"]["experts"]["gate"]["kernel"]
  _, _, shardings = parts(mesh)
  own = shardings["layers"]["experts"]["gate"]["kernel"]
  assert own.shard_shape(gate.shape) == (2, 2, 16, 8)
  tiny_updates.close(
    updated(mesh, start()), updated(one_device_mesh, start()), atol=2e-5
  )


def test_an_undecided_router_overloads_the_first_experts(one_device_mesh):
  params = start()
  router = params["layers"]["experts"][experts.ROUTER]
  router["kernel"] = np.zeros_like(router["kernel"])
  _, metrics = updated(one_device_mesh, params)
  assert metrics["learner/router_entropy"] == pytest.approx(math.log(4))
  # Two of four experts get all tokens.
  assert metrics["learner/expert_load"] == 2.0
  assert metrics["learner/expert_load_max"] == 2.0
  _, metrics = updated(one_device_mesh, start())
  assert 1.0 < metrics["learner/expert_load"] < 2.0
  assert "learner/expert_counts" not in metrics
