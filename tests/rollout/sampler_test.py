"""The sampler against full forward passes."""

import re

import jax
import numpy as np
import pytest
from rollout_model import (
  MODEL,
  RULES,
  TEXTS,
  ByteTokenizer,
  new_sampler,
  next_logits,
  next_logprobs,
  policy,
)

from azr_jax import types
from azr_jax.learner import objective, packing
from azr_jax.models import transformer
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.rollout import engine
from azr_jax.rollout.sampler import Sampler
from azr_jax.run import compile_counter


def generate(policy, **options):
  """Returns a completion of each text by index; takes `generate`'s options."""
  prompts = [policy.prompt(text) for text in TEXTS]
  stream = policy.sampler.generate(
    policy.params, prompts, 1, policy.key, **options
  )
  return {index: completion for index, _, completion in stream}


def sample(policy, n=1, call=None):
  """Returns n completions of each text, by prompt and sample index."""
  prompts = [policy.prompt(text) for text in TEXTS]
  return {(i, s): c for i, s, c in policy.sample(prompts, n, call=call)}


def test_greedy_equals_full_forward_for_ragged_prompts(params, one_device_mesh):
  completions = sample(policy(params, one_device_mesh, temperature=0.0))
  for index, text in enumerate(TEXTS):
    ids = ByteTokenizer().encode(text)
    for token in completions[index, 0].token_ids:
      assert token == np.argmax(next_logits(params, ids)[-1])
      ids.append(int(token))


@pytest.mark.parametrize(
  "settings",
  [
    pytest.param({"attention": "kernel"}, marks=pytest.mark.slow),
    {"layers": "unrolled"},
  ],
)
def test_another_program_gives_the_same_samples(
  params, one_device_mesh, settings
):
  want = sample(policy(params, one_device_mesh))
  found = sample(policy(params, one_device_mesh, **settings))
  for key, completion in want.items():
    np.testing.assert_array_equal(found[key].token_ids, completion.token_ids)
    np.testing.assert_allclose(
      found[key].logprobs, completion.logprobs, atol=1e-4
    )


def test_layers_stacked_for_prefill_give_the_same_samples(
  params, one_device_mesh, monkeypatch
):
  want = sample(policy(params, one_device_mesh, layers="unrolled"))
  prefill_of = engine.prefill_of
  monkeypatch.setattr(
    engine, "prefill_of", lambda model, _: prefill_of(model, "tpu")
  )
  found = sample(
    policy(params, one_device_mesh, new_sampler, layers="unrolled")
  )
  for key, completion in want.items():
    np.testing.assert_array_equal(found[key].token_ids, completion.token_ids)
    np.testing.assert_allclose(
      found[key].logprobs, completion.logprobs, atol=1e-4
    )


def test_logprobs_are_those_of_a_full_forward(params, one_device_mesh):
  for (index, _), completion in sample(
    policy(params, one_device_mesh), n=3
  ).items():
    prompt = ByteTokenizer().encode(TEXTS[index])
    ids = prompt + completion.token_ids.tolist()
    logps = next_logprobs(params, ids)
    positions = np.arange(len(prompt) - 1, len(ids) - 1)
    expected = logps[positions, completion.token_ids]
    np.testing.assert_allclose(completion.logprobs, expected, atol=1e-4)


def test_samples_do_not_depend_on_slots_or_chunks(params, one_device_mesh):
  want = sample(policy(params, one_device_mesh), n=3)
  for changes in (
    {"slots": 1, "decode_chunk": 10},
    {"slots": 16, "prefill_tokens": 1000, "prompt_buckets": (8, 16)},
    {"prefill_tokens": 4, "page_size": 3},
  ):
    got = sample(policy(params, one_device_mesh, **changes), n=3)
    assert got.keys() == want.keys()
    for key, completion in got.items():
      np.testing.assert_array_equal(completion.token_ids, want[key].token_ids)
  tokens = {tuple(c.token_ids.tolist()) for c in want.values()}
  assert len(tokens) > len(TEXTS)  # Samples of one prompt differ.


def test_a_prompt_with_a_seed_samples_the_same_alone(params, one_device_mesh):
  together = sample(policy(params, one_device_mesh))
  alone = policy(params, one_device_mesh)
  prompts = [alone.prompt(TEXTS[index]) for index in (1, 3)]
  stream = alone.sample(prompts, 1, prompt_numbers=[1, 3])
  for index, _, completion in stream:
    np.testing.assert_array_equal(
      completion.token_ids, together[(1, 3)[index], 0].token_ids
    )


