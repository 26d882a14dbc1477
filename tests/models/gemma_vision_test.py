"""Gemma 3 with a vision tower: its text decoder loads like one alone."""

import json
import types
from typing import Any

import jax
import numpy as np
import pytest
import safetensors.numpy

from azr_jax.models import (
  huggingface_config,
  load,
  safetensors_io,
  transformer,
)
from tests.models import family_cases
from tests.models.parity_test import RULES

TOKENS = family_cases.tokens()
OUTER = {
  "architectures": ["Gemma3ForConditionalGeneration"],
  "model_type": "gemma3",
  "mm_tokens_per_image": 256,
  "boi_token_index": 255_999,
  "eoi_token_index": 256_000,
  "image_token_index": 262_144,
  "vision_config": {"model_type": "siglip_vision_model"},
}
# As in google/gemma-3-4b-it.
PUBLISHED = OUTER | {
  "text_config": {
    "hidden_size": 2560,
    "intermediate_size": 10240,
    "model_type": "gemma3_text",
    "num_hidden_layers": 34,
    "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
    "sliding_window": 1024,
  }
}


def logits_of(folder, mesh):
  config = safetensors_io.read_config(folder)
  params = load._load_folder(config, folder, mesh, RULES)
  hidden, _ = jax.jit(transformer.Transformer(config).apply)(
    {"params": params}, TOKENS[None], np.arange(len(TOKENS))[None]
  )
  return hidden[0] @ transformer.unembedding(params, config)


def write(folder, text, images, more=()):
  """Writes the case `gemma3` as versions of transformers write it.

  Args:
    folder: the folder to write.
    text: what the decoder's tensors begin with.
    images: what the others begin with.
    more: names of other tensors.
  """
  found = family_cases.write("gemma3", folder)
  inner = json.loads((folder / "config.json").read_text())
  fields = OUTER | {"text_config": inner}
  (folder / "config.json").write_text(json.dumps(fields))
  own = safetensors.numpy.load_file(folder / "model.safetensors")
  tensors = {
    text + name.removeprefix("model."): x for name, x in own.items()
  } | {
    name: np.ones(3, np.float32)
    for name in (f"{images}vision_tower.post_layernorm.bias", *more)
  }
  safetensors.numpy.save_file(tensors, folder / "model.safetensors")
  return found


@pytest.mark.parametrize(
  "text, images",
  [("language_model.model.", ""), ("model.language_model.", "model.")],
)
def test_the_text_decoder_computes_what_it_does_alone(
  text, images, tmp_path, one_device_mesh
):
  found = write(tmp_path, text, images)
  logits = logits_of(tmp_path, one_device_mesh)
  np.testing.assert_allclose(logits, found["logits"], atol=1e-5)


def test_an_output_head_of_its_own_is_found(tmp_path):
  head = "language_model.lm_head.weight"
  write(tmp_path, "language_model.model.", "", [head])
  assert safetensors_io.has_own_head(tmp_path)


def test_peft_s_format_would_not_fit_the_whole_model(tmp_path, monkeypatch):
  """Others would look for the adapters' modules in the whole model."""
  write(tmp_path, "language_model.model.", "")
  tokenizer = types.SimpleNamespace(vocab_size=48)
  monkeypatch.setattr(load.tokenizers, "from_folder", lambda _: tokenizer)
  source = load.resolve(str(tmp_path), "")
  with pytest.raises(ValueError, match="has a vision tower: expected a model"):
    source.peft_base()


@pytest.mark.parametrize(
  "name, expected",
  [
    ("audio_tower.bias", r"\['audio_tower.bias'\].*not part of the decoder"),
    ("model.norm.weight", "model.norm.weight: expected one of them"),
  ],
)
def test_other_tensors_are_refused(name, expected, tmp_path, one_device_mesh):
  write(tmp_path, "language_model.model.", "", [name])
  with pytest.raises(ValueError, match=expected):
    logits_of(tmp_path, one_device_mesh)


@pytest.mark.parametrize(
  "changes, expected",
  [
    ({"text_config": None}, "text_config=None: expected an object"),
    ({"text_config": {"model_type": "llama"}}, "model_type='gemma3_text'"),
    ({"tie_word_embeddings": False}, "tie_word_embeddings=False: expected T"),
    ({"audio_config": {}}, "audio_config={}: expected a field"),
    ({"text_config": {"final_logit_softcapping": 30.0}}, "expected null"),
  ],
)
def test_other_fields_are_refused(changes, expected):
  with pytest.raises(ValueError, match=expected):
    huggingface_config.from_huggingface(PUBLISHED | changes)


@pytest.mark.slow
def test_transformers_reads_the_same_config_and_computes_the_same(
  tmp_path, one_device_mesh
):
  import torch
  import transformers

  published: Any = transformers.Gemma3Config.from_dict(PUBLISHED)
  ours = huggingface_config.from_huggingface(PUBLISHED)
  inner = {"model_type": "gemma3_text", **published.text_config.to_dict()}
  assert huggingface_config.from_huggingface(inner) == ours
  small = dict(num_hidden_layers=1, hidden_size=16, intermediate_size=16)
  fields = json.loads(str(family_cases.write("gemma3", tmp_path)["config"]))
  config = transformers.Gemma3Config.from_dict(
    {
      "text_config": fields,
      "vision_config": dict(
        **small, num_attention_heads=2, image_size=28, patch_size=14
      ),
      "mm_tokens_per_image": 1,
      **{f"{name}_token_index": 0 for name in ("boi", "eoi", "image")},
    }
  )
  torch.manual_seed(0)
  model = transformers.Gemma3ForConditionalGeneration(config).eval()
  with torch.no_grad():
    for parameter in model.parameters():
      parameter.normal_(std=0.2)
    want = model(torch.tensor(TOKENS[None])).logits[0].numpy()
  model.save_pretrained(tmp_path)
  logits = logits_of(tmp_path, one_device_mesh)
  np.testing.assert_allclose(logits, want, atol=1e-5)
