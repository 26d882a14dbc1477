"""A small model on bytes, with its sampler and its full forward pass."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from letters import Letters

from azr_jax.models import transformer
from azr_jax.models.config import ModelConfig
from azr_jax.rollout.build import shapes_of
from azr_jax.rollout.host_engine import PageEngine
from azr_jax.rollout.meter import Meter
from azr_jax.rollout.policy import Policy
from azr_jax.rollout.response_end import ResponseEnds
from azr_jax.rollout.sampler import Sampler
from azr_jax.rollout.settings import SamplerSettings
from azr_jax.rollout.stream import Stream
from azr_jax.rollout.weights import Weights


class ByteTokenizer(Letters):
  """Bytes as ids. Id 0 is the end-of-text token."""

  def encode(self, text):
    return list(text.encode("ascii"))

  def decode(self, ids, skip_special=False):
    return bytes(i for i in ids if i).decode("latin-1")


CONFIG = ModelConfig(
  vocab_size=128,
  hidden_size=32,
  num_layers=2,
  num_heads=2,
  num_kv_heads=1,
  head_size=16,
  mlp_size=32,
  rope_theta=1e4,
  norm_eps=1e-6,
  tie_embeddings=True,
  max_positions=64,
)
RULES = dict.fromkeys(
  ("vocab", "embed", "heads", "kv_heads", "head_size", "mlp", "layers")
) | {"mlp": "tensor"}
MODEL = transformer.Transformer(CONFIG)
TEXTS = ["a", "hello", "to be or not", "x = 1"]


# One cache length means one program. Few tests need more.
SETTINGS = SamplerSettings(
  slots=4,
  prompt_buckets=(16,),
  max_tokens=10,
  prefill_tokens=16,
  page_size=32,
  decode_chunk=3,
  stop_strings=(),
)


def new_sampler(mesh, settings):
  """Returns a sampler of the small model. Nothing is compiled yet."""
  return Sampler(MODEL, ByteTokenizer(), mesh, RULES, settings)


# Shared between tests, which otherwise spend most of their time compiling.
_shared_sampler = functools.cache(new_sampler)


def policy(params, mesh, make_sampler=_shared_sampler, **changes):
  """Returns a policy of the small model with changed settings."""
  sampler = make_sampler(mesh, dataclasses.replace(SETTINGS, **changes))
  return Policy(
    sampler,
    ByteTokenizer(),
    Weights(sampler.compute_params(params)),
    jax.random.key(7),
  )


def page_engine(settings, devices=1, num_pages=None):
  """Returns an engine on the host, with two slot counts."""
  slots = settings.slots
  per_device = slots // devices
  counts = (slots, -(-per_device // 4) * devices)
  return PageEngine(shapes_of(settings, devices, counts), num_pages)


def host_stream(engine, settings, meter=None, drafting=None):
  """Returns a stream on an engine without a device."""
  tokenizer = ByteTokenizer()
  return Stream(
    engine,
    tokenizer,
    ResponseEnds(tokenizer, settings.stop_strings),
    meter or Meter(),
    Weights({}),
    settings.max_tokens,
    shares_prefixes=settings.prefix_cache,
    drafting=drafting,
  )


@jax.jit
def full_forward(params, tokens):
  """Returns the logits [S, V] of one row of tokens."""
  hidden, _ = MODEL.apply(
    {"params": params}, tokens, jnp.arange(tokens.shape[1])[None]
  )
  return (hidden @ transformer.unembedding(params, CONFIG))[0]


def next_logits(params, ids):
  """Returns the logits after each id, from one forward pass without a cache.

  Ids are padded to a fixed shape. That changes nothing, as attention is causal.
  """
  tokens = np.zeros((1, 192), np.int32)
  tokens[0, : len(ids)] = ids
  return np.asarray(full_forward(params, tokens))[: len(ids)]


def next_logprobs(params, ids):
  """Returns log-probabilities of all tokens after each id."""
  logits = next_logits(params, ids).astype(np.float64)
  return logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)
