"""Damaged model files are rejected in one line that names the file."""

import dataclasses
import json
import shutil
import struct
from typing import Any

import damage
import gguf
import gguf_files
import jax
import numpy as np
import pytest
import safetensors.numpy
import tokenizer_files

from azr_jax.models import (
  gguf_io,
  load,
  safetensors_io,
  tokenizers,
  transformer,
)
from azr_jax.models.config import Llama3RopeScaling, ModelConfig

CONFIG = ModelConfig(
  vocab_size=600,
  hidden_size=8,
  num_layers=2,
  num_heads=2,
  num_kv_heads=1,
  head_size=4,
  mlp_size=8,
  rope_theta=1e4,
  norm_eps=1e-6,
  tie_embeddings=True,
  max_positions=64,
  rope_scaling=Llama3RopeScaling(8.0, 1.0, 4.0, 32),
)
RULES = gguf_files.REPLICATED


@pytest.fixture(scope="module", name="whole")
def make_whole(tmp_path_factory):
  """Makes a tiny model's folder: two files and a sentencepiece tokenizer."""
  folder = tmp_path_factory.mktemp("model")
  model = transformer.Transformer(CONFIG)
  init = jax.jit(lambda key: transformer.init_params(model, key))
  params = init(jax.random.key(0))
  size = {"max_file_bytes": 12_000, "dtype": "float32"}
  safetensors_io.save(params, CONFIG, folder, eos_ids=(2,), **size)
  tokenizer = load.EMBEDDED["azr-tiny"] / "tokenizer.model"
  shutil.copy(tokenizer, folder / "tokenizer.model")
  assert (folder / safetensors_io.INDEX).exists()
  return folder


@pytest.fixture(name="folder")
def make_folder(whole, tmp_path):
  return shutil.copytree(whole, tmp_path / "model")


@pytest.fixture(name="read")
def make_read(folder, one_device_mesh):
  """Returns a function that loads the weights and uses the tokenizer."""

  def read():
    source = load.resolve(str(folder), str(folder))
    source.tokenizer.decode(source.tokenizer.encode("def f(x):"))
    source.load_params(one_device_mesh, RULES)

  read()
  return read


@pytest.mark.parametrize(
  "name", ["config.json", "model-00002-of-00002.safetensors", "tokenizer.model"]
)
def test_a_damaged_file_of_a_folder(folder, read, name):
  names = sorted(path.name for path in folder.glob("model-*"))
  path = folder / (names[-1] if name.startswith("model-") else name)
  assert damage.check(path, damage.variants(path.read_bytes()), read) > 8


def test_an_index_that_is_damaged(folder, read):
  path = folder / safetensors_io.INDEX
  data = path.read_bytes()
  assert damage.check(path, damage.variants(data), read) > 8
  index = json.loads(data)
  assert damage.check(path, damage.json_variants(index), read) > 8
  files = {"weight_map": dict.fromkeys(index["weight_map"], "../x")}
  damage.check(path, [("outside", json.dumps(files).encode(), True)], read)


def test_fields_of_other_types(folder, read):
  path = folder / "config.json"
  config = json.loads(path.read_bytes())
  assert damage.check(path, damage.json_variants(config), read) > 100
  scaling = config["rope_scaling"]
  nested = [
    (
      name,
      json.dumps(config | {"rope_scaling": json.loads(data)}).encode(),
      bad and data != b"null",
    )
    for name, data, bad in damage.json_variants(scaling)
    if b"NaN" not in data and b"e999" not in data and b"[[" not in data
    if b"Inf" not in data
  ]
  assert damage.check(path, nested, read) > 30


def tensors_of(path):
  return safetensors.numpy.load_file(path)


@pytest.mark.parametrize(
  "change, message",
  [
    (lambda x: x.astype(np.int32), "has type I32: expected one of"),
    (
      lambda x: np.where(x == x.flat[3], np.float32(np.nan), x),
      "expected finite weights",
    ),
    (
      lambda x: np.where(x == x.flat[3], np.float32(np.inf), x),
      "expected finite weights",
    ),
    (lambda x: x[..., :-1], "has shape"),
  ],
)
def test_weights_that_are_no_weights(folder, read, change, message):
  path = sorted(folder.glob("model-*"))[0]
  tensors = tensors_of(path)
  name = next(iter(tensors))
  tensors[name] = np.ascontiguousarray(change(tensors[name]))
  safetensors.numpy.save_file(tensors, path)
  with pytest.raises(ValueError) as error:
    read()
  assert str(folder) in str(error.value) and name in str(error.value)
  assert message in str(error.value)


def test_weights_of_a_pickle_are_never_unpickled(folder, read):
  path = sorted(folder.glob("model-*"))[0]
  pickled = b"\x80\x04\x95\x1e\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix"
  assert damage.check(path, [("pickle", pickled, True)], read) == 1


FILES = ("tokenizer.json", "tokenizer_config.json", "generation_config.json")


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_tokenizer_of_hugging_face(tmp_path, name):
  tokenizer_files.save_tokenizer(tmp_path)
  (tmp_path / FILES[2]).write_text(
    '{"eos_token_id": [0, 1], "pad_token_id": 0}'
  )
  path = tmp_path / name
  data = path.read_bytes()

  def read():
    tokenizer = tokenizers.from_folder(tmp_path)
    tokenizer.decode(tokenizer.encode("def f(x):"))

  read()
  damaged = damage.variants(data, header=12, flips=12)
  assert damage.check(path, damaged, read) > 8
  changed = damage.json_variants(json.loads(data))
  assert damage.check(path, changed, read) > 8


@pytest.fixture(name="gguf_file")
def make_gguf_file(tmp_path, vocabulary):
  path = tmp_path / "tiny.gguf"
  kind = gguf.GGMLQuantizationType.Q8_0
  gguf_files.write_gguf(path, "qwen2", kind, vocabulary)
  return path


@pytest.mark.parametrize(
  "header, flips",
  [(60, 20), pytest.param(200, 60, marks=pytest.mark.slow)],
)
def test_a_damaged_gguf_file(gguf_file, one_device_mesh, header, flips):
  def read():
    source = load._from_gguf(gguf_file)
    source.tokenizer.encode("def f(x):")
    source.load_params(one_device_mesh, RULES)

  read()
  data = gguf_file.read_bytes()
  damaged = damage.variants(data, header=header, flips=flips)
  assert damage.check(gguf_file, damaged, read) > header // 2


@pytest.mark.parametrize("kind", [0, 4, 8, 9, 12])
@pytest.mark.parametrize("count", [1 << 23, 1 << 31, 1 << 50, (1 << 64) - 1])
def test_a_gguf_file_with_a_huge_array_is_refused_at_once(
  gguf_file, kind, count
):
  key = b"tokenizer.ggml.scores"
  array = (
    struct.pack("<Q", len(key)) + key + struct.pack("<IIQ", 9, kind, count)
  )
  data = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + array + bytes(1000)
  damaged = [("huge", data, True)]
  assert damage.check(gguf_file, damaged, lambda: gguf_io.GGUFModel(gguf_file))


@pytest.mark.parametrize("field", dataclasses.fields(ModelConfig))
def test_a_config_has_positive_sizes(field):
  if field.type not in (int, float):
    return
  for value in (0, -1, "16", None, True, float("nan"), 1e400, 1 << 31):
    if field.type is float and value == 1 << 31:
      continue
    wrong: dict[str, Any] = {field.name: value}
    with pytest.raises(ValueError, match=f"{field.name}="):
      dataclasses.replace(CONFIG, **wrong)
