"""Prompts with shared prefixes, with and without a prefix cache."""

import dataclasses
import random

import jax
import numpy as np
import pytest
from rollout_model import host_stream, page_engine, policy

from azr_jax import types
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.rollout.meter import Meter
from azr_jax.rollout.settings import SamplerSettings
from azr_jax.rollout.stream import SampleKey

KEY = np.zeros(2, np.uint32)
TEMPLATE = "to be or not to be: "
TAILS = ["x", "hello", "y = 12", "x", "to", "be that is", "z", "hello"]
LONG = SamplerSettings(
  slots=64,
  prompt_buckets=(128, 256, 1024),
  max_tokens=2,
  decode_chunk=2,
  stop_strings=(),
)


class Host:
  """A stream on a host engine."""

  def __init__(self, settings, devices=1):
    self.meter = Meter()
    self.engine = page_engine(settings, devices)
    row_pages = self.engine.shapes.max_pages_per_row
    self.engine.num_pages = 2 * settings.slots * row_pages
    self.stream = host_stream(self.engine, settings, self.meter)

  def sample(self, prompts, n=1):
    """Samples prompts; returns their completions' tokens and the counts."""
    submitted = [
      self.stream.submit(types.Prompt("", prompt), n, SampleKey(KEY, number))
      for number, prompt in enumerate(prompts)
    ]
    while not self.stream.is_empty:
      if self.stream.send():
        self.stream.fetch()
    tokens = [
      [future.result().token_ids.tolist() for future in futures]
      for _, futures in submitted
    ]
    return tokens, self.meter.take().counts


def with_and_without(settings):
  return [
    dataclasses.replace(settings, prefix_cache=known) for known in (True, False)
  ]


def prompts_of(templates, count, tail=20):
  """Returns prompts that cycle through the templates, with random tails."""
  rng = random.Random(0)
  return [
    templates[number % len(templates)]
    + tuple(rng.randrange(1, 100) for _ in range(tail))
    for number in range(count)
  ]


def template(length, number=0):
  rng = random.Random(number)
  return tuple(rng.randrange(1, 100) for _ in range(length))


@pytest.mark.parametrize("devices", [1, 8])
@pytest.mark.parametrize("prefill_tokens", [256, 1024, 8192])
def test_a_template_of_64_prompts_is_prefilled_once(prefill_tokens, devices):
  settings = dataclasses.replace(LONG, prefill_tokens=prefill_tokens)
  prompts = prompts_of([template(500)], 64)
  (tokens, counts), (wanted, without) = (
    Host(one, devices).sample(prompts) for one in with_and_without(settings)
  )
  assert tokens == wanted
  assert without.prefilled == 64 * 519 and without.reused == 0
  assert counts.prefilled + counts.reused == without.prefilled
  # Three full pages of the 500 tokens are shared, on each device.
  assert counts.reused == (64 - devices) * 384
  assert counts.prefilled * 2 < without.prefilled


@pytest.mark.parametrize("seed", range(8))
def test_a_prefix_cache_makes_no_call_more(seed):
  rng = random.Random(seed)
  settings = dataclasses.replace(
    LONG,
    prompt_buckets=rng.choice([(1024,), (128, 1024), (128, 256, 1024)]),
    prefill_tokens=rng.choice([256, 1024, 2048, 4096]),
    page_size=rng.choice([16, 64, 128]),
  )
  templates = [
    template(rng.choice([30, 200, 600]), number)
    for number in range(rng.choice([1, 2, 5, 20]))
  ]
  prompts = prompts_of(
    templates, rng.choice([3, 20, 60]), tail=rng.choice([9, 90])
  )
  hosts = [Host(one) for one in with_and_without(settings)]
  assert hosts[0].sample(prompts)[0] == hosts[1].sample(prompts)[0]
  calls, calls_without = (host.engine.prefill_calls for host in hosts)
  assert calls <= calls_without


def test_prompts_of_one_call_do_not_wait_for_each_other():
  """A call has rows for all, but its rows do not see each other's writes."""
  host = Host(dataclasses.replace(LONG, prefill_tokens=4096))
  prompts = prompts_of([template(500)], 3)
  _, counts = host.sample(prompts)
  assert host.engine.prefill_calls == 1 and counts.reused == 0
  # By now it is known that their first pages are equal.
  _, again = host.sample(prompts)
  assert again.reused == 3 * 512


