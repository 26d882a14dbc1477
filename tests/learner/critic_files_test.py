"""A critic's files hold the same values for transformers and for a new run."""

import dataclasses
import json

import flax.linen as nn
import jax
import numpy as np
import pytest
import safetensors.numpy
import tiny_updates
import torch
import transformers
from typed import present

from azr_jax.learner import critic_files, value_model
from azr_jax.models import adapters, safetensors_io, transformer
from azr_jax.models.adapters import Lora

# Untied, as 7B is: the policy's output head is no part of the critic.
CONFIG = dataclasses.replace(tiny_updates.MODEL.config, tie_embeddings=False)
MODEL = transformer.Transformer(CONFIG)
D = CONFIG.hidden_size
RULES = tiny_updates.RULES


@pytest.fixture(scope="module", name="params")
def make_params():
  policy = jax.jit(lambda key: transformer.init_params(MODEL, key))(
    jax.random.key(0)
  )
  params = value_model.init_params(policy, D, jax.random.key(1), "paper")
  # Values of about 1, so that the tolerance means something.
  return params | {value_model.HEAD: params[value_model.HEAD] / 10}


@pytest.fixture(name="folder")
def make_folder(params, tmp_path):
  critic_files.save(params, CONFIG, tmp_path, dtype="float32")
  return tmp_path


def change(folder, **tensors):
  """Adds tensors to a critic's file; None removes one."""
  path = folder / safetensors_io.SINGLE
  found = safetensors.numpy.load_file(path)
  for name, value in tensors.items():
    found.pop(name, None)
    if value is not None:
      found[name] = np.asarray(value, np.float32)
  safetensors.numpy.save_file(found, path, {"format": "pt"})


def test_transformers_reads_the_same_values(params, folder):
  tokens = np.random.default_rng(0).integers(1, CONFIG.vocab_size, (2, 17))
  hidden = jax.jit(value_model.decoder(MODEL).apply)(
    {"params": params}, tokens, np.arange(17)[None].repeat(2, 0)
  )[0]
  want = np.asarray(hidden) @ np.asarray(params[value_model.HEAD])
  model = transformers.AutoModelForTokenClassification.from_pretrained(folder)
  with torch.no_grad():
    found = present(model.eval())(torch.from_numpy(tokens)).logits
  assert found.shape == (2, 17, 1) and np.ptp(want) > 1
  np.testing.assert_allclose(found[..., 0].numpy(), want, atol=1e-5)
  # Critics of ORZ and OpenRLHF have the head under another name.
  own = safetensors.numpy.load_file(folder / safetensors_io.SINGLE)
  assert own["value_head.weight"].shape == (1, D)
  np.testing.assert_array_equal(own["value_head.weight"], own["score.weight"])
  assert "lm_head.weight" not in own


@pytest.mark.parametrize(
  "kind", ["own", "published", "by device", "classifier"]
)
def test_a_run_starts_from_any_of_these_files(
  params, folder, one_device_mesh, kind
):
  head = np.asarray(params[value_model.HEAD])
  only = {"score.weight": None, "score.bias": None}
  if kind == "published":  # It may keep the policy's output head.
    lm_head = np.ones((CONFIG.vocab_size, D))
    change(folder, **only, **{"lm_head.weight": lm_head})
  elif kind == "by device":  # As ORZ's 32B was saved.
    change(folder, **only, **{"value_head.weight": head.reshape(8, -1)})
  elif kind == "classifier":
    change(folder, **{"value_head.weight": None})
  found = critic_files.load(MODEL, folder, one_device_mesh, RULES)
  assert jax.tree.structure(found) == jax.tree.structure(params)
  jax.tree.map(np.testing.assert_array_equal, found, params)


@pytest.mark.parametrize(
  "tensors, message",
  [
    (
      {"score.weight": None, "value_head.weight": None},
      f"expected a critic, with {D} numbers in value_head.weight",
    ),
    ({"score.bias": [0.5]}, "score.bias is not 0"),
    ({"model.norm.weight": np.ones(D + 1)}, "model.norm.weight has shape"),
  ],
)
def test_other_files_are_refused(folder, one_device_mesh, tensors, message):
  change(folder, **tensors)
  with pytest.raises(ValueError, match=message):
    critic_files.load(MODEL, folder, one_device_mesh, RULES)


def test_adapters_of_a_critic_are_merged(params, tmp_path, one_device_mesh):
  lora = Lora(2, 4.0)
  adapted = value_model.decoder(MODEL.clone(lora=lora))
  rng = np.random.default_rng(0)
  trained = jax.tree.map(
    lambda x: (0.3 * rng.normal(size=x.shape)).astype(np.float32),
    nn.unbox(transformer.abstract_trained(adapted)),
  )
  joined = adapters.join(params, trained)
  critic_files.save(joined, CONFIG, tmp_path, dtype="float32", lora=lora)
  found = critic_files.load(MODEL, tmp_path, one_device_mesh, RULES)
  tokens = rng.integers(1, CONFIG.vocab_size, (1, 9))
  inputs = tokens, np.arange(9)[None]
  values = []
  for model, weights in (
    (adapted, joined),
    (value_model.decoder(MODEL), found),
    (value_model.decoder(MODEL), params),
  ):
    hidden, _ = jax.jit(model.apply)({"params": weights}, *inputs)
    values.append(np.asarray(hidden) @ np.asarray(weights[value_model.HEAD]))
  np.testing.assert_allclose(values[1], values[0], atol=1e-5)
  assert np.abs(values[2] - values[0]).max() > 0.01


def test_several_files_have_the_head_in_their_index(params, tmp_path):
  own = value_model.decoder(MODEL).config
  safetensors_io.save(
    params,
    own,
    tmp_path,
    dtype="float32",
    max_file_bytes=4096,
    more={"value_head.weight": np.ones((1, D), np.float32)},
  )
  index = json.loads((tmp_path / safetensors_io.INDEX).read_text())
  reader = safetensors_io.SafetensorsReader(tmp_path)
  assert reader.shape("value_head.weight") == (1, D)
  sizes = [np.prod(reader.shape(name)) for name in reader.names()]
  assert index["metadata"]["total_size"] == 4 * sum(sizes)
