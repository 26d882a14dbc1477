"""Drafts: what is proposed and accepted, and that samples do not change."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rollout_model import SETTINGS, TEXTS, host_stream, policy
from typed import present

from azr_jax import types
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.rollout import build, drafts, token_sampling
from azr_jax.rollout.build import shapes_of
from azr_jax.rollout.host_engine import LengthEngine
from azr_jax.rollout.sequence import Request, SequenceState
from azr_jax.rollout.settings import SpeculationSettings
from azr_jax.rollout.stream import SampleKey
from azr_jax.rollout.tokens import sampled

PROPOSE = jax.jit(drafts.propose, static_argnames="drafts")
SPECULATION = SpeculationSettings(drafts=3, context=32, min_match=1, min_gain=1)


def sample(policy, n=1, **options):
  """Returns n completions of each text, by prompt and sample index."""
  prompts = [policy.prompt(text) for text in TEXTS]
  return {(i, s): c for i, s, c in policy.sample(prompts, n, **options)}


def assert_same(found, want):
  assert found.keys() == want.keys()
  for key, completion in want.items():
    np.testing.assert_array_equal(found[key].token_ids, completion.token_ids)
    np.testing.assert_allclose(
      found[key].logprobs, completion.logprobs, atol=1e-4
    )


@pytest.mark.parametrize(
  "changes",
  [
    {},
    pytest.param(
      {"temperature": 0.0, "decode_chunk": 10}, marks=pytest.mark.slow
    ),
    pytest.param(
      {"temperature": 0.05, "layers": "unrolled"}, marks=pytest.mark.slow
    ),
    pytest.param({"attention": "kernel"}, marks=pytest.mark.slow),
    pytest.param({"kv_cache_dtype": "int8"}, marks=pytest.mark.slow),
  ],
)
@pytest.mark.slow
def test_drafts_change_no_sample(params, one_device_mesh, changes):
  want = sample(policy(params, one_device_mesh, **changes), 2)
  with_drafts = policy(
    params, one_device_mesh, speculation=SPECULATION, **changes
  )
  assert_same(sample(with_drafts, 2), want)
  counts = with_drafts.sampler.meter.counts
  assert counts.decoded == sum(len(c.token_ids) for c in want.values())
  if changes.get("temperature", 1) < 1:
    # The model repeats itself in cycles, which drafts pick up.
    assert counts.live_slot_steps < 0.9 * counts.decoded


@pytest.mark.slow
def test_responses_end_where_they_end_without_drafts(params, one_device_mesh):
  """Covers stop ids, stop strings and per-prompt limits."""
  whole = sample(policy(params, one_device_mesh))
  stops = whole[2, 0].text[4], whole[1, 0].text[3:5]
  changes = {"stop_strings": stops, "decode_chunk": 4}
  found, want = (
    sample(
      policy(params, one_device_mesh, speculation=speculation, **changes),
      max_new_tokens=[1, 10, 7, 9],
    )
    for speculation in (SPECULATION, SpeculationSettings())
  )
  assert_same(found, want)
  assert [found[k].finish_reason for k in want] == [
    c.finish_reason for c in want.values()
  ]


@pytest.mark.slow
def test_eight_devices_draft_as_one_does(params, one_device_mesh):
  mesh = mesh_lib.make_mesh({"data": 8, "fsdp": 1, "tensor": 1})
  one, eight = (
    sample(policy(params, m, speculation=s, temperature=0.05))
    for m, s in (
      (one_device_mesh, SpeculationSettings()),
      (mesh, SPECULATION),
    )
  )
  assert_same(eight, one)


def expected_drafts(context, count, min_match):
  """Computes drafts with a loop over all earlier places."""
  best, place = 0, None
  for end in range(1, len(context)):
    match = 0
    while match < min(8, end) and (
      context[end - 1 - match] == context[-1 - match] != drafts.NO_TOKEN
    ):
      match += 1
    if match >= max(best, min_match):
      best, place = match, end
  if place is None:
    return [drafts.NO_TOKEN] * count
  after = context[place:]
  return [after[index % len(after)] for index in range(count)]


@given(
  st.lists(st.integers(-1, 3), min_size=8, max_size=40),
  st.integers(0, 3),
  st.integers(1, 6),
  st.integers(1, 3),
)
@settings(max_examples=200)
def test_drafts_are_what_followed_the_longest_match(
  context, last, count, min_match
):
  context = [*context, last]
  rows = jnp.asarray([context + [9] * (41 - len(context))] * 2)
  found = PROPOSE(rows, jnp.asarray([len(context)] * 2), count, min_match)
  want = expected_drafts(context, count, min_match)
  assert found.tolist() == [want, want]


@pytest.mark.parametrize(
  "tokens, proposed, stops, room, count",
  [
    ([5, 6, 7], [5, 6], [], 9, 3),
    ([5, 6, 7], [5, 8], [], 9, 2),
    ([5, 6, 7], [4, 6], [], 9, 1),
    ([5, 6, 7], [-1, -1], [], 9, 1),
    ([5, 6, 7], [5, 6], [5], 9, 1),
    ([5, 6, 7], [5, 6], [6], 9, 2),
    ([5, 6, 7], [5, 6], [7], 9, 3),
    ([5, 6, 7], [5, 6], [], 2, 2),
    ([5, 6, 7], [5, 6], [], 0, 0),
  ],
)
def test_tokens_count_up_to_the_first_wrong_draft(
  tokens, proposed, stops, room, count
):
  found = drafts.num_accepted(
    jnp.asarray([tokens]),
    jnp.asarray([proposed]),
    jnp.isin(jnp.asarray([tokens]), jnp.asarray(stops, jnp.int32)),
    jnp.asarray([room]),
  )
  assert found.tolist() == [count]


def chi_square(counts, probabilities):
  """Returns the statistic, its mean and its standard deviation."""
  expected = counts.sum() * probabilities
  freedom = len(counts) - 1
  statistic = ((counts - expected) ** 2 / expected).sum()
  return statistic, freedom, np.sqrt(2 * freedom)


# The likeliest of the six tokens, and the least likely one.
@pytest.mark.parametrize("draft", [2, 4])
def test_tokens_with_drafts_have_the_distribution_of_the_model(draft):
  """1e5 slots draw two tokens after a draft of any probability."""
  slots, words = 100_000, 6
  rng = np.random.default_rng(0)
  first = rng.normal(size=words)
  # The second token's distribution depends on the first token.
  second = rng.normal(size=(words, words))
  logits = jnp.asarray(np.stack([first, second[draft]]), jnp.float32)
  sample_all = jax.jit(drafts.sample, static_argnums=4)
  tokens, _ = sample_all(
    jnp.broadcast_to(logits, (slots, 2, words)),
    jax.random.split(jax.random.key(1), slots),
    jnp.arange(slots) % 7,
    jnp.ones(slots),
    token_sampling.Truncation(),
  )
  counts = drafts.num_accepted(
    tokens,
    jnp.full((slots, 1), draft),
    jnp.zeros((slots, 2), bool),
    jnp.full(slots, 2),
  )
  tokens, counts = np.asarray(tokens), np.asarray(counts)
  p_first, p_second = (
    np.exp(x) / np.exp(x).sum() for x in np.asarray(logits, np.float64)
  )
  drawn = np.bincount(tokens[:, 0], minlength=words)
  statistic, mean, sd = chi_square(drawn, p_first)
  assert statistic < mean + 5 * sd
  # A draft is accepted with its probability.
  accepted = counts == 2
  assert accepted.mean() == pytest.approx(p_first[draft], abs=0.008)
  drawn = np.bincount(tokens[accepted, 1], minlength=words)
  statistic, mean, sd = chi_square(drawn, p_second)
  assert statistic < mean + 5 * sd


def sequence_of(request, ids):
  return SequenceState(request, len(ids), sampled(ids, [0.0] * len(ids), 0))


def test_a_context_has_the_sequence_then_its_siblings():
  prompt = types.Prompt("", (1, 2, 3))
  request = Request(0, prompt, 3, 9, np.zeros(2, np.uint32), 0)
  siblings = [sequence_of(request, ids) for ids in ([4], [5, 6, 7], [])]
  for sequence in siblings:
    sequence.siblings = siblings
  none = drafts.NO_TOKEN
  found = drafts.contexts([siblings[0], None, siblings[2]], 10)
  assert found.tolist() == [
    [none, none, 5, 6, 7, none, 1, 2, 3, 4],
    [none] * 10,
    [none, 4, none, 5, 6, 7, none, 1, 2, 3],
  ]
  assert drafts.contexts(siblings[:1], 3).tolist() == [[2, 3, 4]]


def test_drafts_pause_where_they_do_not_pay():
  rules = drafts.Drafting(context=8, max_slots=4, min_gain=1.5, pause_calls=2)
  chosen = drafts.DraftPolicy(rules)
  live = np.asarray([4])
  assert chosen.begin_call(live) == 8
  chosen.end_call(15, 10)
  assert chosen.begin_call(live)
  chosen.end_call(14, 10)
  assert [chosen.begin_call(live) for _ in range(3)] == [0, 0, 8]
  assert drafts.DraftPolicy(None).begin_call(live) == 0


@pytest.mark.parametrize(
  "live, devices_per_copy, is_drafting",
  [
    ([5], 1, False),
    ([4, 4, 4, 4], 1, True),
    ([0, 0, 5, 0], 1, False),
    ([4, 1, 2, 2], 2, False),
    ([4, 0, 2, 2], 2, True),
    ([1, 1, 1, 2], 4, False),
  ],
)
def test_drafts_start_once_few_slots_are_live_per_copy_of_the_weights(
  live, devices_per_copy, is_drafting
):
  rules = drafts.Drafting(8, 4, 1.5, 2, devices_per_copy)
  chosen = drafts.DraftPolicy(rules)
  assert bool(chosen.begin_call(np.asarray(live))) == is_drafting


class DraftingEngine(LengthEngine):
  """Records the live slots of each call, and whether it drafts."""

  def __init__(self, shapes, length):
    super().__init__(shapes, length)
    self.calls = []

  def decode(self, params, pool, slots, changes, stop_ids, min_live):
    done = self.change(slots, changes).done.reshape(self.shapes.devices, -1)
    self.calls.append(((~done).sum(1).max(), changes.context is not None))
    return super().decode(params, pool, slots, changes, stop_ids, min_live)


def test_a_call_drafts_once_few_slots_are_live_on_each_device():
  """Of four sequences on each of eight devices, two outlive two calls."""
  settings = dataclasses.replace(SETTINGS, slots=32)
  engine = DraftingEngine(
    shapes_of(settings, 8, (32, 8)),
    lambda seed, sample: 10 if sample < 2 else 4,
  )
  drafting = drafts.Drafting(8, max_slots=2, min_gain=1, pause_calls=1)
  stream = host_stream(engine, settings, drafting=drafting)
  for number in range(8):
    prompt = types.Prompt("", (number + 3,) * 4)
    stream.submit(prompt, 4, SampleKey(np.zeros(2, np.uint32), number))
  while not stream.is_empty:
    if stream.send():
      stream.fetch()
  # Calls of three tokens, with more live slots in all than a device may have.
  assert engine.calls == [(4, False), (4, False), (2, True), (2, True)]


@pytest.mark.parametrize(
  "sizes, shared",
  [({"data": 8}, 1), ({"data": 2, "fsdp": 4}, 4), ({"tensor": 8}, 1)],
)
def test_devices_along_fsdp_share_a_copy_of_the_weights(sizes, shared):
  mesh = mesh_lib.make_mesh(sizes)
  drafting = present(build.drafting_of(SPECULATION, mesh))
  assert drafting.devices_per_copy == shared
