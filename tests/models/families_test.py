"""Every family computes what transformers computes, however it is run."""

import dataclasses
import json

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from azr_jax.learner import logprobs, value_model
from azr_jax.models import (
  adapters,
  huggingface_config,
  pages,
  peft_io,
  rope,
  safetensors_io,
  sampling_params,
  transformer,
  weight_loading,
)
from azr_jax.models.adapters import Lora
from azr_jax.models.config import LongRopeScaling
from azr_jax.models.presets import parameter_count
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.rollout import build, steps
from azr_jax.rollout.policy import Policy
from azr_jax.rollout.sampler import Sampler
from azr_jax.rollout.settings import SamplerSettings
from azr_jax.rollout.weights import Weights
from tests import rollout_model
from tests.models import family_cases, paged_rows
from tests.models.parity_test import RULES
from tests.typed import instance_of

TOKENS = family_cases.tokens()
PAGE = 4


def loaded(name, folder, mesh):
  """Writes a case; returns transformers' results, our config and parameters."""
  found = family_cases.write(name, folder)
  config = safetensors_io.read_config(folder)
  reader = safetensors_io.SafetensorsReader(folder)
  params = weight_loading.load_params(config, reader, mesh, RULES)
  return found, rope.for_length(config, len(TOKENS)), params


@pytest.fixture(scope="module", params=family_cases.CASES)
def case(request, tmp_path_factory, one_device_mesh):
  """Loads a family's tiny checkpoint, with transformers' results."""
  folder = tmp_path_factory.mktemp(request.param)
  return folder, *loaded(request.param, folder, one_device_mesh)


def test_logits_alone_and_packed(case):
  """One row is the sequence, and the other packs two of its prefixes."""
  _, found, config, params = case
  lengths = 14, len(TOKENS) - 14
  row = np.concatenate([TOKENS[:n] for n in lengths])
  positions = np.concatenate([np.arange(n) for n in lengths])
  hidden, _ = jax.jit(transformer.Transformer(config).apply)(
    {"params": params},
    np.stack([TOKENS, row]),
    np.stack([np.arange(len(TOKENS)), positions]),
    np.stack([np.ones_like(TOKENS), np.repeat([1, 2], lengths)]),
  )
  logits = hidden @ transformer.unembedding(params, config)
  np.testing.assert_allclose(logits[0], found["logits"], atol=1e-5)
  want = np.concatenate([found["logits"][:n] for n in lengths])
  np.testing.assert_allclose(logits[1], want, atol=1e-5)


# The other families decode by the same code.
DECODED = ("smollm3", "olmo3", "phi3", "gemma3")


@pytest.mark.parametrize(
  "case",
  [
    name if name in DECODED else pytest.param(name, marks=pytest.mark.slow)
    for name in family_cases.CASES
  ],
  indirect=True,
)
def test_greedy_text_by_cached_decoding(case):
  """The prompt is prefilled; tokens collect and move to pages half-way."""
  _, found, config, params = case
  model = transformer.Transformer(config, fused=True, unrolled=True)
  params = sampling_params.convert(model, params)
  run = jax.jit(model.apply)
  shape = config.num_layers, 1, config.num_kv_heads, 32, config.head_size
  cache = paged_rows.empty_cache(shape, PAGE)
  prompt = TOKENS[None, : family_cases.PROMPT]
  at = np.arange(family_cases.PROMPT)[None]
  hidden, new = run({"params": params}, prompt, at, cache=cache)
  cache = paged_rows.write_rows(cache, new.k, new.v, np.zeros(1))
  cache = paged_rows.with_length(cache, [family_cases.PROMPT])
  hidden, half = hidden[:, -1:], family_cases.GREEDY // 2
  got, recent = [], None
  for step in range(family_cases.GREEDY):
    if recent is None or step == half:
      if recent is not None:
        entries = recent.entries
        cache = paged_rows.write_rows(cache, entries.k, entries.v, cache.length)
        cache = paged_rows.with_length(cache, cache.length + half)
      recent = pages.RecentKV(
        pages.no_entries(cache.pool, 1, half), jnp.int32(0)
      )
    logits = steps.unembed(model, params, hidden[0, -1])
    got.append(int(jnp.argmax(logits)))
    hidden, new = run(
      *({"params": params}, np.asarray([[got[-1]]])),
      np.asarray([[family_cases.PROMPT + step]]),
      cache=cache,
      recent=recent,
    )
    recent = pages.RecentKV(
      pages.append(recent.entries, new, recent.count), recent.count + 1
    )
  assert got == found["greedy"].tolist()


