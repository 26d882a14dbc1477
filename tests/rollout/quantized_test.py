"""Sampling with 8-bit weights and an 8-bit cache."""

import numpy as np
import pytest
from rollout_model import TEXTS, ByteTokenizer, next_logprobs, policy
from rounded_kernels import rounded

from azr_jax.models import quantization
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.rollout.preemption import PageAllocator

# The largest change of a log-probability by type: fp8 has 3 mantissa bits, int8
# up to 7.
WEIGHTS = {"int8": 0.2, "fp8": 0.8}
CACHE = {"int8": 0.05, "fp8": 0.25}
NAMES = "int8", pytest.param("fp8", marks=pytest.mark.slow)
BOTH = {"quantization": "int8", "kv_cache_dtype": "int8"}


def sample(policy, n=2):
  """Returns n completions of each text, by prompt and sample index."""
  prompts = [policy.prompt(text) for text in TEXTS]
  return {(i, s): c for i, s, c in policy.sample(prompts, n)}


def scores(params, index, completion):
  """Returns a completion's log-probabilities, computed without a cache."""
  prompt = ByteTokenizer().encode(TEXTS[index])
  ids = prompt + completion.token_ids.tolist()
  logps = next_logprobs(params, ids)
  at = np.arange(len(prompt) - 1, len(ids) - 1)
  return logps[at, completion.token_ids]


@pytest.mark.parametrize("name", NAMES)
def test_logprobs_are_those_of_rounded_weights(params, one_device_mesh, name):
  """Draws and log-probabilities come from the policy that samples."""
  of_8_bits = rounded(params, quantization.DTYPES[name])
  furthest = 0.0
  found = sample(policy(params, one_device_mesh, quantization=name))
  for (index, _), completion in found.items():
    want = scores(of_8_bits, index, completion)
    np.testing.assert_allclose(completion.logprobs, want, atol=1e-4)
    far = np.abs(completion.logprobs - scores(params, index, completion))
    furthest = max(furthest, far.max())
  assert 1e-3 < furthest < WEIGHTS[name]


@pytest.mark.parametrize("name", NAMES)
def test_a_cache_of_8_bits_is_near_one_of_floats(params, one_device_mesh, name):
  gaps = np.concatenate(
    [
      completion.logprobs - scores(params, index, completion)
      for (index, _), completion in sample(
        policy(params, one_device_mesh, kv_cache_dtype=name)
      ).items()
    ]
  )
  assert 1e-6 < np.abs(gaps).max() < CACHE[name]


@pytest.mark.parametrize(
  "changes",
  [
    pytest.param({"prefill_tokens": 4, "page_size": 3}, marks=pytest.mark.slow),
    pytest.param({"attention": "kernel"}, marks=pytest.mark.slow),
    pytest.param({"layers": "unrolled"}, marks=pytest.mark.slow),
    pytest.param({"slots": 1, "decode_chunk": 10}, marks=pytest.mark.slow),
    pytest.param(
      {"slots": 16, "prefill_tokens": 1000, "prompt_buckets": (8, 16)},
      marks=pytest.mark.slow,
    ),
    # Of 11 pages the longest sequence needs 7, so others are preempted.
    {
      "slots": 8,
      "page_size": 4,
      "cache_gib": 11.5 * 2 * 2 * 4 * (16 + 4) / 2**30,
    },
  ],
)
@pytest.mark.slow
def test_samples_do_not_depend_on_slots_chunks_or_pages(
  params, one_device_mesh, changes, monkeypatch
):
  """Tokens are rounded once, so a sequence always reads the same numbers."""
  want = sample(policy(params, one_device_mesh, **BOTH))
  preempted = []
  preempt = PageAllocator._preempt
  monkeypatch.setattr(
    PageAllocator,
    "_preempt",
    lambda self, sequence: (preempted.append(1), preempt(self, sequence)),
  )
  changed = policy(params, one_device_mesh, **BOTH, **changes)
  found = sample(changed)
  assert found.keys() == want.keys()
  for key, completion in found.items():
    np.testing.assert_array_equal(completion.token_ids, want[key].token_ids)
    np.testing.assert_allclose(
      completion.logprobs, want[key].logprobs, atol=1e-4
    )
  if "cache_gib" in changes:
    assert changed.sampler.engine.num_pages == 11
    assert preempted


@pytest.mark.slow
@pytest.mark.parametrize("name", quantization.DTYPES)
def test_eight_devices_sample_what_one_does(params, one_device_mesh, name):
  """Kernels are split over two devices, and slots over four."""
  mesh = mesh_lib.make_mesh({"data": 4, "fsdp": 1, "tensor": 2})
  both = dict.fromkeys(BOTH, name)
  one, eight = (
    sample(policy(params, m, **both)) for m in (one_device_mesh, mesh)
  )
  for key, completion in one.items():
    np.testing.assert_array_equal(completion.token_ids, eight[key].token_ids)


def test_a_pool_of_8_bits_has_almost_twice_the_pages(params, one_device_mesh):
  """With a head size of 16, 80 bytes become 20."""
  gib = 100.5 * 2 * 2 * 32 * 4 * 16 / 2**30
  pages = {
    name: policy(
      params, one_device_mesh, cache_gib=gib, kv_cache_dtype=name
    ).sampler.engine.num_pages
    for name in ("auto", "int8")
  }
  assert pages == {"auto": 100, "int8": int(100.5 * 64 / 20)}
