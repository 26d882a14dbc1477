"""Every form of a model spec loads, online and offline."""

import dataclasses
import json
import os
import shutil

import huggingface_hub
import huggingface_hub.constants
import jax
import numpy as np
import pytest
import safetensors.numpy

from azr_jax.models import (
  huggingface_config,
  load,
  presets,
  safetensors_io,
)
from azr_jax.parallel import mesh as mesh_lib

REPLICATED = dict.fromkeys(
  ("vocab", "embed", "heads", "kv_heads", "head_size", "mlp", "layers")
)


def assert_same(ours, theirs):
  jax.tree.map(np.testing.assert_array_equal, ours, theirs)


@pytest.mark.parametrize(
  "spec",
  ["embedded:gpt-5", "random:none", "hf:", "pypi:", "nowhere", "a:b", ""],
)
def test_an_unknown_spec_lists_the_forms(spec, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  with pytest.raises(ValueError, match="expected embedded.*or an existing"):
    load.resolve(spec, str(tmp_path))


def test_embedded_model_is_the_preset(tmp_path, one_device_mesh):
  source = load.resolve("embedded:azr-tiny", str(tmp_path))
  assert source.config == presets.PRESETS["azr-tiny"]
  assert source.tokenizer.vocab_size <= source.config.vocab_size
  params = source.load_params(one_device_mesh, REPLICATED)
  assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(params))
  assert not list(tmp_path.iterdir())


def test_random_weights_are_spread_over_the_mesh(tmp_path, monkeypatch):
  small = dataclasses.replace(
    presets.PRESETS["azr-tiny"], hidden_size=64, num_layers=2
  )
  monkeypatch.setitem(presets.PRESETS, "small", small)
  source = load.resolve("random:small", str(tmp_path))
  mesh = mesh_lib.make_mesh({"data": 1, "fsdp": 2, "tensor": 4})
  params = source.load_params(mesh, REPLICATED | {"embed": "fsdp"})
  sizes = presets.parameter_count(source.config)
  assert sum(leaf.size for leaf in jax.tree.leaves(params)) == sizes
  assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(params))
  table = params["embedding"]
  assert table.addressable_shards[0].data.size == table.size // 2


@pytest.fixture
def exported(tmp_path, one_device_mesh):
  """Saves the embedded model again, with its tokenizer."""
  source = load.resolve("embedded:azr-tiny", str(tmp_path))
  params = source.load_params(one_device_mesh, REPLICATED)
  folder = tmp_path / "exported"
  safetensors_io.save(
    params,
    source.config,
    folder,
    dtype="float32",
    eos_ids=source.tokenizer.eos_ids,
  )
  source.tokenizer.save(folder)
  return folder, params


def test_a_folder_round_trip(exported, tmp_path, one_device_mesh):
  folder, params = exported
  again = load.resolve(str(folder), str(tmp_path))
  assert_same(again.load_params(one_device_mesh, REPLICATED), params)
  text = "def f(a):\n  return a + 1"
  assert again.tokenizer.decode(again.tokenizer.encode(text)) == text
  written = json.loads((folder / "config.json").read_text())
  assert written["eos_token_id"] == list(again.tokenizer.eos_ids)


def with_head(folder, change):
  """Adds a modified copy of the embedding as the head."""
  path = folder / safetensors_io.SINGLE
  tensors = safetensors.numpy.load_file(path)
  tensors["lm_head.weight"] = change(tensors["model.embed_tokens.weight"])
  safetensors.numpy.save_file(tensors, path)
  return tensors["lm_head.weight"]


def test_a_tied_model_with_a_head_of_its_own_is_untied(
  exported, tmp_path, one_device_mesh, monkeypatch
):
  monkeypatch.setattr(safetensors_io, "_COMPARED_BYTES", 1 << 14)
  folder, _ = exported
  last = np.arange(load.resolve(str(folder), "").config.vocab_size)[:, None]
  head = with_head(folder, lambda x: x + (last == last.max()))
  source = load.resolve(str(folder), str(tmp_path))
  assert not source.config.tie_embeddings
  assert "lm_head.weight" in source.notes[0] and "untied" in source.notes[0]
  params = source.load_params(one_device_mesh, REPLICATED)
  np.testing.assert_array_equal(params["head"], head.T)
  again = tmp_path / "again"
  safetensors_io.save(params, source.config, again, dtype="float32")
  written = safetensors.numpy.load_file(again / safetensors_io.SINGLE)
  np.testing.assert_array_equal(written["lm_head.weight"], head)
  assert not json.loads((again / "config.json").read_text())[
    "tie_word_embeddings"
  ]


