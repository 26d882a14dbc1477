"""Each command prints which model it loaded, and warns of long sequences."""

import dataclasses
import json

import pytest

from azr_jax import sft
from azr_jax.configs import evaluate, orz
from azr_jax.configs import sft as sft_config
from azr_jax.models import load
from azr_jax.models.settings import LoraSettings
from azr_jax.trainer import build, loading, messages, settings

NOTE = "responses end with '<|im_end|>' (1, from the tokenizer)"


class Shown(Exception):
  """Raised to end a command once it has announced its model."""


@pytest.fixture(name="source")
def make_source(monkeypatch):
  """A model with 64 positions, returned for every spec."""
  source = load.resolve("embedded:orz-tiny", "")
  config = dataclasses.replace(source.config, max_positions=64)
  source = dataclasses.replace(source, config=config, notes=(NOTE,))
  monkeypatch.setattr(load, "resolve", lambda *_: source)
  return source


def read_train(changes):
  config = orz.get_config("tiny")
  config.update_from_flattened_dict(changes)
  return settings.read_train(config)


def test_training_says_how_responses_end_and_that_they_are_long(source, capsys):
  longest = {"rollout.prompt_buckets": (32,), "rollout.max_tokens": 33}
  build.build(read_train(longest))
  told = capsys.readouterr().err.splitlines()
  assert told[0] == NOTE and len(told) == 2
  assert told[1].startswith("warning: sequences may reach 65 tokens")
  assert "max_position_embeddings=64" in told[1]
  assert "rollout.max_tokens" in told[1]
  build.build(read_train(longest | {"rollout.max_tokens": 32}))
  assert capsys.readouterr().err.splitlines() == [NOTE]


@pytest.mark.parametrize("keeps", [False, True])
def test_commands_that_sample_say_it_unless_they_keep_to_it(
  source, monkeypatch, keeps
):
  def show(shown, longest):
    assert shown is source and longest == (0 if keeps else 64 + 32)
    raise Shown

  monkeypatch.setattr(messages, "announce_model", show)
  monkeypatch.setattr(
    loading,
    "load_model",
    lambda *_, **__: loading.Loaded(source, {}, {}, LoraSettings()),
  )
  config = evaluate.get_config()
  config.rollout.prompt_buckets, config.rollout.max_tokens = (16, 64), 32
  c = settings.read(settings.EvaluateSettings, config)
  with pytest.raises(Shown):
    loading.load_policy(c, "embedded:orz-tiny", keeps_to_context=keeps)


def test_supervised_training_says_how_long_its_conversations_are(
  source, monkeypatch, tmp_path
):
  rows = tmp_path / "rows.jsonl"
  texts = ("1 + 2 =", "1 + 2 = 3, and 3 + 4 =")
  rows.write_text(
    "".join(json.dumps({"prompt": t, "completion": "5"}) + "\n" for t in texts)
  )
  longest = len(source.tokenizer.encode(texts[1] + "5")) + 1

  def show(shown, length, keys):
    assert shown.config == source.config and shown.notes == source.notes
    assert (length, keys) == (longest, "config.learner.row_length")
    raise Shown

  monkeypatch.setattr(messages, "announce_model", show)
  config = sft_config.get_config("own")
  config.model.source, config.rows.data = "embedded:orz-tiny", str(rows)
  with pytest.raises(Shown):
    sft.train(config, str(tmp_path / "run"))
