"""An adapter and its merged export write the same text in transformers."""

import jax
import numpy as np
import pytest
import transformers
from typed import present

from azr_jax import export, types
from azr_jax.configs import evaluate as evaluate_config
from azr_jax.models import load, peft_io, transformer
from azr_jax.models.adapters import Lora
from azr_jax.trainer import loading, settings
from azr_jax.trainer.settings import EvaluateSettings

PROMPT = "12 + 34 - 5 ="
LENGTH = 24
LORA = Lora(rank=4, alpha=8.0, targets=("q", "v", "up", "down"))

pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`")


@pytest.fixture(scope="module", name="folders")
def make_folders(tmp_path_factory):
  """A base model, and a folder with an adapter that changes it."""
  folder = tmp_path_factory.mktemp("adapter")
  base, adapter = folder / "base", folder / "adapter"
  config = evaluate_config.get_config("problems_tiny")
  export.export(config, "embedded:orz-tiny", str(base), "float32")
  source = load.resolve(str(base), "unused")
  model = transformer.Transformer(source.config, lora=LORA)
  init = jax.jit(lambda key: transformer.init_adapters(model, key))
  noise = np.random.default_rng(0)
  trained = jax.tree.map(
    lambda x: x + 0.1 * noise.normal(size=x.shape).astype(np.float32),
    jax.device_get(init(jax.random.key(0))),
  )
  peft_io.save(trained, source.config, LORA, str(base), adapter)
  return base, adapter


def greedy(model, tokenizer):
  """The token ids that a model of transformers writes after the prompt."""
  prompt = tokenizer(PROMPT, return_tensors="pt", return_token_type_ids=False)
  written = model.generate(**prompt, do_sample=False, max_new_tokens=LENGTH)
  return written.numpy()[0, prompt["input_ids"].shape[1] :].tolist()


@pytest.mark.slow
def test_sampling_an_adapter_writes_peft_s_greedy_text(
  folders, tmp_path, on_one_device
):
  import peft

  base, adapter = folders
  tokenizer = present(transformers.AutoTokenizer.from_pretrained(base))
  plain = transformers.AutoModelForCausalLM.from_pretrained(base)
  untrained = greedy(plain, tokenizer)
  want = greedy(peft.PeftModel.from_pretrained(plain, str(adapter)), tokenizer)
  assert want != untrained

  config = evaluate_config.get_config("problems_tiny")
  config.rollout.max_tokens, config.rollout.temperature = LENGTH, 0.0
  config.rollout.stop_strings = ()
  c = settings.read(EvaluateSettings, config)
  merged = tmp_path / "merged"
  export.export(config, str(adapter), str(merged), "float32")
  again = tmp_path / "again"
  export.export(config, str(adapter), str(again), "float32", ("peft",))
  for spec in (adapter, merged, again):
    policy = loading.load_policy(c, str(spec))
    ids = policy.tokenizer.encode_prompt(PROMPT)
    prompt = types.Prompt(PROMPT, tuple(ids))
    [(_, _, completion)] = policy.sample([prompt])
    assert list(completion.token_ids) == want
  model = transformers.AutoModelForCausalLM.from_pretrained(merged)
  assert greedy(model, tokenizer) == want
  assert (again / "tokenizer_config.json").exists()
  for name in (peft_io.WEIGHTS,):
    assert (again / name).read_bytes() == (adapter / name).read_bytes()


def test_a_model_without_adapters_has_no_peft_export(tmp_path):
  config = evaluate_config.get_config("problems_tiny")
  with pytest.raises(ValueError, match="formats=peft: expected a run or model"):
    export.export(
      config, "embedded:orz-tiny", str(tmp_path / "out"), "float32", ("peft",)
    )
  with pytest.raises(ValueError, match="expected peft alone"):
    export.export(
      config,
      "embedded:orz-tiny",
      str(tmp_path / "out"),
      "float32",
      ("peft", "gguf"),
    )
  assert not (tmp_path / "out" / "config.json").exists()