def test_a_branch_samples_by_its_numbers_alone(params, one_device_mesh):
  first, second = (policy(params, one_device_mesh) for _ in range(2))
  branch = sample(first.branch(3, 1))
  after_branch = sample(first)
  alone = sample(second)
  later_branch = sample(second.branch(3, 1))
  other_branch = sample(second.branch(3, 2))
  for key, completion in alone.items():
    assert completion.text == after_branch[key].text
    assert branch[key].text == later_branch[key].text
  texts = [
    {c.text for c in completions.values()}
    for completions in (alone, branch, other_branch)
  ]
  assert texts[0] != texts[1] != texts[2]
  # The policy's log includes all of them.
  assert len(first.sample_log.completions) == len(TEXTS)
  assert len(first.sample_log.branch_completions) == len(TEXTS)


def test_eight_devices_sample_what_one_does(params, one_device_mesh):
  mesh = mesh_lib.make_mesh({"data": 8, "fsdp": 1, "tensor": 1})
  one, eight = (sample(policy(params, m), 2) for m in (one_device_mesh, mesh))
  for key, completion in one.items():
    np.testing.assert_array_equal(completion.token_ids, eight[key].token_ids)


def test_stop_token_and_stop_string_end_a_completion(params, one_device_mesh):
  whole = sample(policy(params, one_device_mesh))[2, 0]
  assert whole.finish_reason == "length"
  assert len(whole.token_ids) == 10
  stop_token, stop_string = whole.text[4], whole.text[3:5]
  for stop in (stop_token, stop_string):
    stopped = sample(policy(params, one_device_mesh, stop_strings=(stop,)))[
      2, 0
    ]
    assert stopped.finish_reason == "stop"
    assert stopped.text == whole.text[: whole.text.index(stop) + len(stop)]
    length = len(stopped.text)
    np.testing.assert_array_equal(stopped.token_ids, whole.token_ids[:length])


def test_a_stop_string_counts_only_after_what_must_come_before(
  params, one_device_mesh
):
  """A reply may quote the tag that would end it."""
  whole = sample(policy(params, one_device_mesh))[2, 0].text
  again = next(i for i, c in enumerate(whole) if c in whole[i + 1 :])
  stop = whole[again]  # a character that occurs twice
  second = whole.index(stop, again + 1)
  before = re.escape(whole[again:second])
  changed = policy(
    params, one_device_mesh, stop_strings=(stop,), stop_after=before
  )
  stopped = sample(changed)[2, 0]
  assert stopped.text == whole[: second + 1]
  assert stopped.finish_reason == "stop"
  never = policy(
    params, one_device_mesh, stop_strings=(stop,), stop_after="never"
  )
  assert sample(never)[2, 0].text == whole


def test_the_token_that_ends_a_text_is_learned(params, one_device_mesh):
  """An exported model stops only if the stop token got a gradient."""
  whole = sample(policy(params, one_device_mesh))[2, 0]

  class Tokenizer(ByteTokenizer):
    eos_ids = (int(whole.token_ids[4]),)

  def make(mesh, settings):
    return Sampler(MODEL, Tokenizer(), mesh, RULES, settings)

  ended = sample(policy(params, one_device_mesh, make))[2, 0]
  assert ended.finish_reason == "stop"
  assert ended.token_ids[-1] == whole.token_ids[4]
  assert ended.text == whole.text[: len(ended.token_ids) - 1]
  prompt = types.Prompt(TEXTS[2], tuple(map(ord, TEXTS[2])))
  trajectory = types.Trajectory(prompt, ended, 1.0, "group")
  batch = packing.pack(
    [packing.from_trajectory(trajectory, 1.0)],
    row_length=32,
    rows_multiple=1,
    aggregation="token_mean",
    regularizer_aggregation="token_mean",
    rng=np.random.default_rng(0),
  )
  learned = batch.targets[batch.loss_weights > 0]
  np.testing.assert_array_equal(learned, ended.token_ids)


def test_a_prompt_past_the_buckets_is_named(params, one_device_mesh):
  short = policy(params, one_device_mesh, prompt_buckets=(8,))
  with pytest.raises(ValueError, match="a prompt has 12 tokens"):
    sample(short)


def test_each_prompt_has_its_own_limit(params, one_device_mesh):
  max_new_tokens = [1, 10, 4, 7]
  got = generate(
    policy(params, one_device_mesh, slots=2), max_new_tokens=max_new_tokens
  )
  assert [len(got[i].token_ids) for i in range(4)] == max_new_tokens
  with pytest.raises(ValueError, match=r"max_new_tokens=11: expected 1 to"):
    generate(policy(params, one_device_mesh), max_new_tokens=[1, 11, 1, 1])