def test_pages_are_known_until_the_parameters_change():
  host = Host(LONG)
  prompts = prompts_of([template(500)], 1)
  _, first = host.sample(prompts, n=3)
  _, second = host.sample(prompts, n=3)
  host.stream.suspend()
  host.stream.weights.restore({}, version=1)
  _, third = host.sample(prompts, n=3)
  assert first.reused == third.reused == 0
  assert (second.reused, second.prefilled) == (512, 519 - 512)
  assert first.prefilled == third.prefilled == 519


def test_nothing_is_kept_without_a_prefix_cache():
  host = Host(dataclasses.replace(LONG, prefix_cache=False))
  host.sample(prompts_of([template(500)], 2))
  assert host.stream._cache is None


def test_a_preempted_sequence_finds_its_own_tokens():
  """Six sequences of up to 16 pages each share 24 pages."""
  settings = SamplerSettings(
    slots=4,
    prompt_buckets=(8,),
    max_tokens=56,
    prefill_tokens=8,
    page_size=4,
    decode_chunk=4,
    stop_strings=(),
  )
  found = []
  for one in with_and_without(settings):
    host = Host(one)
    host.engine.num_pages = 24
    found.append(host.sample(prompts_of([()], 6, tail=8)))
  (tokens, counts), (wanted, without) = found
  assert tokens == wanted and without.prefilled > 6 * 7
  assert 0 < counts.reused
  assert counts.prefilled < without.prefilled


def completions(mesh, params, **changes):
  """Returns greedy and sampled completions of prompts with one template."""
  chosen = policy(
    params,
    mesh,
    prompt_buckets=(16, 32),
    page_size=8,
    prefill_tokens=32,
    **changes,
  )
  prompts = [chosen.prompt(TEMPLATE + tail) for tail in TAILS]
  chosen.sampler.meter.take()
  done = {
    (temperature, index, sample): completion
    for temperature in (0.0, 1.0)
    for index, sample, completion in chosen.sample(
      prompts, 2, temperature=temperature, call=0
    )
  }
  return done, chosen.sampler.meter.take().counts


@pytest.mark.parametrize(
  "devices", [pytest.param(1, marks=pytest.mark.slow), 8]
)
def test_tokens_and_logprobs_are_those_without_a_prefix_cache(params, devices):
  mesh = mesh_lib.make_mesh(
    {"data": devices, "fsdp": 1, "tensor": 1}, jax.devices()[:devices]
  )
  found, counts = completions(mesh, params)
  wanted, without = completions(mesh, params, prefix_cache=False)
  assert len(wanted) == 2 * 2 * len(TAILS)
  for name, completion in wanted.items():
    np.testing.assert_array_equal(found[name].token_ids, completion.token_ids)
    np.testing.assert_allclose(
      found[name].logprobs, completion.logprobs, atol=1e-4
    )
  assert counts.prefilled + counts.reused == without.prefilled
  # 16 tokens of the template are two full pages.
  assert counts.reused >= 16 * (2 * len(TAILS) - devices)


def test_two_streams_of_a_seed_are_equal_to_the_bit(params, one_device_mesh):
  first, second = (completions(one_device_mesh, params)[0] for _ in range(2))
  for name, completion in first.items():
    np.testing.assert_array_equal(second[name].token_ids, completion.token_ids)
    np.testing.assert_array_equal(second[name].logprobs, completion.logprobs)


@pytest.mark.slow
def test_64_prompts_of_a_template_of_500_tokens(params, one_device_mesh):
  """The figures of `docs/rollouts.md`."""
  text = "".join(map(chr, template(500)))
  done = []
  for known in (True, False):
    chosen = policy(
      params,
      one_device_mesh,
      prompt_buckets=(128, 1024),
      prefill_tokens=1024,
      page_size=128,
      slots=16,
      prefix_cache=known,
    )
    prompts = [chosen.prompt(text + f"{n:03}") for n in range(64)]
    chosen.sampler.meter.take()
    both = [
      {(i, s): c for i, s, c in chosen.sample(prompts, temperature=t, call=0)}
      for t in (0.0, 1.0)
    ]
    done.append((both, chosen.sampler.meter.take().counts))
  (found, counts), (wanted, without) = done
  for one, other in zip(found, wanted, strict=True):
    for name, completion in other.items():
      np.testing.assert_array_equal(one[name].token_ids, completion.token_ids)
      np.testing.assert_allclose(
        one[name].logprobs, completion.logprobs, atol=1e-4
      )
  assert without.prefilled == 2 * 64 * 502
  assert counts.reused == without.prefilled - counts.prefilled
  assert counts.prefilled * 2 < without.prefilled
