"""The experts that tokens are sampled with reach the learner."""

import dataclasses
import functools
import json

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from azr_jax import types
from azr_jax.learner import objective, packing
from azr_jax.models import pages, presets, transformer
from azr_jax.models.config import ClampedSwiglu, ExpertShape
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.rollout import partial_rollouts, steps
from azr_jax.rollout.policy import Policy
from azr_jax.rollout.preemption import PageAllocator
from azr_jax.rollout.sampler import Sampler
from azr_jax.rollout.stream import SampleKey
from azr_jax.rollout.weights import Weights
from tests import rollout_model
from tests.typed import present

CONFIG = dataclasses.replace(
  rollout_model.CONFIG,
  family="qwen3_moe",
  qk_norm=True,
  num_heads=4,
  num_kv_heads=2,
  experts=ExpertShape(8, 3, 16),
)
MODEL = transformer.Transformer(CONFIG)
GPT_OSS = dataclasses.replace(
  CONFIG,
  family="gpt_oss",
  qk_norm=False,
  **dict(qkv_bias=True, o_bias=True, sinks=True, windows=(8, 0)),
  experts=ExpertShape(8, 3, 16, biases=True, clamp=ClampedSwiglu(1.702, 0.5)),
)
RULES = rollout_model.RULES | {"experts": "expert"}
SETTINGS = dataclasses.replace(rollout_model.SETTINGS, page_size=8)
REPLAY = packing.RouterReplay(CONFIG.num_layers, ExpertShape(8, 3, 16))
PROMPTS = ["to be or not", "a", "to be or so"]


@functools.cache
def params(config=CONFIG):
  rng = np.random.default_rng(0)
  return jax.tree.map(
    lambda x: jnp.asarray(0.5 * rng.normal(size=x.shape), x.dtype),
    nn.unbox(transformer.abstract_params(transformer.Transformer(config))),
  )


@functools.cache
def sampler_of(mesh, settings, config=CONFIG):
  model = transformer.Transformer(config)
  return Sampler(model, rollout_model.ByteTokenizer(), mesh, RULES, settings)


def policy_of(mesh, config=CONFIG, **changes):
  sampler = sampler_of(mesh, dataclasses.replace(SETTINGS, **changes), config)
  return Policy(
    *(sampler, rollout_model.ByteTokenizer()),
    *(Weights(sampler.compute_params(params(config))), jax.random.key(7)),
  )


def sampled(mesh, n=2, config=CONFIG, **changes):
  """Returns (prompt, completion) pairs."""
  policy = policy_of(mesh, config, **changes)
  prompts = [policy.prompt(text) for text in PROMPTS]
  return [
    (prompts[number], completion)
    for number, _, completion in policy.sample(prompts, n)
  ]


def batch_of(pairs, replay=REPLAY, row_length=32):
  examples = [
    packing.from_trajectory(types.Trajectory(prompt, completion, 1.0, 0), 1.0)
    for prompt, completion in pairs
  ]
  return packing.pack(
    examples,
    row_length=row_length,
    rows_multiple=1,
    aggregation="token_mean",
    replay=replay,
  )


@functools.partial(jax.jit, static_argnames="config")
def scored(params, batch, config=CONFIG):
  """Returns log-probabilities of the targets, and the routing."""
  model = transformer.Transformer(config)
  logprobs, _ = objective.score(model, params, batch, 1.0, 64, None)
  return logprobs, objective.forward(model, params, batch)[1]


def assert_replayed(pairs, config=CONFIG):
  """Checks that the learner's experts are the sampler's, for all tokens."""
  for prompt, completion in pairs:
    length = len(prompt.token_ids) + len(completion.token_ids)
    assert present(completion.experts).shape[:2] == (length - 1, 2)
  batch = batch_of(pairs)
  logprobs, routing = scored(params(config), batch, config)
  is_real = batch.segment_ids > 0
  chosen = np.moveaxis(np.asarray(routing.chosen), 0, 2)[is_real]
  np.testing.assert_array_equal(chosen + 1, present(batch.experts)[is_real])
  # In float32, its own router would have chosen the same.
  assert not np.any(np.asarray(routing.differs)[:, is_real])
  gap = np.abs(logprobs - batch.sampled_logprobs) * batch.loss_mask
  assert np.max(gap) < 1e-4


