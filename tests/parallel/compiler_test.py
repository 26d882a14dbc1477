"""XLA options reach the programs of their platform."""

import types

import jax
import numpy as np
import optax
import pytest
from jax.sharding import Mesh
from typed import stand_in

from azr_jax.config.settings import Invalid
from azr_jax.learner import train_state, update
from azr_jax.learner.objective import Fixed
from azr_jax.models import transformer
from azr_jax.parallel.compiler import CompilerSettings
from tests.learner import tiny_updates


def mesh_on(platform):
  device = types.SimpleNamespace(platform=platform)
  return stand_in(Mesh, devices=np.array([device], object))


def test_each_platform_has_its_own():
  pairs = dict(tpu=("a=true", "b=x=1"), gpu=("c=2",))
  settings = CompilerSettings(**pairs, exact_rounding=False)
  assert settings.options(mesh_on("tpu")) == {"a": "true", "b": "x=1"}
  assert settings.options(mesh_on("gpu")) == {"c": "2"}
  assert settings.options(mesh_on("cpu")) is None
  exact = {"xla_allow_excess_precision": False}
  for platform in ("cpu", "gpu"):
    assert CompilerSettings().options(mesh_on(platform)) == exact


def test_an_option_without_a_value_is_refused():
  with pytest.raises(Invalid, match="tpu=.*expected strings of the form NAME="):
    CompilerSettings(tpu=("xla_dump",))


def test_the_update_is_compiled_with_them(one_device_mesh):
  optimizer = optax.sgd(1.0)
  shardings = train_state.state_shardings(
    transformer.abstract_params(tiny_updates.MODEL),
    optimizer,
    one_device_mesh,
    tiny_updates.RULES,
  )
  loss_fn = tiny_updates.policy_loss(one_device_mesh)
  state = jax.eval_shape(
    train_state.make_init_state(optimizer, shardings),
    jax.eval_shape(tiny_updates.init, jax.random.key(0)),
  )
  lowered = update.make_update(
    loss_fn, optimizer, shardings, one_device_mesh, {"no_such_option": "1"}
  ).lower(state, tiny_updates.batch_of(8), Fixed())
  with pytest.raises(jax.errors.JaxRuntimeError, match="no_such_option"):
    lowered.compile()