def test_what_is_saved_is_what_was_loaded(case, tmp_path):
  folder, _, config, params = case
  safetensors_io.save(params, config, tmp_path, dtype="float32")
  want, got = (
    safetensors.numpy.load_file(path / "model.safetensors")
    for path in (folder, tmp_path)
  )
  assert want.keys() == got.keys()
  jax.tree.map(np.testing.assert_array_equal, got, want)
  again = safetensors_io.read_config(tmp_path)
  assert again == rope.for_length(config, 0)


def test_the_count_is_that_of_the_parameters(case):
  *_, config, params = case
  assert parameter_count(config) == sum(x.size for x in jax.tree.leaves(params))
  shapes = nn.unbox(
    transformer.abstract_params(transformer.Transformer(config))
  )
  assert jax.tree.map(jnp.shape, params) == jax.tree.map(jnp.shape, shapes)


def logits_of(model, params):
  """Returns the logits of the compared tokens."""
  hidden, _ = jax.jit(model.apply)(
    {"params": params}, TOKENS[None], np.arange(len(TOKENS))[None]
  )
  return np.asarray(steps.unembed(model, params, hidden)[0])


@pytest.mark.parametrize("name", ["olmo2", "phi3"])
def test_heads_and_joined_tensors_may_be_sharded(name, tmp_path):
  """OLMo 2's norms span the devices; parts of Phi-3's tensors are ranges."""
  mesh = mesh_lib.make_mesh({"data": 1, "fsdp": 4, "tensor": 2})
  found, config, params = loaded(name, tmp_path, mesh)
  assert len(params["embedding"].sharding.device_set) == 8
  logits = logits_of(transformer.Transformer(config), params)
  np.testing.assert_allclose(logits, found["logits"], atol=1e-5)


def test_learner_divides_logits_and_critic_does_not(tmp_path, one_device_mesh):
  """Granite's `logits_scaling` is 6."""
  found, config, params = loaded("granite", tmp_path, one_device_mesh)
  model = transformer.Transformer(config)
  critic = value_model.decoder(model)
  of_policy, of_critic = (
    jax.jit(m.apply)({"params": params}, TOKENS[None], TOKENS[None] * 0)[0]
    for m in (model, critic)
  )
  np.testing.assert_allclose(of_critic, 6 * of_policy, rtol=1e-5)
  hidden, _ = jax.jit(model.apply)(
    {"params": params}, TOKENS[None], np.arange(len(TOKENS))[None]
  )
  scores, _ = logprobs.chunked_logprobs(
    *(hidden, transformer.unembedding(params, config)),
    jnp.asarray(TOKENS[None]),
    temperature=0.7,
    chunk_tokens=8,
  )
  want = jax.nn.log_softmax(found["logits"] / 0.7)
  np.testing.assert_allclose(
    scores[0], want[np.arange(len(TOKENS)), TOKENS], atol=1e-5
  )


def test_merged_adapters_go_to_joined_tensors(tmp_path, one_device_mesh):
  _, config, params = loaded("phi3", tmp_path, one_device_mesh)
  lora = Lora(2, 4.0)
  model = transformer.Transformer(config, lora=lora)
  rng = np.random.default_rng(0)
  trained = jax.tree.map(
    lambda x: jnp.asarray(0.3 * rng.normal(size=x.shape), jnp.float32),
    nn.unbox(transformer.abstract_trained(model)),
  )
  whole = adapters.join(params, trained)
  merged = tmp_path / "merged"
  safetensors_io.save(whole, config, merged, dtype="float32", lora=lora)
  again = weight_loading.load_params(
    *(config, safetensors_io.SafetensorsReader(merged)),
    *(one_device_mesh, RULES),
  )
  np.testing.assert_allclose(
    logits_of(transformer.Transformer(config), again),
    logits_of(model, whole),
    atol=2e-5,
  )
  with pytest.raises(ValueError, match="model_type='phi3': expected"):
    peft_io.save(trained, config, lora, "hf:a/b", tmp_path / "adapter")


