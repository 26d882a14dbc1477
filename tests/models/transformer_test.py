"""Invariances of the decoder: cache, packing, remat, backends."""

import dataclasses
import functools
import types

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import paged_rows
import pytest
from jax.sharding import Mesh
from typed import present, stand_in

from azr_jax.models import attention, pages, transformer
from azr_jax.models.config import ModelConfig
from azr_jax.models.presets import parameter_count

CONFIG = ModelConfig(
  vocab_size=97,
  hidden_size=32,
  num_layers=2,
  num_heads=4,
  num_kv_heads=2,
  head_size=8,
  mlp_size=48,
  rope_theta=1e4,
  norm_eps=1e-6,
  tie_embeddings=True,
  max_positions=64,
  qk_norm=True,
)
MODEL = transformer.Transformer(CONFIG)


@pytest.fixture(scope="module")
def params():
  """Returns random parameters without compiling the model's initializers."""
  rng = np.random.default_rng(0)
  return jax.tree.map(
    lambda x: jnp.asarray(0.2 * rng.normal(size=x.shape), x.dtype),
    nn.unbox(transformer.abstract_params(MODEL)),
  )


@jax.jit
def run(params, tokens, positions, segment_ids=None, cache=None, recent=None):
  """Runs the decoder, compiled once per set of shapes."""
  return MODEL.apply(
    {"params": params}, tokens, positions, segment_ids, cache, recent
  )


def tokens_of(rows, length, seed=0):
  rng = np.random.default_rng(seed)
  return jnp.asarray(rng.integers(0, CONFIG.vocab_size, (rows, length)))


def positions_of(tokens):
  return jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)


def test_parameter_count_formula(params):
  total = sum(leaf.size for leaf in jax.tree.leaves(params))
  assert total == parameter_count(CONFIG)


@pytest.mark.parametrize(
  "chunk", [pytest.param(1, marks=pytest.mark.slow), 5, 100]
)
def test_cached_decode_of_ragged_prompts_equals_full_pass(params, chunk):
  tokens, lengths, prompt = tokens_of(3, 20), np.array([5, 11, 8]), 12
  full, _ = run(params, tokens, positions_of(tokens))
  c = CONFIG
  shape = (c.num_layers, 3, c.num_kv_heads, 24, c.head_size)
  cache = paged_rows.empty_cache(shape, chunk)
  padded = jnp.where(
    jnp.arange(prompt)[None] < lengths[:, None], tokens[:, :prompt], 0
  )
  hidden, new = run(params, padded, positions_of(padded), cache=cache)
  cache = paged_rows.write_rows(cache, new.k, new.v, np.zeros(3))
  cache = paged_rows.with_length(cache, lengths)
  for row, length in enumerate(lengths):
    np.testing.assert_allclose(
      hidden[row, :length], full[row, :length], atol=1e-5
    )
  recent = pages.RecentKV(pages.no_entries(cache.pool, 3, 4), jnp.int32(0))
  for step in range(8):
    at = jnp.asarray(lengths + step)[:, None]
    one = jnp.take_along_axis(tokens, at, axis=1)
    hidden, new = run(params, one, at, cache=cache, recent=recent)
    want = jnp.take_along_axis(full, at[..., None], axis=1)
    np.testing.assert_allclose(hidden, want, atol=1e-5)
    if step < 4:  # The first four collect, as within one decode call.
      recent = pages.RecentKV(
        pages.append(present(recent).entries, new, jnp.int32(step)),
        jnp.int32(step + 1),
      )
    if step == 3:
      entries = present(recent).entries
      cache = paged_rows.write_rows(cache, entries.k, entries.v, cache.length)
      cache = paged_rows.with_length(cache, cache.length + 4)
      recent = None
    if step >= 4:
      cache = paged_rows.write_rows(cache, new.k, new.v, cache.length)
      cache = paged_rows.with_length(cache, cache.length + 1)


def test_packed_segments_equal_separate_rows(params):
  tokens = tokens_of(2, 9)
  apart, _ = run(params, tokens, positions_of(tokens))
  packed, _ = run(
    params,
    tokens.reshape(1, 18),
    positions_of(tokens).reshape(1, 18),
    jnp.repeat(jnp.array([1, 2]), 9)[None],
  )
  np.testing.assert_allclose(packed.reshape(2, 9, -1), apart, atol=1e-5)


@pytest.mark.parametrize(
  "changes",
  [
    {"remat": "full"},
    *(
      pytest.param(changes, marks=pytest.mark.slow)
      for changes in (
        {"remat": "dots"},
        {"remat": "offload"},
        {"inlined": True},
      )
    ),
    {"inlined": True, "remat": "dots"},
    {"inlined": True, "joined": True},
    {"config": dataclasses.replace(CONFIG, qkv_bias=True), "joined": True},
  ],
)
def test_how_a_model_computes_changes_no_gradient(params, changes):
  tokens = tokens_of(2, 7)
  model = MODEL.clone(config=changes.get("config", CONFIG))
  if model.config.qkv_bias:
    params = nn.unbox(transformer.abstract_params(model))
    params = jax.tree.map(
      lambda x: jnp.asarray(
        0.2 * np.sin(np.arange(x.size)).reshape(x.shape), x.dtype
      ),
      params,
    )

  @functools.partial(jax.jit, static_argnames="model")
  @jax.grad
  def gradient(params, model):
    hidden, _ = model.apply({"params": params}, tokens, positions_of(tokens))
    return jnp.sum(hidden**2)

  want = gradient(params, model=model)
  got = gradient(params, model=model.clone(**changes))
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, atol=2e-4), want, got
  )


def test_unrolled_layers_stack_gradients_before_their_use(params):
  tokens = tokens_of(1, 4)

  def norm(params, model):
    grads = jax.grad(
      lambda params: jnp.sum(
        model.apply({"params": params}, tokens, positions_of(tokens))[0]
      )
    )(params)
    return optax.tree.norm(grads)

  def barriers(model):
    return str(jax.make_jaxpr(norm, 1)(params, model)).count("barrier")

  assert barriers(MODEL.clone(inlined=True)) == 1
  assert barriers(MODEL) == 0


@pytest.mark.parametrize(
  "platform, sizes, layers, expected",
  [
    ("gpu", {}, 64, True),
    ("gpu", {}, 65, False),  # Compiling takes too long.
    ("gpu", {"fsdp": 2}, 8, False),
    ("gpu", {"expert": 2}, 8, False),
    ("tpu", {}, 8, False),
    ("cpu", {}, 8, False),
  ],
)
def test_auto_unrolls_shallow_models_on_one_gpu(
  platform, sizes, layers, expected
):
  mesh = stand_in(
    Mesh,
    devices=np.array([types.SimpleNamespace(platform=platform)]),
    shape={"fsdp": 1, "expert": 1} | sizes,
  )
  assert transformer.is_inlined("auto", layers, mesh) == expected
  assert transformer.is_inlined("unrolled", layers, mesh)
  assert not transformer.is_inlined("scan", layers, mesh)


def test_unembedding_is_the_tied_table(params):
  table = transformer.unembedding(params, CONFIG)
  np.testing.assert_array_equal(table, params["embedding"].T)


def test_a_program_of_separate_layers_traces_one_of_them():
  traced = []

  def attend(q, *others, **options):
    traced.append(q.shape)
    return attention.xla_attention(q, *others, **options)

  model = MODEL.clone(unrolled=True, attend=attend)
  params = nn.unbox(transformer.abstract_params(model))
  tokens = tokens_of(2, 8)
  jax.jit(model.apply).trace({"params": params}, tokens, tokens)
  assert len(traced) == 1