def test_the_learner_gets_the_sampler_s_experts(one_device_mesh):
  """Samples share the pages of prompts, and these share a first page."""
  assert_replayed(sampled(one_device_mesh))
  assert (
    sampled(one_device_mesh, n=1, router_replay=False)[0][1].experts is None
  )


@pytest.mark.slow
def test_gpt_oss_replays_its_experts(one_device_mesh):
  assert_replayed(sampled(one_device_mesh, config=GPT_OSS), GPT_OSS)


def test_evaluations_read_no_experts(one_device_mesh):
  policy = policy_of(one_device_mesh)
  prompts = [policy.prompt("a")]
  with policy.with_key(policy.key) as eval_policy:
    [(_, _, evaluated)] = eval_policy.sample(prompts)
  [(_, _, trained)] = policy.sample(prompts)
  assert evaluated.experts is None and trained.experts is not None
  assert [*evaluated.token_ids] == [*trained.token_ids]


def test_preempted_sequences_keep_their_experts(one_device_mesh, monkeypatch):
  """Four slots with sequences of up to three pages share six pages."""
  preempted, preempt = [], PageAllocator._preempt
  monkeypatch.setattr(
    PageAllocator,
    "_preempt",
    lambda self, sequence: (preempted.append(1), preempt(self, sequence)),
  )
  page = 4 * 2 * 2 * 2 * 8 * 16 + 2 * 2 * 8 * 2
  pairs = sampled(one_device_mesh, cache_gib=6.5 * page / 2**30)
  assert preempted
  assert_replayed(pairs)


@pytest.mark.slow
def test_experts_split_over_devices_are_recorded():
  mesh = mesh_lib.make_mesh(
    {"data": 1, "expert": 2, "tensor": 2}, jax.devices()[:4]
  )
  assert_replayed(sampled(mesh))


@pytest.mark.slow
def test_other_weights_replay_the_sets_and_train_the_router(one_device_mesh):
  """As a learner in other precision, or after an update."""
  pairs = sampled(one_device_mesh)
  other = jax.tree.map(lambda x: 1.05 * x, params())
  router = other["layers"]["experts"]["router"]
  router["kernel"] = router["kernel"] + 0.3 * jnp.asarray(
    np.random.default_rng(1).normal(size=router["kernel"].shape)
  )
  batch = batch_of(pairs)
  is_real = batch.segment_ids > 0
  _, routing = scored(other, batch)
  chosen = np.moveaxis(np.asarray(routing.chosen), 0, 2)
  np.testing.assert_array_equal(
    chosen[is_real] + 1, present(batch.experts)[is_real]
  )
  assert np.any(np.asarray(routing.differs)[:, is_real])
  _, free = scored(other, batch.replace(experts=None))
  assert np.any(np.asarray(free.chosen) != np.asarray(routing.chosen))
  grad = jax.grad(lambda p: jnp.sum(scored(p, batch)[0]))(other)
  assert np.any(grad["layers"]["experts"]["router"]["kernel"])


def test_unknown_tokens_are_left_to_the_router(one_device_mesh):
  pairs = [
    (prompt, dataclasses.replace(c, experts=present(c.experts)[:5]))
    for prompt, c in sampled(one_device_mesh)
  ]
  part, whole = batch_of(pairs), batch_of(sampled(one_device_mesh))
  assert np.any(part.experts != whole.experts)
  np.testing.assert_array_equal(
    scored(params(), part)[0], scored(params(), whole)[0]
  )