@pytest.mark.parametrize(
  "name", ["gemma3", "olmo3", pytest.param("gpt_oss", marks=pytest.mark.slow)]
)
def test_kernels_of_8_bits_stay_near(name, tmp_path, one_device_mesh):
  found, config, params = loaded(name, tmp_path, one_device_mesh)
  model = transformer.Transformer(
    config, fused=True, unrolled=True, kernel_dtype=jnp.dtype(jnp.int8)
  )
  logits = logits_of(model, sampling_params.convert(model, params))
  assert 1e-4 < np.max(np.abs(logits - found["logits"])) < 0.3


def test_a_run_has_the_factors_of_its_longest_sequence(
  tmp_path, one_device_mesh
):
  _, config, _ = loaded("phi4_long", tmp_path, one_device_mesh)
  model = transformer.Transformer(config)
  for longest, is_long in ((12, False), (13, True)):
    settings = SamplerSettings(
      prompt_buckets=(8,), max_tokens=longest - 8, prefill_tokens=8
    )
    sampled = build.sampling_model(model, one_device_mesh, RULES, settings)
    assert sampled.config == rope.for_length(config, longest)
    scaling = instance_of(LongRopeScaling, sampled.config.rope_scaling)
    assert scaling.is_long == is_long


def fields_of(name, tmp_path):
  """Returns the config.json that transformers writes for a case."""
  family_cases.write(name, tmp_path)
  return json.loads((tmp_path / "config.json").read_text())


@pytest.mark.parametrize(
  "name, field, value, expected",
  [
    ("mistral", "hidden_act", "gelu", "'silu'"),
    ("mistral", "sliding_window", -1, "a positive integer"),
    ("mistral", "rope_parameters", {"rope_type": "dynamic"}, "a rope_type of"),
    ("granite", "attention_bias", True, "False"),
    ("granite", "logits_scaling", 0, "a positive number"),
    ("smollm3", "use_sliding_window", True, "False"),
    ("smollm3", "no_rope_layers", [1, 1, 2, 0], "4 values of 0 or 1"),
    ("olmo2", "clip_qkv", 8.0, "a field that this decoder supports"),
    ("olmo3", "layer_types", ["chunked_attention"] * 4, "full_attention or"),
    ("olmo3", "sliding_window", None, "a positive integer"),
    (
      "olmo3",
      "rope_parameters",
      {"sliding_attention": {"rope_type": "yarn"}},
      "a rope_type of default",
    ),
    ("phi3", "resid_pdrop", 0.1, "0.0"),
    ("phi4_long", "partial_rotary_factor", 1.5, "partial_rotary_factor=1.0"),
    ("gemma3", "final_logit_softcapping", 30.0, "null"),
    ("gemma3", "attn_logit_softcapping", 50.0, "null"),
    ("gemma3", "use_bidirectional_attention", True, "False"),
    ("gemma3", "hidden_activation", "gelu", "'gelu_pytorch_tanh'"),
    ("gemma3", "vision_config", {"depth": 1}, "a field that this decoder"),
    ("gemma3", "model_type", "gemma2", "one of"),
    ("qwen2_yarn", "use_sliding_window", True, "False"),
    ("qwen3_moe", "decoder_sparse_step", 2, "expected 1"),
    ("qwen3_moe", "mlp_only_layers", [1], r"expected \[\]"),
    ("qwen3_moe", "num_experts_per_tok", 7, "at most 6"),
    ("qwen3_moe", "num_experts", 8, "expected 8, as in `num_experts`"),
    ("qwen3_moe", "shared_expert_intermediate_size", 24, "a field that this"),
    ("gpt_oss", "hidden_act", "gelu", "'silu'"),
    ("gpt_oss", "num_experts_per_tok", 7, "at most 6"),
    ("gpt_oss", "experts_per_token", 3, "expected 2"),
    ("gpt_oss", "attention_bias", "no", "true or false"),
    ("gpt_oss", "swiglu_limit", 0, "a positive number"),
    ("gpt_oss", "rope_parameters", None, "the rotary parameters"),
    ("gpt_oss", "quantization_config", {"quant_method": "fp8"}, "'mxfp4'"),
    ("gpt_oss", "layer_types", ["chunked_attention"] * 2, "full_attention or"),
  ],
)
def test_refusals_name_the_field(name, field, value, expected, tmp_path):
  fields = fields_of(name, tmp_path) | {field: value}
  if field == "partial_rotary_factor":
    del fields["rope_parameters"][field]
  with pytest.raises(ValueError, match=expected) as refusal:
    huggingface_config.from_huggingface(fields)
  assert "\n" not in str(refusal.value) and "expected" in str(refusal.value)


