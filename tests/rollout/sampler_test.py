"""The sampler beside plain full-sequence sampling."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rollout_model import (
  MODEL,
  RULES,
  TEXTS,
  ByteTokenizer,
  next_logits,
  policy,
)

from azr_jax import types
from azr_jax.learner import packing, update
from azr_jax.models import transformer
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.rollout.token_sampling import SamplingParams


def sampled_raw(policy, **options):
  prompts = [policy.prompt(text) for text in TEXTS]
  found = policy.sampler.generate(
    policy.params, prompts, 1, policy.key, **options
  )
  return {index: completion for index, _, completion in found}


def sampled(policy, n=1):
  prompts = [policy.prompt(text) for text in TEXTS]
  return {(i, s): c for i, s, c in policy.sample(prompts, n)}


def test_greedy_equals_full_forward_for_ragged_prompts(params, one_device_mesh):
  completions = sampled(policy(params, one_device_mesh, temperature=0.0))
  for index, text in enumerate(TEXTS):
    ids = ByteTokenizer().encode(text)
    for token in completions[index, 0].token_ids:
      assert token == int(jnp.argmax(next_logits(params, ids)[-1]))
      ids.append(int(token))


def test_logprobs_are_those_of_a_full_forward(params, one_device_mesh):
  for (index, _), completion in sampled(
    policy(params, one_device_mesh), n=3
  ).items():
    prompt = ByteTokenizer().encode(TEXTS[index])
    ids = prompt + completion.token_ids.tolist()
    logps = jax.nn.log_softmax(next_logits(params, ids))
    places = np.arange(len(prompt) - 1, len(ids) - 1)
    want = np.asarray(logps)[places, completion.token_ids]
    np.testing.assert_allclose(completion.logprobs, want, atol=1e-4)


def test_samples_do_not_depend_on_slots_or_chunks(params, one_device_mesh):
  want = sampled(policy(params, one_device_mesh), n=3)
  for changes in (
    {"prompt_buckets": (8, 16)},
    {"slots": 1},
    {"slots": 16},
    {"decode_chunk": 10},
    {"prefill_tokens": 4},
    {"prefill_tokens": 1000},
    {"cache_chunk": 3},
  ):
    got = sampled(policy(params, one_device_mesh, **changes), n=3)
    assert got.keys() == want.keys()
    for key, completion in got.items():
      np.testing.assert_array_equal(completion.token_ids, want[key].token_ids)
  tokens = {tuple(c.token_ids.tolist()) for c in want.values()}
  assert len(tokens) > len(TEXTS)  # Samples of one prompt differ.


def test_a_prompt_of_a_number_samples_the_same_alone(params, one_device_mesh):
  want = sampled(policy(params, one_device_mesh))
  alone = policy(params, one_device_mesh)
  prompts = [alone.prompt(TEXTS[index]) for index in (1, 3)]
  found = {i: c for i, _, c in alone.sample(prompts, 1, numbers=[1, 3])}
  for place, index in enumerate((1, 3)):
    np.testing.assert_array_equal(
      found[place].token_ids, want[index, 0].token_ids
    )


def test_eight_devices_sample_what_one_does(params, one_device_mesh):
  mesh = mesh_lib.make_mesh({"data": 8, "fsdp": 1, "tensor": 1})
  one, eight = (sampled(policy(params, m), 2) for m in (one_device_mesh, mesh))
  for key, completion in one.items():
    np.testing.assert_array_equal(completion.token_ids, eight[key].token_ids)


def test_stop_token_and_stop_string_end_a_completion(params, one_device_mesh):
  free = sampled(policy(params, one_device_mesh))[2, 0]
  assert free.finish_reason == "length"
  assert len(free.token_ids) == 10
  one, two = free.text[4], free.text[3:5]
  for stop in (one, two):
    cut = sampled(policy(params, one_device_mesh, stop_strings=(stop,)))[2, 0]
    assert cut.finish_reason == "stop"
    assert cut.text == free.text[: free.text.index(stop) + len(stop)]
    assert cut.token_ids.tolist() == free.token_ids[: len(cut.text)].tolist()


def test_a_prompt_past_the_buckets_is_named(params, one_device_mesh):
  short = policy(params, one_device_mesh, prompt_buckets=(8,))
  with pytest.raises(ValueError, match="prompt 2 has 12 tokens"):
    sampled(short)


def test_each_prompt_has_its_own_limit(params, one_device_mesh):
  limits = [1, 10, 4, 7]
  got = sampled_raw(policy(params, one_device_mesh, slots=2), limits=limits)
  assert [len(got[i].token_ids) for i in range(4)] == limits
  with pytest.raises(ValueError, match=r"limits\[1\]=11: expected 1 to"):
    sampled_raw(policy(params, one_device_mesh), limits=[1, 11, 1, 1])


@pytest.mark.parametrize("slots", [1, 4, 16])
def test_greedy_tokens_do_not_depend_on_slots_or_order(
  params, one_device_mesh, slots
):
  want = sampled(policy(params, one_device_mesh, temperature=0.0))
  one = policy(params, one_device_mesh, temperature=0.0, slots=slots)
  order = [2, 0, 3, 1, 2, 0]
  prompts = [one.prompt(TEXTS[index]) for index in order]
  for place, _, completion in one.sample(prompts):
    np.testing.assert_array_equal(
      completion.token_ids, want[order[place], 0].token_ids
    )


def test_another_layout_than_the_parameters_samples_the_same(
  params, one_device_mesh
):
  """Parameters over eight devices, sampling on four rows of two."""
  learner = mesh_lib.make_mesh({"data": 1, "fsdp": 8, "tensor": 1})
  shardings = mesh_lib.param_shardings(
    transformer.abstract_params(MODEL), learner, RULES | {"embed": "fsdp"}
  )
  spread = jax.device_put(params, shardings)
  mesh = mesh_lib.make_mesh({"data": 4, "fsdp": 1, "tensor": 2})
  one = sampled(policy(params, one_device_mesh, temperature=0.0), 2)
  other = sampled(policy(spread, mesh, temperature=0.0), 2)
  for key, completion in one.items():
    np.testing.assert_array_equal(completion.token_ids, other[key].token_ids)


def test_nothing_compiles_after_the_warm_up(params, one_device_mesh):
  ready = policy(params, one_device_mesh, slots=20)
  ready.sampler.warm_up(ready.params)
  compiled = []
  jax.monitoring.register_event_duration_secs_listener(
    lambda name, *_, **__: compiled.append(name)
  )
  sampled(ready, n=3)
  sampled(ready, n=20)
  sampled(ready, n=1)  # Few of many slots: given up in two jumps.
  assert list(ready.sample([])) == []
  assert not [name for name in compiled if "backend_compile" in name]


def test_the_learner_scores_500_tokens_as_the_sampler_did(
  params, one_device_mesh
):
  long = policy(
    params,
    one_device_mesh,
    max_tokens=500,
    decode_chunk=64,
    cache_chunk=32,
    temperature=0.8,
  )
  prompts = [long.prompt(text) for text in TEXTS]
  sequences, sampled_logprobs = [], []
  # No stop id ends these: the tokenizer's is one of 128.
  for index, _, completion in long.sample(prompts, 2):
    sequences.append(
      packing.from_trajectory(
        types.Trajectory(prompts[index], completion, 0.0, None), 0.0
      )
    )
    sampled_logprobs.append(completion.logprobs)
  assert max(map(len, sampled_logprobs)) > 300
  batch = packing.pack(
    sequences, row_length=520, rows_multiple=1, aggregation="token_mean"
  )
  scored, _ = jax.jit(
    lambda p, b: update.score(MODEL, p, b, 0.8, 64, one_device_mesh)
  )(params, batch)
  gap = np.abs(np.asarray(scored) - batch.old_logprobs)
  assert batch.loss_mask.sum() == sum(map(len, sampled_logprobs))
  assert float(np.max(gap * batch.loss_mask)) < 1e-4