@pytest.mark.parametrize(
  "slots", [1, 4, pytest.param(16, marks=pytest.mark.slow)]
)
def test_greedy_tokens_do_not_depend_on_slots_or_order(
  params, one_device_mesh, slots
):
  want = sample(policy(params, one_device_mesh, temperature=0.0))
  one = policy(params, one_device_mesh, temperature=0.0, slots=slots)
  order = [2, 0, 3, 1, 2, 0]
  prompts = [one.prompt(TEXTS[index]) for index in order]
  for index, _, completion in one.sample(prompts):
    np.testing.assert_array_equal(
      completion.token_ids, want[order[index], 0].token_ids
    )


def test_another_layout_than_the_parameters_samples_the_same(
  params, one_device_mesh
):
  """Parameters are on eight devices; sampling uses four rows of two."""
  learner = mesh_lib.make_mesh({"data": 1, "fsdp": 8, "tensor": 1})
  shardings = mesh_lib.param_shardings(
    transformer.abstract_params(MODEL), learner, RULES | {"embed": "fsdp"}
  )
  spread = jax.device_put(params, shardings)
  mesh = mesh_lib.make_mesh({"data": 4, "fsdp": 1, "tensor": 2})
  one = sample(policy(params, one_device_mesh, temperature=0.0), 2)
  other = sample(policy(spread, mesh, temperature=0.0), 2)
  for key, completion in one.items():
    np.testing.assert_array_equal(completion.token_ids, other[key].token_ids)


@pytest.mark.parametrize(
  "sizes", [{}, pytest.param({"data": 4}, marks=pytest.mark.slow)]
)
def test_nothing_compiles_after_the_warm_up(params, sizes):
  devices = jax.devices()[: sizes.get("data", 1)]
  mesh = mesh_lib.make_mesh(sizes, devices)
  ready = policy(params, mesh, new_sampler, slots=20, page_size=8)
  ready.sampler.warm_up(ready.params)
  compiled = []
  jax.monitoring.register_event_duration_secs_listener(
    lambda name, *_, **__: compiled.append(name)
  )
  sample(ready, n=3)
  sample(ready, n=20)
  sample(ready, n=1)  # Few sequences, so slots are compacted.
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
    page_size=256,
    temperature=0.8,
  )
  prompts = [long.prompt(text) for text in TEXTS]
  sequences, sampled_logprobs = [], []
  # Some have fewer than 500 tokens, because one of 128 ids ends a completion.
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
    lambda p, b: objective.score(MODEL, p, b, 0.8, 64, one_device_mesh)
  )(params, batch)
  gap = np.abs(np.asarray(scored) - batch.sampled_logprobs)
  assert batch.loss_mask.sum() == sum(map(len, sampled_logprobs))
  assert float(np.max(gap * batch.loss_mask)) < 1e-4


def test_samples_of_two_temperatures_share_slots(params, one_device_mesh):
  """Each equals the same sample taken alone."""
  mixed = policy(params, one_device_mesh)
  want = [
    sample(mixed, call=0),
    sample(policy(params, one_device_mesh, temperature=0.0)),
  ]

  async def ask(text, temperature):
    prompt, index = mixed.prompt(text), TEXTS.index(text)
    samples = mixed.sample([prompt], 1, [index], None, temperature, call=0)
    [completion] = [done async for _, _, done in samples]
    return completion.token_ids.tolist()

  async def converse(text, first, second):
    return [await ask(text, first), await ask(text, second)]

  both = mixed.run(
    mixed.gather(
      converse(text, *((None, 0.0) if number % 2 else (0.0, None)))
      for number, text in enumerate(TEXTS)
    )
  )
  for number, found in enumerate(both):
    expected = [one[number, 0].token_ids.tolist() for one in want]
    assert found == (expected if number % 2 else expected[::-1])


def test_another_temperature_compiles_nothing(params, one_device_mesh):
  """Greedy samples match those of a sampler whose temperature is 0."""
  mixed = policy(params, one_device_mesh)
  warm = sample(mixed, call=0)
  want = sample(policy(params, one_device_mesh, temperature=0.0))
  prompts = [mixed.prompt(text) for text in TEXTS]
  with compile_counter.count_compiles() as counter:
    greedy = {
      (i, s): c for i, s, c in mixed.sample(prompts, temperature=0.0, call=0)
    }
    assert counter.take() == []
    again = {(i, s): c for i, s, c in mixed.sample(prompts, call=0)}
    assert counter.take() == []
  for name, completion in want.items():
    np.testing.assert_array_equal(greedy[name].token_ids, completion.token_ids)
    np.testing.assert_array_equal(again[name].token_ids, warm[name].token_ids)