@pytest.mark.parametrize("name", ["gemma3", "olmo3", "mistral"])
def test_windows_as_long_as_any_sequence_change_masks_alone(name, tmp_path):
  """Gemma 3 and OLMo 3 rotate otherwise in layers with a window."""
  fields = fields_of(name, tmp_path)
  before = huggingface_config.from_huggingface(fields)
  fields["sliding_window"] = fields["max_position_embeddings"]
  after = huggingface_config.from_huggingface(fields)
  got, want = (rope.of_layers(c).frequencies for c in (after, before))
  np.testing.assert_array_equal(got, want)
  assert bool(after.windows) == (name != "mistral")


@pytest.mark.parametrize(
  "change, expected",
  [
    ({"factor": None}, "factor=None"),
    ({"truncate": 0}, "truncate=0: expected true or false"),
    ({"unknown": 1}, "without"),
    ({"beta_fast": -1}, "beta_fast=-1"),
  ],
)
def test_yarn_is_refused_by_its_parameter(change, expected, tmp_path):
  fields = fields_of("qwen3_yarn", tmp_path)
  fields["rope_parameters"] |= change
  with pytest.raises(ValueError, match=expected):
    huggingface_config.from_huggingface(fields)


def test_a_decoder_that_a_family_cannot_describe_is_not_saved(
  tmp_path, one_device_mesh
):
  _, config, _ = loaded("olmo2", tmp_path, one_device_mesh)
  odd = dataclasses.replace(config, residual_scale=0.5)
  with pytest.raises(ValueError, match="residual_scale=0.5: expected 1.0"):
    huggingface_config.to_huggingface(odd, "float32")


# The fields in which the published Gemma 3, OLMo 3 and Phi-4-mini have what
# transformers now writes otherwise.
def test_older_rotary_fields_mean_the_same(tmp_path):
  for name, older in (
    (
      "gemma3",
      {
        "rope_theta": 1e6,
        "rope_local_base_freq": 1e4,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        "_sliding_window_pattern": 6,
      },
    ),
    (
      "olmo3",
      {
        "rope_theta": 5e5,
        "rope_scaling": {
          **{"rope_type": "yarn", "factor": 4.0, "beta_fast": 4.0},
          **{"attention_factor": 1.3, "original_max_position_embeddings": 16},
        },
      },
    ),
    (
      "phi4_long",
      {
        "auto_map": {"AutoConfig": "configuration_phi3.Phi3Config"},
        **{"attention_bias": False, "lm_head_bias": False, "mlp_bias": False},
        **{"full_attn_mod": 1, "interpolate_factor": 1},
        "partial_rotary_factor": 0.75,
        "rope_scaling": {
          "type": "longrope",
          "short_factor": [1.0, 1.2, 1.5],
          "long_factor": [2.0, 2.3, 2.5],
        },
        # Longer than the longest sequence, so it hides nothing.
        **{"rope_theta": 10000.0, "sliding_window": 262144},
      },
    ),
  ):
    fields = fields_of(name, tmp_path)
    read = huggingface_config.from_huggingface(fields)
    del fields["rope_parameters"]
    assert huggingface_config.from_huggingface(fields | older) == read
    fields.pop("layer_types", None)  # The usual pattern.
    assert huggingface_config.from_huggingface(fields | older) == read


