"""PyTorch's decoder computes what ours does, with and without a cache."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from typed import instance_of, present

from azr_jax.models import presets, transformer

CONFIG = dataclasses.replace(presets.PRESETS["azr-tiny"], qkv_bias=True)
TOKENS = np.random.default_rng(0).integers(1, CONFIG.vocab_size, (2, 6))


def tensor(x):
  """Returns a float32 tensor of an array."""

  import torch

  return torch.tensor(np.asarray(x, np.float32))


@pytest.fixture(scope="module")
def both():
  """Returns our parameters, and PyTorch's decoder with the same ones."""

  import torch

  from azr_jax.lab.bench import torch_decoder

  model = transformer.Transformer(CONFIG)
  init = jax.jit(lambda key: transformer.init_params(model, key))
  params = jax.tree.map(
    lambda x: x + 0.01 * np.sin(np.arange(x.size)).reshape(x.shape),
    jax.device_get(init(jax.random.key(0))),
  )
  params = jax.tree.map(lambda x: x.astype(np.float32), params)
  decoder = torch_decoder.make(CONFIG, torch.float32)
  D = CONFIG.hidden_size
  with torch.no_grad():
    decoder.embedding.copy_(tensor(params["embedding"]))
    decoder.final_norm.copy_(tensor(params["final_norm"]["scale"]))
    for index, module in enumerate(decoder.layers):
      layer = instance_of(torch_decoder.Layer, module)
      one = jax.tree.map(lambda x, i=index: tensor(x[i]), params["layers"])
      mlp, heads = one["mlp"], one["attention"]
      qkv = [heads[name] for name in "qkv"]
      layer.qkv.copy_(torch.cat([x["kernel"].reshape(D, -1) for x in qkv], 1).T)
      present(layer.qkv_bias).copy_(
        torch.cat([x["bias"].reshape(-1) for x in qkv])
      )
      layer.out.copy_(heads["o"]["kernel"].reshape(-1, D).T)
      gate_up = [mlp[name]["kernel"] for name in ("gate", "up")]
      layer.gate_up.copy_(torch.cat(gate_up, 1).T)
      layer.down.copy_(mlp["down"]["kernel"].T)
      layer.attention_norm.copy_(one["attention_norm"]["scale"])
      layer.mlp_norm.copy_(one["mlp_norm"]["scale"])
  return params, decoder


def states(decoder, caches):
  """Returns PyTorch's states, token by token if there are caches."""

  import torch

  tokens, found = torch.tensor(TOKENS), []
  steps = tokens.split(1 if caches else tokens.shape[1], dim=1)
  first = 0
  for part in steps:
    positions = torch.arange(first, first + part.shape[1])
    angles = decoder.angles(positions, torch.float32)
    x = decoder.embedding[part]
    for index, layer in enumerate(decoder.layers):
      cache = None
      if caches:
        room = slice(0, first + 1)
        cache = (*(kept[index][:, :, room] for kept in caches), positions)
      x = layer(x, angles, cache)
    found.append(decoder.final(x))
    first += part.shape[1]
  return torch.cat(found, dim=1).detach().numpy()


@pytest.mark.parametrize("cached", [False, True])
def test_states_equal_ours(both, cached):
  import torch

  params, decoder = both
  positions = np.broadcast_to(np.arange(TOKENS.shape[1]), TOKENS.shape)
  want, _ = jax.jit(transformer.Transformer(CONFIG).apply)(
    {"params": params}, jnp.asarray(TOKENS), jnp.asarray(positions)
  )
  shape = (CONFIG.num_layers, len(TOKENS), CONFIG.num_kv_heads)
  shape = (*shape, TOKENS.shape[1], CONFIG.head_size)
  caches = (torch.zeros(shape), torch.zeros(shape)) if cached else ()
  np.testing.assert_allclose(states(decoder, caches), want, atol=2e-4)


@pytest.mark.slow
def test_recomputed_layers_learn_the_same(both):
  import torch

  from azr_jax.lab.bench import torch_decoder

  _, decoder = both
  start = {name: x.clone() for name, x in decoder.state_dict().items()}
  after = []
  for recomputes in (False, True):
    decoder.load_state_dict(start)
    torch.manual_seed(0)
    run = torch_decoder.updater(decoder, 2, 8, 5, recomputes)
    assert run() > 0
    after.append(decoder.layers[0].qkv.detach().clone())
  assert not torch.equal(after[0], start["layers.0.qkv"])
  torch.testing.assert_close(after[0], after[1], rtol=0, atol=1e-7)
