"""A resumed run's prompts show the date of its first start."""

import dataclasses
import datetime as real
import types

import pytest
import tokenizers
import transformers
from typed import stand_in

from azr_jax.configs import azr, evaluate, sft
from azr_jax.lab.data import question_evals
from azr_jax.models.config import ModelConfig
from azr_jax.models.load import ModelSource
from azr_jax.models.tokenizers import HuggingFaceTokenizer
from azr_jax.run import dates, session
from azr_jax.systems.code_interpreter.measurement import EvalPass
from azr_jax.trainer import scoring, sft_loop
from azr_jax.trainer import settings as train_settings
from azr_jax.trainer import start as trainer_start


@pytest.fixture(name="tokenizer")
def make_tokenizer():
  """A tokenizer whose template contains the date, like Llama 3.2's."""
  wrapped = transformers.PreTrainedTokenizerFast(
    tokenizer_object=tokenizers.ByteLevelBPETokenizer()._tokenizer,
    eos_token="</s>",
  )
  wrapped.chat_template = "{{ strftime_now('%d %b %Y') }}: {{ messages }}"
  return HuggingFaceTokenizer(wrapped, [0])


def source_of(tokenizer):
  """Returns a model with this tokenizer and without parameters."""
  return ModelSource(stand_in(ModelConfig), tokenizer, lambda *_, **__: {})


def on_day(day, monkeypatch):
  """Makes it this day of January."""
  clock = types.SimpleNamespace(
    now=lambda: real.datetime(2026, 1, day, 23, 30),
    fromisoformat=real.datetime.fromisoformat,
  )
  monkeypatch.setattr(dates, "datetime", types.SimpleNamespace(datetime=clock))


def start(folder, day, tokenizer, monkeypatch):
  """Starts or resumes a run on a given day, and returns one of its prompts."""
  on_day(day, monkeypatch)
  with session.open_run(str(folder), {"seed": 0}, timeout_s=60.0) as run:
    return tokenizer.dated(run.date).apply_chat_template("hello")


def test_a_run_that_resumes_on_another_day_has_the_same_prompts(
  tmp_path, tokenizer, monkeypatch
):
  first = start(tmp_path / "a", 30, tokenizer, monkeypatch)
  assert first.startswith("30 Jan 2026: ")
  assert start(tmp_path / "a", 31, tokenizer, monkeypatch) == first
  other = start(tmp_path / "b", 31, tokenizer, monkeypatch)
  assert other.startswith("31 Jan 2026: ")


@dataclasses.dataclass(frozen=True)
class Parts:
  """The parts of an experiment that a start reads."""

  settings: train_settings.ExperimentSettings
  source: ModelSource


def test_a_training_run_prompts_with_its_date(tmp_path, tokenizer, monkeypatch):
  source, seen = source_of(tokenizer), []
  monkeypatch.setattr(
    trainer_start.build, "build", lambda checked, **_: Parts(checked, source)
  )
  monkeypatch.setattr(
    trainer_start.loop,
    "train",
    lambda parts, *_: seen.append(
      parts.source.tokenizer.apply_chat_template("hello")[:6]
    ),
  )
  config = azr.get_config("tiny")
  for day in (30, 31):
    on_day(day, monkeypatch)
    checked = train_settings.read_train(config)
    trainer_start.train(checked, config, str(tmp_path))
  assert seen == ["30 Jan", "30 Jan"]


class Stop(Exception):
  """Ends a command before it samples."""


def test_an_evaluation_prompts_with_the_date_of_its_first_start(
  tmp_path, tokenizer, monkeypatch
):
  policy, seen = types.SimpleNamespace(), []

  def load_policy(settings, spec, step, workload):
    policy.tokenizer = tokenizer
    workload(tokenizer)
    return policy

  def request(opened, settings, how, its_tokenizer):
    seen.append(its_tokenizer.apply_chat_template("hello")[:6])

  def build_executor(*_):
    seen.append(policy.tokenizer.apply_chat_template("hello")[:6])
    raise Stop

  monkeypatch.setattr(scoring.loading, "load_policy", load_policy)
  monkeypatch.setattr(scoring, "_request", request)
  monkeypatch.setattr(scoring.build, "build_executor", build_executor)
  for day in (30, 31):
    on_day(day, monkeypatch)
    with pytest.raises(Stop):
      scoring.evaluate(
        evaluate.get_config("countdown_tiny"),
        "embedded:azr-tiny",
        "countdown",
        str(tmp_path),
      )
  assert seen == ["30 Jan"] * 4


def test_demonstrations_are_sampled_with_the_date_of_the_first_start(
  tmp_path, tokenizer, monkeypatch
):
  policy, seen = types.SimpleNamespace(tokenizer=tokenizer), []

  def build_executor(*_):
    seen.append(policy.tokenizer.apply_chat_template("hello")[:6])
    raise Stop

  monkeypatch.setattr(question_evals.loading, "load_policy", lambda *_: policy)
  monkeypatch.setattr(question_evals.build, "build_executor", build_executor)
  settings = train_settings.EvaluateSettings()
  on_day(30, monkeypatch)
  with session.open_run(str(tmp_path), {}, 60.0) as run:
    passes = [stand_in(EvalPass, samples=1)]
    with pytest.raises(Stop):
      next(question_evals.answer(settings, "m", None, [], passes, "full", run))
  assert seen == ["30 Jan"]


def test_supervised_texts_have_the_date_of_the_first_start(
  tmp_path, tokenizer, monkeypatch
):
  seen = []

  def tokens(its_tokenizer):
    seen.append(its_tokenizer.apply_chat_template("hello")[:6])
    raise Stop

  corpus = types.SimpleNamespace(
    conversations=[types.SimpleNamespace(tokens=tokens)],
    check=lambda *_: None,
  )
  kind = types.SimpleNamespace(build=lambda *_: corpus)
  settings = train_settings.read_supervised(sft.get_config())
  source = source_of(tokenizer)
  monkeypatch.setitem(sft_loop.corpora.KINDS, settings.shared.data.kind, kind)
  monkeypatch.setattr(sft_loop, "_initial_model", lambda *_: source)
  on_day(30, monkeypatch)
  with session.open_run(str(tmp_path), {}, 60.0) as run:
    with pytest.raises(Stop):
      sft_loop.train(settings, run)
  assert seen == ["30 Jan"]


def test_a_damaged_date_is_named(tmp_path):
  (tmp_path / dates.DATE).write_text('{"first_start": "soon"}')
  with pytest.raises(ValueError, match="date.json: expected the date"):
    dates.read(tmp_path)
