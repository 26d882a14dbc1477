"""A sampler with several adapters: each request gets its own."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from azr_jax import types
from azr_jax.models import adapter_stack, adapters, transformer
from azr_jax.models.adapters import Lora
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.rollout.adapter_ref import BASE
from azr_jax.rollout.adapter_table import AdapterTable
from azr_jax.rollout.sampler import Sampler
from azr_jax.rollout.settings import SpeculationSettings
from azr_jax.rollout.stream import SampleKey
from azr_jax.rollout.weights import Weights
from tests.rollout_model import CONFIG, MODEL, RULES, SETTINGS, ByteTokenizer

LORAS = [
  Lora(rank=4, alpha=8.0),
  Lora(rank=2, alpha=3.0, rank_stabilized=True, targets=("q", "down")),
  Lora(rank=3, alpha=6.0, targets=("v", "gate")),
]
STACK = adapter_stack.holding(LORAS)
KEY = jax.random.key(3)


def drawn(lora, seed):
  """Returns an adapter whose B is not 0."""
  trained = transformer.init_adapters(MODEL.clone(lora=lora), KEY)
  values = np.random.default_rng(seed)
  return jax.tree.map(
    lambda leaf: jnp.asarray(values.normal(0, 0.3, leaf.shape), jnp.float32),
    trained,
  )


ADAPTERS = [drawn(lora, seed) for seed, lora in enumerate(LORAS)]
BASE_PARAMS = transformer.init_params(MODEL, jax.random.key(0))


def make(mesh, **changes):
  """Returns a stream and the table of its adapters, without adapters yet."""
  settings = dataclasses.replace(
    SETTINGS, page_size=4, temperature=0.0, **changes
  )
  sampler = Sampler(
    MODEL.clone(lora=STACK), ByteTokenizer(), mesh, RULES, settings
  )
  weights = Weights(sampler.compute_params(BASE_PARAMS))
  return sampler.open(weights), AdapterTable(sampler.engine, weights)


def answers(stream, text, refs, n=1):
  """Returns the completions of a prompt by each of several adapters."""
  prompt = types.Prompt(text, tuple(text.encode()))
  key = SampleKey(np.asarray(jax.random.key_data(KEY)), 0)
  futures = [stream.submit(prompt, n, key, adapter=ref)[1] for ref in refs]
  while not stream.is_empty:
    if stream.send():
      stream.fetch()
  return [[future.result() for future in some] for some in futures]


def check(text, completion, lora, trained):
  """Compares a greedy completion with one pass of an adapter on its own."""
  model, params = MODEL.clone(lora=lora), adapters.join(BASE_PARAMS, trained)
  prompt, ids = list(text.encode()), completion.token_ids.tolist()
  tokens = jnp.asarray([prompt + ids])
  hidden, _ = model.apply(
    {"params": params}, tokens, jnp.arange(tokens.shape[1])[None]
  )
  logits = (hidden @ transformer.unembedding(params, CONFIG))[0]
  logps = np.asarray(jax.nn.log_softmax(logits))[len(prompt) - 1 : -1]
  np.testing.assert_array_equal(ids, logps.argmax(-1))
  np.testing.assert_allclose(completion.logprobs, logps.max(-1), atol=2e-5)


@pytest.mark.parametrize(
  "is_split", [pytest.param(False, marks=pytest.mark.slow), True]
)
@pytest.mark.slow
def test_each_request_gets_its_adapter(one_device_mesh, is_split):
  """With equal prompts, whose cached tokens differ by adapter."""
  mesh, changes = one_device_mesh, {}
  if is_split:
    mesh = mesh_lib.make_mesh({"data": 2, "fsdp": 2, "tensor": 2})
    drafting = SpeculationSettings(drafts=2, min_match=1, max_slots=8)
    changes = {"speculation": drafting}
  stream, table = make(mesh, **changes)
  refs = [table.add(*one) for one in zip(ADAPTERS, LORAS, strict=True)]
  text = "aabaabaabaab"
  of_base, *found = answers(stream, text, [BASE, *refs], n=2)
  for of_one, lora, trained in zip(found, LORAS, ADAPTERS, strict=True):
    for completion in of_one:
      check(text, completion, lora, trained)
  check(text, of_base[0], None, {})
  texts = {group[0].text for group in [of_base, *found]}
  assert len(texts) == 4, "the adapters must differ for this test"


def test_a_replaced_adapter_leaves_nothing(one_device_mesh):
  """Neither its weights in targets that the next lacks, nor its cache."""
  stream, table = make(one_device_mesh)
  text = "to be or not"
  first = table.add(ADAPTERS[0], LORAS[0])
  [[before]] = answers(stream, text, [first])
  check(text, before, LORAS[0], ADAPTERS[0])
  table.remove(first)
  second = table.add(ADAPTERS[1], LORAS[1])
  assert second.index == first.index
  [[after]] = answers(stream, text, [second])
  check(text, after, LORAS[1], ADAPTERS[1])


def test_an_adapter_that_does_not_fit_is_refused(one_device_mesh):
  _, table = make(one_device_mesh)
  wide = Lora(rank=8, alpha=8.0)
  with pytest.raises(ValueError, match=r"rank=8.*expected a rank of at most 4"):
    table.add(drawn(wide, 0), wide)
  for lora, trained in zip(LORAS, ADAPTERS, strict=True):
    table.add(trained, lora)
  with pytest.raises(ValueError, match="an adapter more than 3"):
    table.add(ADAPTERS[0], LORAS[0])
  assert table.num_free == 0


def test_tokens_of_a_packed_row_train_their_own_adapters():
  """The gradients of a mixed row are those of each adapter alone."""
  lora = Lora(rank=2, alpha=4.0)
  first, second = drawn(lora, 1), drawn(lora, 2)
  tokens = jnp.asarray([[1, 2, 3, 4, 5, 6, 7, 8]])
  ids = jnp.asarray([[0, 0, 0, 0, 0, 1, 1, 1]])
  positions = jnp.asarray([[0, 1, 2, 3, 4, 0, 1, 2]])
  model = MODEL.clone(lora=dataclasses.replace(lora, stacked=2))

  def loss(trained, model, mask, **inputs):
    params = adapters.join(BASE_PARAMS, trained)
    hidden, _ = model.apply(
      {"params": params}, tokens, positions, ids + 1, **inputs
    )
    return jnp.sum(jnp.sin(hidden) * mask[..., None])

  def stacked(path, *leaves):
    return jnp.stack(leaves, axis=-2 if path[-1].key == "a" else 1)

  both = jax.tree_util.tree_map_with_path(stacked, first, second)
  got = jax.grad(loss)(both, model, jnp.ones(ids.shape), adapter_ids=ids)
  alone = MODEL.clone(lora=lora)
  want = jax.tree_util.tree_map_with_path(
    stacked,
    jax.grad(loss)(first, alone, ids == 0),
    jax.grad(loss)(second, alone, ids == 1),
  )
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4),
    *(got, want),
  )