def test_a_tied_model_with_a_copy_of_the_embedding_stays_tied(
  exported, tmp_path, one_device_mesh
):
  folder, params = exported
  with_head(folder, np.copy)
  source = load.resolve(str(folder), str(tmp_path))
  assert source.config.tie_embeddings and not source.notes
  assert_same(source.load_params(one_device_mesh, REPLICATED), params)


def test_a_tokenizer_with_more_ids_than_the_embedding_has_rows(exported):
  folder, _ = exported
  path = folder / "config.json"
  config = json.loads(path.read_text())
  vocab_size = load.resolve(str(folder), "").tokenizer.vocab_size
  path.write_text(json.dumps(config | {"vocab_size": vocab_size}))
  assert load.resolve(str(folder), "")
  path.write_text(json.dumps(config | {"vocab_size": vocab_size - 1}))
  with pytest.raises(
    ValueError,
    match=f"ids up to {vocab_size - 1}, .*has {vocab_size - 1} rows",
  ):
    load.resolve(str(folder), "")


def test_a_folder_that_is_no_model_says_what_it_is(tmp_path):
  with pytest.raises(ValueError, match="no config.json: .*it holds nothing$"):
    load.resolve(str(tmp_path), "")
  (tmp_path / "adapter_model.safetensors").write_bytes(b"")
  adapter = {"peft_type": "LORA", "base_model_name_or_path": "a/base"}
  (tmp_path / "adapter_config.json").write_text(json.dumps(adapter))
  with pytest.raises(ValueError, match="config of a LoRA adapter .*KeyError"):
    load.resolve(str(tmp_path), "")


def test_an_unknown_family_is_one_plain_line(exported):
  folder, _ = exported
  path = folder / "config.json"
  config = json.loads(path.read_text())
  path.write_text(json.dumps(config | {"model_type": "gpt2"}))
  with pytest.raises(ValueError) as error:
    load.resolve(str(folder), "")
  expected = f"one of {huggingface_config.MODEL_TYPES}"
  assert str(error.value) == f"{path} model_type='gpt2': expected {expected}"


def test_a_pipe_among_the_files_is_refused(exported):
  folder, _ = exported
  (folder / safetensors_io.SINGLE).unlink()
  os.mkfifo(folder / safetensors_io.SINGLE)
  with pytest.raises(ValueError, match="model.safetensors: expected a regular"):
    load.resolve(str(folder), "")
  shutil.move(folder / safetensors_io.SINGLE, folder / "pipe")
  index = {"weight_map": {"model.norm.weight": "pipe"}}
  (folder / safetensors_io.INDEX).write_text(json.dumps(index))
  with pytest.raises(ValueError, match="pipe: expected a regular file"):
    safetensors_io.SafetensorsReader(folder)


def test_files_in_folders_of_a_hub_model_are_not_downloaded(
  tmp_path, monkeypatch
):
  """gpt-oss has its weights again in `original/` and in `metal/`."""
  own = ["config.json", "model.safetensors", "chat_template.jinja"]
  names = [*own, "original/model.safetensors", "README.md", "metal/model.bin"]
  asked = []

  def download(name, allow_patterns, ignore_patterns, cache_dir):
    asked.extend(
      huggingface_hub.utils.filter_repo_objects(
        names, allow_patterns=allow_patterns, ignore_patterns=ignore_patterns
      )
    )
    return str(tmp_path)

  monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
  monkeypatch.setattr(huggingface_hub, "list_repo_files", lambda name: names)
  assert load.folder_of("hf:a/b", str(tmp_path)) == tmp_path
  assert asked == load.hub_files("a/b") == own


def test_a_cached_hub_model_needs_no_network(
  exported, tmp_path, one_device_mesh, monkeypatch
):
  folder, params = exported
  monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
  repository = tmp_path / "hub" / "models--someone--tiny"
  (repository / "refs").mkdir(parents=True)
  (repository / "refs" / "main").write_text("0" * 40)
  (repository / "snapshots").mkdir()
  folder.rename(repository / "snapshots" / ("0" * 40))
  source = load.resolve("hf:someone/tiny", str(tmp_path))
  assert_same(source.load_params(one_device_mesh, REPLICATED), params)
