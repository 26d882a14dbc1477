"""Every family computes what transformers computes, however it is run."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from azr_jax.models import (
  pages,
  rope,
  safetensors_io,
  sampling_params,
  transformer,
  weight_loading,
)
from azr_jax.models.presets import parameter_count
from tests.models import family_cases, paged_rows
from tests.models.parity_test import RULES

TOKENS = family_cases.tokens()
PAGE = 4


@pytest.fixture(scope="module", params=family_cases.CASES)
def case(request, tmp_path_factory, one_device_mesh):
  """Loads a family's tiny checkpoint, with transformers' results."""
  folder = tmp_path_factory.mktemp(request.param)
  found = family_cases.write(request.param, folder)
  config = safetensors_io.read_config(folder)
  params = weight_loading.load_params(
    *(config, safetensors_io.SafetensorsReader(folder)),
    *(one_device_mesh, RULES),
  )
  return folder, found, rope.for_length(config, len(TOKENS)), params


def test_logits_alone_and_packed(case):
  """One row is the sequence, and the other packs two of its prefixes."""
  _, found, config, params = case
  lengths = 14, len(TOKENS) - 14
  row = np.concatenate([TOKENS[:n] for n in lengths])
  positions = np.concatenate([np.arange(n) for n in lengths])
  hidden, _ = jax.jit(transformer.Transformer(config).apply)(
    {"params": params},
    np.stack([TOKENS, row]),
    np.stack([np.arange(len(TOKENS)), positions]),
    np.stack([np.ones_like(TOKENS), np.repeat([1, 2], lengths)]),
  )
  logits = hidden @ transformer.unembedding(params, config)
  np.testing.assert_allclose(logits[0], found["logits"], atol=1e-5)
  want = np.concatenate([found["logits"][:n] for n in lengths])
  np.testing.assert_allclose(logits[1], want, atol=1e-5)


def test_greedy_text_by_cached_decoding(case):
  """The prompt is prefilled; tokens collect and move to pages half-way."""
  _, found, config, params = case
  model = transformer.Transformer(config, fused=True, unrolled=True)
  params = sampling_params.convert(model, params)
  head = transformer.unembedding(params, config)
  run = jax.jit(model.apply)
  shape = config.num_layers, 1, config.num_kv_heads, 32, config.head_size
  cache = paged_rows.empty_cache(shape, PAGE)
  prompt = TOKENS[None, : family_cases.PROMPT]
  at = np.arange(family_cases.PROMPT)[None]
  hidden, new = run({"params": params}, prompt, at, cache=cache)
  cache = paged_rows.write_rows(cache, new.k, new.v, np.zeros(1))
  cache = paged_rows.with_length(cache, [family_cases.PROMPT])
  hidden, half = hidden[:, -1:], family_cases.GREEDY // 2
  got, recent = [], None
  for step in range(family_cases.GREEDY):
    if recent is None or step == half:
      if recent is not None:
        entries = recent.entries
        cache = paged_rows.write_rows(cache, entries.k, entries.v, cache.length)
        cache = paged_rows.with_length(cache, cache.length + half)
      recent = pages.RecentKV(
        pages.no_entries(cache.pool, 1, half), jnp.int32(0)
      )
    got.append(int(jnp.argmax(hidden[0, -1] @ head)))
    hidden, new = run(
      *({"params": params}, np.asarray([[got[-1]]])),
      np.asarray([[family_cases.PROMPT + step]]),
      cache=cache,
      recent=recent,
    )
    recent = pages.RecentKV(
      pages.append(recent.entries, new, recent.count), recent.count + 1
    )
  assert got == found["greedy"].tolist()


def test_what_is_saved_is_what_was_loaded(case, tmp_path):
  folder, _, config, params = case
  safetensors_io.save(params, config, tmp_path, dtype="float32")
  want, got = (
    safetensors.numpy.load_file(path / "model.safetensors")
    for path in (folder, tmp_path)
  )
  assert want.keys() == got.keys()
  jax.tree.map(np.testing.assert_array_equal, got, want)
  again = safetensors_io.read_config(tmp_path)
  assert again == rope.for_length(config, 0)


def test_counts_and_initial_norms(case):
  *_, config, params = case
  assert parameter_count(config) == sum(x.size for x in jax.tree.leaves(params))
  shapes = nn.unbox(
    transformer.abstract_params(transformer.Transformer(config))
  )
  assert jax.tree.map(jnp.shape, params) == jax.tree.map(jnp.shape, shapes)
