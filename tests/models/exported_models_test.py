"""Exported embedded models generate the same text in transformers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import transformers
from typed import present

from azr_jax import export
from azr_jax.configs import evaluate as evaluate_config
from azr_jax.models import load, transformer

# Model -> the start of a text from its training distribution.
PROMPTS = {
  "azr-tiny": "User: New program, predict output.\nAssistant: <think>",
  "code-tiny": "What is 12 * 34?\ncode\n",
  "countdown-tiny": "3 7 25 = 46\n",
  "orz-tiny": "12 + 34 - 5 =",
}
SMALLEST = "orz-tiny"
LENGTH = 48
RULES = dict.fromkeys(
  ("vocab", "embed", "heads", "kv_heads", "head_size", "mlp", "layers")
)


@pytest.mark.parametrize(
  "name",
  [
    # The larger models take longer.
    pytest.param(n, marks=[] if n == SMALLEST else [pytest.mark.slow])
    for n in PROMPTS
  ],
)
def test_transformers_writes_the_same_greedy_text(
  name, tmp_path, one_device_mesh, on_one_device
):
  spec = f"embedded:{name}"
  config = evaluate_config.get_config()
  export.export(config, spec, str(tmp_path), "float32")
  tokenizer = present(transformers.AutoTokenizer.from_pretrained(tmp_path))
  model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
  prompt = tokenizer(
    PROMPTS[name], return_tensors="pt", return_token_type_ids=False
  )
  written = model.generate(**prompt, do_sample=False, max_new_tokens=LENGTH)
  source = load.resolve(spec, tmp_path)
  first = prompt["input_ids"].shape[1]
  tokens = written.numpy()
  assert tokens[0, :first].tolist() == source.tokenizer.encode_prompt(
    PROMPTS[name]
  )
  # The text is greedy if each token is our likeliest continuation.
  params = source.load_params(one_device_mesh, RULES)
  hidden, _ = jax.jit(transformer.Transformer(source.config).apply)(
    {"params": params}, tokens, jnp.arange(tokens.shape[1])[None]
  )
  logits = hidden @ transformer.unembedding(params, source.config)
  ours = np.asarray(logits.argmax(-1))[0, first - 1 : -1]
  assert len(ours) >= 2
  np.testing.assert_array_equal(ours, tokens[0, first:])
  text = tokenizer.decode(tokens[0, first:], skip_special_tokens=True)
  assert source.tokenizer.decode(ours.tolist()) == text


def test_every_embedded_model_is_here():
  assert set(PROMPTS) == set(load.EMBEDDED)
