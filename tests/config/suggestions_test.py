"""Names of settings in other libraries lead to our keys."""

import pytest

from azr_jax import api
from azr_jax.cli import config_files
from azr_jax.cli.errors import UsageError
from azr_jax.config import overrides, suggestions
from azr_jax.config.settings import Invalid
from azr_jax.trainer import settings

KEYS = overrides.flatten(settings.train_config("custom"))


@pytest.mark.parametrize("name", sorted(suggestions.SYNONYMS))
def test_every_name_leads_to_keys_that_exist(name):
  expected = [key.replace("*", "custom") for key in suggestions.SYNONYMS[name]]
  assert suggestions.meant(name, KEYS) == expected
  assert set(expected) <= set(KEYS)


@pytest.mark.parametrize(
  "name, key",
  [
    ("lr", "learning_rate"),
    ("beta", "kl_coef"),
    ("num_generations", "group_size"),
    ("max_completion_length", "max_tokens"),
    ("max_new_tokens", "max_tokens"),
    ("per_device_train_batch_size", "micro_rows"),
    ("epsilon", "clip_low and clip_high"),
    ("lerning_rate", "learning_rate"),
    ("gamma", "config={'critic.gamma': ...}"),
  ],
)
def test_the_api_names_the_argument_that_was_meant(name, key):
  with pytest.raises(Invalid) as refusal:
    api._changes({name: 1})
  assert str(refusal.value).endswith(f": did you mean {key}?")


@pytest.mark.parametrize(
  "word, key",
  [
    ("lr", "optimizer.learning_rate"),
    ("learning_rate", "optimizer.learning_rate"),
    ("optimizer.lr", "optimizer.learning_rate"),
    ("beta", "learner.kl_coef"),
    ("num_generations", "custom.group_size"),
    ("epsilon", "learner.clip_low and --config.learner.clip_high"),
    ("lerning_rate", "optimizer.learning_rate"),
    ("train.step", "train.steps"),
  ],
)
def test_the_command_names_the_key_that_was_meant(word, key):
  argv = ["azr-train", "--config=configs/custom.py", f"--config.{word}=1"]
  with pytest.raises(UsageError) as refusal:
    config_files.check_overrides(argv)
  assert str(refusal.value).endswith(f"did you mean --config.{key}?")