def test_a_resumed_sequence_has_its_experts(one_device_mesh):
  """It is paused, saved as JSON and resumed with other weights."""
  sampler = sampler_of(one_device_mesh, SETTINGS)
  key = SampleKey(np.asarray([1, 2], np.uint32), 3)
  prompt = types.Prompt("", tuple(b"to be or not"))

  def run(params, step_tokens, known=()):
    stream = sampler.open(Weights(sampler.compute_params(params)))
    stream.restore(known)
    request, futures = stream.submit(prompt, 1, key, step_tokens=step_tokens)
    while not stream.is_empty:
      stream.send()
      stream.fetch()
    return request, futures[0].result()

  request, paused = run(params(), 4)
  assert paused.finish_reason == types.PAUSED
  sequence = partial_rollouts.sequence_of(request, 0, paused)
  saved = json.loads(json.dumps(partial_rollouts.sequence_to_json(sequence)))
  [known] = [partial_rollouts.sequence_from_json(saved)]
  first = present(paused.experts)
  np.testing.assert_array_equal(present(known.experts.take()), first)
  other = jax.tree.map(lambda x: -x, params())
  _, ended = run(other, 0, [known])
  assert len(present(ended.experts)) == 12 + len(ended.token_ids) - 1
  np.testing.assert_array_equal(present(ended.experts)[: len(first)], first)


@pytest.mark.slow
def test_replay_closes_the_gap_of_bfloat16(one_device_mesh):
  """Of `moe-tiny`, made more decided by larger embeddings."""

  class Silent(rollout_model.ByteTokenizer):
    def decode(self, ids, skip_special=False):
      return ""

  config = presets.PRESETS["moe-tiny"]
  shape = present(config.experts)
  exact = transformer.Transformer(config)
  model = exact.clone(dtype=jnp.dtype(jnp.bfloat16))
  weights = transformer.init_params(exact, jax.random.key(0))
  weights["embedding"] = weights["embedding"] * 5
  settings = dataclasses.replace(
    SETTINGS, slots=16, prompt_buckets=(64,), max_tokens=128, decode_chunk=16
  )
  sampler = Sampler(model, Silent(), one_device_mesh, RULES, settings)
  policy = Policy(
    *(sampler, Silent()),
    *(Weights(sampler.compute_params(weights)), jax.random.key(7)),
  )
  prompts = [policy.prompt(text * 3) for text in PROMPTS]
  pairs = [(prompts[n], c) for n, _, c in policy.sample(prompts, 8)]
  batch = batch_of(
    pairs, packing.RouterReplay(config.num_layers, shape), row_length=200
  )

  @jax.jit
  def gaps(batch):
    scores = objective.score(model, weights, batch, 1.0, 1024, None)[0]
    return jnp.abs(scores - batch.sampled_logprobs)

  is_target = batch.loss_mask > 0
  replayed, free = (
    np.asarray(gaps(b))[is_target] for b in (batch, batch.replace(experts=None))
  )
  # 0.012 and 0.030 nats; 0.04 and 0.44 nats at the 99th percentile.
  assert np.mean(replayed) < 0.6 * np.mean(free)
  assert np.quantile(replayed, 0.99) < 0.2 * np.quantile(free, 0.99)


def test_tokens_that_nobody_reads_get_no_expert():
  """As padding in prefill, and slots that are done in decoding."""
  pool = pages.init_pool((2, 2, 2, 8, 16), jnp.float32, CONFIG.experts)
  rows, zeros = jnp.arange(2, dtype=jnp.int32), jnp.zeros(2, jnp.int32)
  cache = pages.PagedCache(pool, rows[:, None], zeros, rows)
  tokens = np.asarray([[1, 2, 3, 0], [4, 0, 0, 0]])
  exists = np.asarray([[True, True, True, False], [False] * 4])
  run = jax.jit(functools.partial(steps.forward, MODEL, params()))
  (hidden, some), (want, every) = (
    run(tokens, np.arange(4)[None] + 0 * tokens, zeros, mask, cache)
    for mask in (exists, exists | True)
  )
  np.testing.assert_allclose(hidden[exists], want[exists], atol=1e-5)
  got, of_all = (
    np.moveaxis(x.experts, (1, 3), (0, 1)).reshape(2, 4, 2, -1)[..., :3]
    for x in (some, every)
  )
  np.testing.assert_array_equal(got[exists], of_all[exists])
  assert np.all(got[~exists] == 8) and np.all(of_all < 8)


def test_indices_have_the_smallest_dtype():
  assert ExpertShape(255, 8, 1).index_dtype == np.uint8
  assert ExpertShape(256, 8, 1).index_dtype == np.uint16
  with pytest.raises(ValueError, match="per_token from 1 to"):
    ExpertShape(4, 5, 1)
