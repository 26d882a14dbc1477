"""Adapters of experts agree with PEFT's, in files of both."""

import dataclasses
import json

import flax.linen as nn
import jax
import numpy as np
import pytest
import safetensors.numpy
import transformers

from azr_jax.models import adapters, load, peft_experts, peft_io, transformer
from azr_jax.models.adapters import Lora
from azr_jax.models.config import ExpertShape
from azr_jax.models.settings import LoraSettings
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.parallel.settings import ShardingSettings
from tests import rollout_model
from tests.models.parity_test import RULES, load_folder, our_logits

pytestmark = [
  # PEFT reads a property that transformers calls by another name now.
  pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`"),
  # PEFT applies these patterns and says that it does not.
  pytest.mark.filterwarnings("ignore:The following (rank|alpha)_pattern keys"),
]
SHAPE = dict(
  vocab_size=256,
  hidden_size=32,
  num_hidden_layers=2,
  num_attention_heads=4,
  num_key_value_heads=2,
  head_dim=8,
  num_experts_per_tok=2,
  tie_word_embeddings=False,
)
FIELDS = {
  "qwen3_moe": dict(
    num_experts=4, moe_intermediate_size=24, norm_topk_prob=True
  ),
  "gpt_oss": dict(num_local_experts=4, intermediate_size=24),
}
PARAMETERS = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
TOKENS = np.random.default_rng(0).integers(0, 256, (2, 24))
OURS = Lora(8, 6.0, targets=("q", "o", "gate", "up", "down"))
CONFIG = dataclasses.replace(
  rollout_model.CONFIG,
  family="qwen3_moe",
  qk_norm=True,
  experts=ExpertShape(4, 2, 24),
)


def logits_of(model):
  import torch

  with torch.no_grad():
    return model(torch.tensor(TOKENS)).logits.numpy()


def trained_like(config, lora):
  """Returns random adapters on the host."""
  rng = np.random.default_rng(1)
  boxed = transformer.abstract_trained(
    transformer.Transformer(config, lora=lora)
  )
  return jax.tree.map(
    lambda x: (0.3 * rng.normal(size=x.shape)).astype(np.float32),
    nn.unbox(boxed),
  )


@pytest.fixture(
  scope="module",
  params=["qwen3_moe", pytest.param("gpt_oss", marks=pytest.mark.slow)],
)
def base(request, tmp_path_factory):
  """The folder of a random model."""
  import torch

  torch.manual_seed(0)
  config = transformers.AutoConfig.for_model(
    request.param, **SHAPE, **FIELDS[request.param]
  )
  model = transformers.AutoModelForCausalLM.from_config(config)
  with torch.no_grad():
    for name, parameter in model.named_parameters():
      if "experts" in name or "router" in name or "mlp.gate" in name:
        parameter.copy_(0.3 * torch.randn_like(parameter))
  folder = tmp_path_factory.mktemp("base")
  model.save_pretrained(folder)
  return folder


def check(folder, base, want, mesh):
  """Checks that we compute the logits `want` with an adapter."""
  config, params = load_folder(base, mesh)
  lora, _ = peft_io.read_config(folder)
  trained = peft_io.load(folder, config, lora, mesh, RULES)
  whole = adapters.join(params, trained)
  got = our_logits(config, whole, TOKENS, lora=lora)
  np.testing.assert_allclose(got, want, atol=1e-5)
  assert np.abs(got - our_logits(config, params, TOKENS)).max() > 0.1
  return lora, trained


def test_peft_s_files_are_read(base, tmp_path, one_device_mesh):
  """One A for gate and up, and the rank of attention."""
  import peft
  import torch

  options = peft.LoraConfig(
    r=4,
    lora_alpha=10,
    target_modules=["q_proj", "v_proj"],
    target_parameters=PARAMETERS,
    task_type="CAUSAL_LM",
  )
  model = peft.get_peft_model(
    transformers.AutoModelForCausalLM.from_pretrained(base), options
  )
  with torch.no_grad():
    for name, parameter in model.named_parameters():
      if "lora_B" in name:
        parameter.copy_(0.3 * torch.randn_like(parameter))
  model.save_pretrained(tmp_path)
  lora, trained = check(tmp_path, base, logits_of(model), one_device_mesh)
  targets = ("q", "v", "gate", "up", "down")
  assert lora == Lora(4, 10.0, targets=targets, expert_rank=4)
  own = trained["layers"]["experts"]
  np.testing.assert_array_equal(own["gate_lora"]["a"], own["up_lora"]["a"])


@pytest.mark.parametrize(
  "lora",
  [
    OURS,
    pytest.param(
      Lora(8, 6.0, True, ("gate", "up"), expert_rank=3), marks=pytest.mark.slow
    ),
    pytest.param(Lora(8, 7.5, True, ("v", "down")), marks=pytest.mark.slow),
  ],
  ids=["all", "gate and up, rslora", "down, rslora"],
)
def test_peft_reads_our_files(base, tmp_path, one_device_mesh, lora):
  import peft

  config, _ = load_folder(base, one_device_mesh)
  trained = trained_like(config, lora)
  peft_io.save(trained, config, lora, str(base), tmp_path)
  want = logits_of(peft.AutoPeftModelForCausalLM.from_pretrained(tmp_path))
  again, read = check(tmp_path, base, want, one_device_mesh)
  assert again.of_model(config) == lora
  jax.tree.map(np.testing.assert_array_equal, read, trained)


def saved(folder, lora=OURS, config=CONFIG):
  trained = trained_like(config, lora)
  peft_io.save(trained, config, lora, "hf:a/b", folder)
  return trained


def read(folder, mesh, rules=RULES):
  lora, _ = peft_io.read_config(folder)
  return peft_io.load(folder, CONFIG, lora, mesh, rules)


@pytest.mark.parametrize("family", ["qwen3_moe", "gpt_oss"])
def test_each_device_reads_its_own_experts(tmp_path, family):
  config = dataclasses.replace(CONFIG, family=family)
  trained = saved(tmp_path, config=config)
  mesh = mesh_lib.make_mesh(
    {"fsdp": 2, "expert": 2, "tensor": 2}, jax.devices()[:8]
  )
  lora, _ = peft_io.read_config(tmp_path)
  rules = ShardingSettings().rules()
  got = peft_io.load(tmp_path, config, lora, mesh, rules)
  jax.tree.map(np.testing.assert_array_equal, got, trained)
  b = got["layers"]["experts"]["up_lora"]["b"]
  assert b.sharding.shard_shape(b.shape) == (2, 2, 4, 12)


def no_params(*_, **__):
  return {}


def test_an_adapter_of_the_usual_rank_starts_a_run(tmp_path, monkeypatch):
  """Its shape is that of `lora.rank=8`, whose experts have rank 4 here."""
  saved(tmp_path)
  source = load.ModelSource(CONFIG, rollout_model.ByteTokenizer(), no_params)
  monkeypatch.setattr(load, "resolve", lambda *_: source)
  assert load._from_adapter(tmp_path, "unused").lora == OURS
  other = dataclasses.replace(OURS, expert_rank=3)
  saved(tmp_path, other)
  assert load._from_adapter(tmp_path, "unused").lora == other
  assert LoraSettings.describing(other).adapters == other


@pytest.mark.parametrize(
  "changes, message",
  [
    ({"target_parameters": ["mlp.gate.weight"]}, "target_parameters="),
    ({"rank_pattern": {"q_proj": 2}}, "rank_pattern={'q_proj': 2}"),
    ({"rank_pattern": {}}, "one rank for the parameters of experts"),
    ({"alpha_pattern": {}}, "one rank for the parameters of experts"),
    ({"alpha_pattern": {"down_proj": 3}}, "with lora_alpha=6"),
  ],
)
def test_other_ranks_and_parameters_are_refused(tmp_path, changes, message):
  saved(tmp_path)
  path = tmp_path / peft_io.CONFIG
  path.write_text(json.dumps(json.loads(path.read_text()) | changes))
  with pytest.raises(ValueError, match=f"adapter_config.json has .*{message}"):
    peft_io.read_config(tmp_path)


def rewrite(folder, change):
  path = folder / peft_io.WEIGHTS
  tensors = safetensors.numpy.load_file(path)
  safetensors.numpy.save_file(change(tensors), path)


def test_other_tensors_are_refused(tmp_path, one_device_mesh):
  module = f"base_model.model.model.layers.1.{peft_experts.MODULE}"
  name = f"{module}.base_layer.lora_B.weight"

  def mixed(tensors):
    return tensors | {name: tensors[name] + 1}

  saved(tmp_path)
  rewrite(tmp_path, mixed)
  with pytest.raises(ValueError, match=f"{name} mixes gate and up: expected"):
    read(tmp_path, one_device_mesh)
  rewrite(tmp_path, lambda x: x | {name: np.zeros((48, 12), np.float32)})
  with pytest.raises(ValueError, match=r"\(48, 12\): expected 16 or 32 col"):
    read(tmp_path, one_device_mesh)
  old = f"{module}.0.gate_proj.lora_A.weight"
  rewrite(tmp_path, lambda x: x | {old: np.zeros((4, 32), np.float32)})
  with pytest.raises(ValueError, match=f"{old} belongs to one expert"):
    read(tmp_path, one_device_mesh)
  with pytest.raises(ValueError, match=r"lora.targets=.*both gate and up or"):
    peft_io.check(CONFIG, Lora(8, 6.0, targets=("q", "gate", "down")))
