"""Adapters are served beside their base model, each as its own model."""

import jax
import jax.numpy as jnp
import numpy as np
import openai
import pytest
import training

from azr_jax.cli.errors import UsageError
from azr_jax.models import adapter_stack, load, peft_io, transformer
from azr_jax.models.adapters import Lora
from azr_jax.serving import command
from azr_jax.trainer import loading
from tests.serving.conftest import serving

LORAS = {
  "wide": Lora(rank=4, alpha=8.0),
  "narrow": Lora(rank=2, alpha=2.0, targets=("q", "down")),
}
PROMPT = "def f(x):\n"
SAMPLING = {"max_tokens": 12, "temperature": 0.0, "seed": 1}


@pytest.fixture(scope="module", name="folders")
def make_folders(model_folder, tmp_path_factory):
  """Adapters of the served model in PEFT's format, by name."""
  source = load.resolve(str(model_folder), "unused")
  folders = {}
  for seed, (name, lora) in enumerate(LORAS.items()):
    model = transformer.Transformer(source.config, lora=lora)
    trained = transformer.init_adapters(model, jax.random.key(0))
    noise = np.random.default_rng(seed)
    trained = jax.tree.map(
      lambda leaf, noise=noise: jnp.asarray(
        noise.normal(0, 0.2, leaf.shape), jnp.float32
      ),
      trained,
    )
    folders[name] = tmp_path_factory.mktemp("adapters") / name
    peft_io.save(trained, source.config, lora, str(model_folder), folders[name])
  return folders


@pytest.fixture(scope="module", name="served_adapters")
def serve_adapters(folders, model_folder, settings):
  with pytest.MonkeyPatch.context() as patch:
    training.use_devices(patch)
    named = command.find_adapters([f"{k}={v}" for k, v in folders.items()])
    stack = adapter_stack.holding([one.lora for one in named.values()])
    policy = loading.load_policy(settings, str(model_folder), stack=stack)
    refs = command.add_adapters(named, settings, policy, str(model_folder))
  with serving(policy, settings, adapters=refs) as one:
    yield one


def alone(folder, settings):
  """The text that an adapter's own policy samples."""
  with pytest.MonkeyPatch.context() as patch:
    training.use_devices(patch)
    policy = loading.load_policy(settings, str(folder))
  [(*_, done)] = policy.sample(
    [policy.prompt(PROMPT)], 1, temperature=0.0, max_new_tokens=[12]
  )
  return done


@pytest.mark.slow
def test_each_model_answers_as_its_adapter_does_alone(
  served_adapters, folders, model_folder, settings
):
  client = served_adapters.client()
  names = [one.id for one in client.models.list()]
  assert names == ["tiny", "wide", "narrow"]
  answers = {
    name: client.completions.create(
      model=name, prompt=PROMPT, logprobs=2, **SAMPLING
    )
    for name in names
  }
  assert len({one.choices[0].text for one in answers.values()}) == 3
  for name, answer in answers.items():
    want = alone(folders.get(name, model_folder), settings)
    assert answer.model == name and answer.choices[0].text == want.text
    # These come from a second pass, which must use the same adapter.
    scored = answer.choices[0].logprobs.token_logprobs
    np.testing.assert_allclose(scored, want.logprobs[: len(scored)], atol=1e-4)


@pytest.mark.slow
def test_an_unknown_model_is_answered_with_the_known_ones(served_adapters):
  client = served_adapters.client()
  with pytest.raises(openai.NotFoundError, match="'tiny' or 'wide' or 'narrow"):
    client.completions.create(model="other", prompt=PROMPT, **SAMPLING)
  assert client.models.retrieve("narrow").id == "narrow"


@pytest.mark.parametrize("spec", ["wide", "=folder", "wide="])
def test_an_adapter_without_name_or_folder_is_refused(spec):
  with pytest.raises(UsageError, match="expected NAME=FOLDER"):
    command.find_adapters([spec])


def test_what_cannot_get_adapters_is_refused(folders, model_folder, settings):
  with pytest.raises(ValueError, match="expected an adapter"):
    command.find_adapters([f"base={model_folder}"])
  stack = adapter_stack.holding([LORAS["wide"]])
  with pytest.raises(ValueError, match="has adapters: expected a whole model"):
    loading.load_policy(settings, str(folders["wide"]), stack=stack)