@pytest.mark.slow
@pytest.mark.parametrize("name", family_cases.CASES)
def test_transformers_computes_the_same_today(name, tmp_path, one_device_mesh):
  """Of the tiny checkpoint, and of what we save of it."""
  import transformers

  found, config, params = loaded(name, tmp_path, one_device_mesh)
  again = family_cases.made_by_transformers(name)
  assert json.loads(str(again["shapes"])) == json.loads(str(found["shapes"]))
  safetensors_io.save(params, config, tmp_path / "saved", dtype="float32")
  saved, problems = transformers.AutoModelForCausalLM.from_pretrained(
    tmp_path / "saved",
    attn_implementation="eager",
    output_loading_info=True,
  )
  assert not any(problems.values())
  for results in (again, family_cases.results_of(saved.eval())):
    np.testing.assert_allclose(results["logits"], found["logits"], atol=1e-5)
    np.testing.assert_array_equal(results["greedy"], found["greedy"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gemma3", "olmo2", "smollm3", "gpt_oss"])
@pytest.mark.parametrize(
  "changes",
  [
    {"inlined": True, "remat": "attention"},
    {"inlined": True, "joined": True},
    {"remat": "full"},
    {"remat": "dots"},
  ],
)
def test_how_layers_run_changes_no_gradient(
  name, changes, tmp_path, one_device_mesh
):
  _, config, params = loaded(name, tmp_path, one_device_mesh)

  def gradient(model):
    def loss(params):
      hidden, _ = model.apply(
        {"params": params}, TOKENS[None], np.arange(len(TOKENS))[None]
      )
      return jnp.sum(jnp.sin(hidden))

    return jax.jit(jax.grad(loss))(params)

  model = transformer.Transformer(config)
  want, got = gradient(model), gradient(model.clone(**changes))
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, atol=2e-4), got, want
  )


@pytest.mark.slow
@pytest.mark.parametrize(
  "windows, sinks", [((8, 8), False), ((8, 0), True), ((), True)]
)
def test_the_sampler_of_windows_reads_pages_by_kernel_or_loop(windows, sinks):
  """On two devices; samples agree, and so do the learner's logits."""
  config = dataclasses.replace(
    rollout_model.CONFIG,
    **dict(windows=windows, local_rope_theta=100.0, sinks=sinks),
  )
  model = transformer.Transformer(config)
  params = transformer.init_params(model, jax.random.key(0))
  mesh = mesh_lib.make_mesh(
    {"data": 2, "fsdp": 1, "tensor": 1}, jax.devices()[:2]
  )
  prompt = "to be or not to"
  done = []
  for name in ("loop", "kernel"):
    settings = dataclasses.replace(
      rollout_model.SETTINGS, attention=name, page_size=4, max_tokens=12
    )
    sampler = Sampler(
      *(model, rollout_model.ByteTokenizer(), mesh),
      *(rollout_model.RULES, settings),
    )
    policy = Policy(
      *(sampler, rollout_model.ByteTokenizer()),
      *(Weights(sampler.compute_params(params)), jax.random.key(7)),
    )
    samples = policy.sample([policy.prompt(prompt)], 2)
    done.append({number: completion for _, number, completion in samples})
  for number, completion in done[0].items():
    ids = [*prompt.encode(), *completion.token_ids]
    hidden, _ = model.apply(
      {"params": params}, np.asarray([ids]), np.arange(len(ids))[None]
    )
    scores = jax.nn.log_softmax(steps.unembed(model, params, hidden)[0])
    at = np.arange(len(prompt), len(ids))
    want = scores[at - 1, np.asarray(ids)[at]]
    np.testing.assert_allclose(completion.logprobs, want, atol=1e-4)
    other = done[1][number]
    np.testing.assert_array_equal(completion.token_ids, other.token_ids)
    np.testing.assert_allclose(other.logprobs, want, atol=1e-4)
