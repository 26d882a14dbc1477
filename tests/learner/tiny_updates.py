"""A tiny model with batches and updates for tests."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from azr_jax.learner import (
  corrections,
  objective,
  packing,
  policy_losses,
  train_state,
  update,
)
from azr_jax.learner.objective import Fixed
from azr_jax.learner.settings import LearnerSettings
from azr_jax.models import transformer
from azr_jax.models.config import ModelConfig

CONFIG = ModelConfig(
  vocab_size=64,
  hidden_size=32,
  num_layers=2,
  num_heads=4,
  num_kv_heads=2,
  head_size=8,
  mlp_size=32,
  rope_theta=1e4,
  norm_eps=1e-6,
  tie_embeddings=True,
  max_positions=64,
)
# The axes of meshes whose sizes are listed without names.
AXES = ("data", "fsdp", "tensor", "context")
MODEL = transformer.Transformer(CONFIG)
RULES = {
  "vocab": "tensor",
  "embed": "fsdp",
  "heads": "tensor",
  "kv_heads": "tensor",
  "head_size": None,
  "mlp": "tensor",
  "layers": None,
}
LOSS: dict[str, Any] = dict(
  clip_low=0.2,
  clip_high=0.2,
  entropy_coef=0.01,
  kl_coef=0.0,
  kl_estimator="k3",
  chunk_tokens=16,
)


def policy_loss(mesh, on_policy=True, model=MODEL, correction="none", **loss):
  """Returns the policy's loss, with ratios to itself or to the sampler."""
  ratio_to = "proximal" if on_policy else "sampled"
  c = LearnerSettings(**LOSS | {"ratio_to": ratio_to} | loss)
  return objective.make_policy_loss(
    model,
    policy_losses.make(c.policy_loss, c),
    temperature=1.0,
    chunk_tokens=c.chunk_tokens,
    mesh=mesh,
    entropy_coef=c.entropy_coef,
    kl_coef=c.kl_coef,
    kl_estimator=c.kl_estimator,
    ratio_to=c.ratio_to,
    correct=corrections.make(correction, c.corrections),
  )


@jax.jit
def init(key):
  """Initializes parameters on one device; compiled once for all tests."""
  return transformer.init_params(MODEL, key)


def sequences(count=6, seed=0):
  rng = np.random.default_rng(seed)
  out = []
  for _ in range(count):
    length = int(rng.integers(5, 14))
    ids = rng.integers(1, CONFIG.vocab_size, length).astype(np.int32)
    logps = rng.normal(-3, 0.3, length).astype(np.float32)
    mask = np.arange(length) >= 3
    out.append(packing.TrainingExample(ids, mask, float(rng.normal()), logps))
  return out


def batch_of(rows, row_length=16, items=None, aggregation="token_mean"):
  packed = packing.pack(
    items or sequences(),
    row_length=row_length,
    rows_multiple=rows,
    aggregation=aggregation,
  )
  return update.to_micro_batches(packed, rows)


@jax.jit
def scored(batch):
  """Returns a batch's log-probabilities under the start of `updated`."""
  params = init(jax.random.key(0))
  return jax.lax.map(
    lambda micro: objective.score(MODEL, params, micro, 1.0, 16, None)[0],
    jax.tree.map(jnp.asarray, batch),
  )


@functools.cache
def sgd_state(mesh):
  """Returns an SGD optimizer, the shardings of its state, and its `init`."""
  optimizer = optax.sgd(1.0)
  shardings = train_state.state_shardings(
    transformer.abstract_params(MODEL), optimizer, mesh, RULES
  )
  return optimizer, shardings, train_state.make_init_state(optimizer, shardings)


@functools.cache
def sgd_update(mesh, on_policy, model, **loss):
  """Returns the update of `updated`, compiled once for each batch shape."""
  optimizer, shardings, _ = sgd_state(mesh)
  loss_fn = policy_loss(mesh, on_policy, model, **loss)
  return update.make_update(loss_fn, optimizer, shardings, mesh)


def updated(
  mesh, batch, on_policy=False, reference=None, model: Any = MODEL, **loss
):
  _, shardings, init_state = sgd_state(mesh)
  params = jax.device_put(init(jax.random.key(0)), shardings.params)
  update_fn: Any = sgd_update(mesh, on_policy, model, **loss)
  programs = update_fn._cache_size()
  new_state, metrics = update_fn(
    init_state(params), batch, Fixed(reference=reference)
  )
  assert update_fn._cache_size() <= programs + 1
  return jax.device_get(new_state.params), jax.device_get(metrics)


def close(one, other, atol=1e-5):
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=atol),
    one,
    other,
  )
