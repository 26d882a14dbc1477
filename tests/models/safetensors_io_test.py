"""Weights are read once per range, and no tensor is silently dropped."""

import flax.linen as nn
import jax
import numpy as np
import pytest
import safetensors.numpy

from azr_jax.models import (
  safetensors_io,
  transformer,
  weight_loading,
  weight_names,
)
from azr_jax.models.config import ModelConfig
from azr_jax.parallel import mesh as mesh_lib

CONFIG = ModelConfig(
  vocab_size=32,
  hidden_size=16,
  num_layers=2,
  num_heads=4,
  num_kv_heads=2,
  head_size=6,
  mlp_size=24,
  rope_theta=1e4,
  norm_eps=1e-6,
  tie_embeddings=False,
  max_positions=64,
  qkv_bias=True,
  family="qwen2",
)
RULES = {
  "vocab": "tensor",
  "embed": "fsdp",
  "heads": "tensor",
  "kv_heads": "tensor",
  "head_size": None,
  "mlp": "tensor",
  "layers": None,
}


class CountingReader:
  """A reader that counts the values it returns."""

  def __init__(self, reader):
    self.reader, self.count = reader, 0
    self.path = reader.path

  def names(self):
    return self.reader.names()

  def shape(self, name):
    return self.reader.shape(name)

  def read(self, name, index):
    part = self.reader.read(name, index)
    self.count += part.size
    return part


@pytest.fixture(scope="module")
def params():
  """Returns random parameters, including biases and norms."""
  rng = np.random.default_rng(0)
  return jax.tree.map(
    lambda x: rng.normal(size=x.shape).astype(np.float32),
    nn.unbox(transformer.abstract_params(transformer.Transformer(CONFIG))),
  )


def mesh_of(fsdp, tensor):
  devices = jax.devices()[: fsdp * tensor]
  sizes = {"data": 1, "fsdp": fsdp, "tensor": tensor}
  return mesh_lib.make_mesh(sizes, devices)


def load(folder, mesh, rules=RULES):
  reader = CountingReader(safetensors_io.SafetensorsReader(folder))
  config = safetensors_io.read_config(folder)
  return weight_loading.load_params(config, reader, mesh, rules), reader.count


@pytest.mark.parametrize("dtype", sorted(safetensors_io.DTYPES))
def test_round_trip_rounds_to_the_saved_type(params, tmp_path, dtype):
  safetensors_io.save(params, CONFIG, tmp_path, dtype=dtype)
  assert safetensors_io.read_config(tmp_path) == CONFIG
  loaded, _ = load(tmp_path, mesh_of(1, 1))
  kind = safetensors_io.DTYPES[dtype]
  jax.tree.map(
    lambda got, want: np.testing.assert_array_equal(
      got, want.astype(kind).astype(np.float32)
    ),
    loaded,
    params,
  )
  assert {leaf.dtype for leaf in jax.tree.leaves(loaded)} == {
    np.dtype(np.float32)
  }


@pytest.mark.parametrize(
  "rules",
  [
    RULES,
    RULES | {"layers": "fsdp", "embed": None},
    RULES | {"head_size": "tensor", "heads": None, "kv_heads": "fsdp"},
    dict.fromkeys(RULES),
  ],
)
def test_any_sharding_loads_the_same_values_and_no_range_twice(
  params, tmp_path, rules
):
  safetensors_io.save(
    params, CONFIG, tmp_path, dtype="float32", max_file_bytes=4000
  )
  sharded, _ = load(tmp_path, mesh_of(2, 2), rules)
  jax.tree.map(np.testing.assert_array_equal, sharded, params)
  # Shards along the checkpoint's axes read every value once.
  if rules["head_size"] is None:
    _, count = load(tmp_path, mesh_of(2, 2), rules)
    assert count == sum(leaf.size for leaf in jax.tree.leaves(params))


def test_parts_go_to_their_devices(params, tmp_path):
  safetensors_io.save(params, CONFIG, tmp_path, dtype="float32")
  loaded, _ = load(tmp_path, mesh_of(4, 2))
  gate = loaded["layers"]["mlp"]["gate"]["kernel"]
  assert {s.data.shape for s in gate.addressable_shards} == {(2, 4, 12)}


def change(folder, edit):
  path = folder / safetensors_io.SINGLE
  tensors = safetensors.numpy.load_file(path)
  edit(tensors)
  safetensors.numpy.save_file(tensors, path)


@pytest.mark.parametrize(
  "edit, word",
  [
    (lambda t: t.pop("model.norm.weight"), "model.norm.weight is missing"),
    (
      lambda t: t.update({"model.norm.weight": np.ones(3, np.float32)}),
      r"model.norm.weight has shape \(3,\): expected \(16,\)",
    ),
    (
      lambda t: t.update({"model.layers.0.extra": np.ones(3, np.float32)}),
      "model.layers.0.extra",
    ),
  ],
)
def test_a_wrong_tensor_is_refused_by_name(params, tmp_path, edit, word):
  safetensors_io.save(params, CONFIG, tmp_path, dtype="float32")
  change(tmp_path, edit)
  with pytest.raises(ValueError, match=word):
    load(tmp_path, mesh_of(1, 1))


def test_too_large_for_float16_is_refused(params, tmp_path):
  large = params | {"embedding": params["embedding"] * 1e6}
  with pytest.raises(ValueError, match="embed_tokens.*65504"):
    safetensors_io.save(large, CONFIG, tmp_path, dtype="float16")


def test_saving_again_leaves_no_old_weights(params, tmp_path):
  safetensors_io.save(params, CONFIG, tmp_path, dtype="float32")
  safetensors_io.save(
    params, CONFIG, tmp_path, dtype="float32", max_file_bytes=4000
  )
  assert not (tmp_path / safetensors_io.SINGLE).exists()
  assert all(
    path.stat().st_size < 4000 + 2000
    for path in tmp_path.glob("model-*.safetensors")
  )
  safetensors_io.save(params, CONFIG, tmp_path, dtype="float32")
  files = {path.name for path in tmp_path.glob("*safetensors*")}
  assert files == {safetensors_io.SINGLE}


def test_a_missing_file_is_named(params, tmp_path):
  with pytest.raises(FileNotFoundError, match="neither"):
    safetensors_io.SafetensorsReader(tmp_path)
  safetensors_io.save(
    params, CONFIG, tmp_path, dtype="float32", max_file_bytes=4000
  )
  sorted(tmp_path.glob("model-*"))[1].unlink()
  with pytest.raises(FileNotFoundError, match="model-00002-of"):
    safetensors_io.SafetensorsReader(tmp_path)


def test_every_parameter_has_a_checkpoint_name(params):
  paths = {entry.path for entry in weight_names.entries(CONFIG)}
  leaves = jax.tree_util.tree_flatten_with_path(params)[0]
  assert paths == {tuple(key.key for key in path) for path, _ in leaves}
