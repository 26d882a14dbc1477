"""A user's file and function: as a command, a config and in a notebook."""

import json
import shutil
import subprocess
import sys
from typing import Any

import jax
import numpy as np
import pytest
import training
from typed import stand_in

from azr_jax import api, train, types
from azr_jax.config import settings as settings_lib
from azr_jax.config.settings import Invalid
from azr_jax.configs import custom
from azr_jax.models import load, presets
from azr_jax.report import command
from azr_jax.rollout import policy
from azr_jax.systems.custom.settings import CustomSettings
from azr_jax.tasks.table import sums
from azr_jax.trainer import build, sizes
from azr_jax.trainer.interactive import Sample

REWARDS = """
import math

def right(completion, answer):
  correct = float("{" + str(answer) + "}" in completion)
  return {"reward": correct, "correct": correct, "length": len(completion)}

def told(completion, answer):
  found = right(completion, answer)
  if found["reward"]: return found
  return found | {"feedback": f"It is {answer}.", "reference": str(answer)}

def brief(completions):
  longest = max(map(len, completions)) or 1
  return [1 - len(one) / longest for one in completions]

def arbitrary(completion):
  return sum(map(ord, completion)) % 7 / 7

calls = 0
def sometimes(completion):
  if completion.count("=") == 2: raise LookupError("two steps")
  return math.nan if "-" in completion[:3] else 0.5

def never(completion):
  raise ZeroDivisionError("division by zero")
"""
SMALL = {
  "custom.prompts": 4,
  "custom.group_size": 4,
  "custom.eval_fraction": 0.1,
  "rollout.slots": 16,
  "rollout.max_tokens": 48,
  "learner.max_micro_batches": 8,
  "learner.micro_rows": 1,
  "evaluation.every": 2,
  "evaluation.limit": 4,
  "train.save_every": 2,
  "train.steps": 3,
}


@pytest.fixture(name="files", scope="module")
def make_files(tmp_path_factory):
  """The user's data file and reward file."""
  folder = tmp_path_factory.mktemp("user")
  rows = folder / "rows.jsonl"
  rows.write_text("".join(json.dumps(r) + "\n" for r in sums.rows(60, seed=7)))
  (folder / "rewards.py").write_text(REWARDS)
  return folder


def config_of(files, reward, **more):
  config = custom.get_config("tiny")
  config.update_from_flattened_dict(SMALL | more)
  config.custom.data = str(files / "rows.jsonl")
  config.custom.reward = ",".join(
    f"{weight}*{files}/rewards.py:{name}" for name, weight in reward.items()
  )
  return config


REWARD = {"right": 1.0, "brief": 0.1, "sometimes": 0.5}


@pytest.mark.slow
def test_it_trains_and_evaluates_with_failures_counted(
  files, tmp_path, on_one_device, capsys
):
  files = shutil.copytree(files, tmp_path / "user")
  config = config_of(files, REWARD)
  whole = tmp_path / "whole"
  train.train(config, str(whole))
  shown = capsys.readouterr().err
  found = training.metrics_of(whole)
  assert [metrics["step"] for metrics in found] == [1, 2, 3, 4]
  assert {
    "reward/custom/solve/mean",
    "reward/custom/right/mean",
    "reward/custom/brief/mean",
    "metric/right/length",
    "failed/sometimes/fraction",
    "correct/custom/solve/mean",
    "groups/custom/equal_fraction",
    "evaluation/custom/reward",
    "evaluation/custom/reward/brief",
  } <= found[0].keys()
  assert found[0]["failed/right/fraction"] == 0
  first = found[0]
  parts = [
    weight
    * first[f"reward/custom/{name}/mean"]
    * (1 - first[f"failed/{name}/fraction"])
    for name, weight in REWARD.items()
  ]
  assert first["reward/custom/solve/mean"] == pytest.approx(sum(parts))
  failing = [m["failed/sometimes/fraction"] for m in found[:3]]
  assert 0 < max(failing) < 1
  assert "reward sometimes failed (raised) for " in shown
  assert "before step 1: custom/reward " in shown and "after step 2: " in shown
  assert "LookupError: two steps (rewards.py:" in shown
  evaluated = ["evaluation/custom/reward" in metrics for metrics in found]
  assert evaluated == [True, False, True, True]
  assert found[0]["evaluation/custom/items"] == 4
  out = str(tmp_path / "report.html")
  command.write(command.PageRequest((str(whole),), out))
  page = (tmp_path / "report.html").read_text()
  assert "brief" in page and "sometimes" in page
  rows = files / "rows.jsonl"
  rows.write_text(rows.read_text().replace('"answer": "', '"answer": "1', 1))
  config.train.steps = 4
  with pytest.raises(ValueError, match="rows differ from the rows of this run"):
    train.train(config, str(whole))


@pytest.mark.slow  # `systems/outside_test.py` resumes a user's system.
def test_it_resumes(files, tmp_path, on_one_device):
  config = config_of(files, REWARD)
  whole, cut = tmp_path / "whole", tmp_path / "cut"
  train.train(config, str(whole))
  training.copy_cut_after(2, whole, cut)
  train.train(config, str(cut))
  assert training.metrics_of(cut) == training.metrics_of(whole)


@pytest.mark.slow
@pytest.mark.parametrize(
  "changes",
  [
    {"distill.loss": "policy_gradient", "distill.policy_weight": 0.0},
    {
      "distill.loss": "reverse_kl",
      "distill.teacher": "initial",
      "distill.context": ("success", "reference"),
    },
    {
      "distill.teacher": "average",
      "distill.average_rate": 0.5,
      "learner.minibatches": 2,
      "optimizer.learning_rate": 1e-4,
    },
    {
      "model.source": "embedded:azr-tiny",
      "distill.teacher": "random:moe-tiny",
      "distill.context": (),
      "rollout.prompt_buckets": (128,),
      "learner.row_length": 176,
    },
  ],
)
def test_distillation_resumes(files, tmp_path, on_one_device, changes):
  config = config_of(files, {"told": 1.0}, **changes)
  config.distill.weight = 0.5
  config.evaluation.every = 0
  whole, cut = tmp_path / "whole", tmp_path / "cut"
  train.train(config, str(whole))
  found = training.metrics_of(whole)
  # Wrong responses are told the answer. Another model reads them all.
  others = "distill.context" in changes and not changes["distill.context"]
  for metrics in found:
    assert 0 < metrics["distill/fraction"] <= 1
    assert (metrics["distill/fraction"] == 1) == others
  assert {"distill/gain", "distill/loss"} & {*found[0]}
  training.copy_cut_after(2, whole, cut)
  train.train(config, str(cut))
  assert training.metrics_of(cut) == found
  pinned = cut / "teacher.json"
  assert pinned.exists() == others
  if others:  # The teacher's weights changed after the first start.
    fields = json.loads(pinned.read_text()) | {"digest": "0"}
    pinned.write_text(json.dumps(fields))
    with pytest.raises(ValueError, match="which taught"):
      train.train(config, str(cut))


@pytest.mark.slow
def test_a_reward_that_always_fails_ends_the_run_in_one_line(
  files, tmp_path, on_one_device
):
  config = config_of(files, {"right": 1.0, "never": 1.0})
  config.evaluation.every = 0
  with pytest.raises(RuntimeError, match="never failed .raised. for 16 of 16"):
    train.train(config, str(tmp_path / "run"))


@pytest.mark.slow
def test_a_notebook_trains_with_its_own_functions(tmp_path, on_one_device):
  digits = "0123456789"

  def numbers(completion):
    return sum(letter in digits for letter in completion) / 50

  weighted = (lambda completion, terms: float(completion.count("=") < terms), 2)
  options = {
    "workdir": str(tmp_path / "run"),
    "steps": 2,
    "prompts": 4,
    "group_size": 4,
    "estimator": "rloo",
    "max_tokens": 48,
    "curriculum": "adaptive",
    "bucket_column": "terms",
  }
  rows = list(sums.rows(40))
  arguments = "embedded:orz-tiny", rows, [numbers, weighted]
  run = api.train(*arguments, **options)
  assert len(run.rewards) == 2
  assert "curriculum/probability/3" in run.metrics[0]
  names = run.metrics[0].keys()
  assert {"reward/custom/numbers/mean", "reward/custom/_lambda_/mean"} <= names
  model = api.load(run.workdir, prompt_tokens=32, max_tokens=48, batch_size=8)
  samples = model.sample(rows[0]["prompt"], n=8)
  own = [one.completion.logprobs for one in samples[0]]
  scored = model.score([samples[0][0].prompt] * 8, samples[0])
  for ours, theirs in zip(own, scored, strict=True):
    assert ours == pytest.approx(theirs, abs=1e-3)
  metrics = model.update(samples, [[float(i) for i in range(8)]])
  assert metrics["learner/grad_norm"] > 0 and model.updates == 1
  after = model.score([samples[0][0].prompt] * 8, samples[0])
  assert max(abs(a - b).max() for a, b in zip(after, scored, strict=True)) > 0
  with pytest.raises(ValueError, match="config.custom.data='given:39 rows"):
    api.train(arguments[0], rows[1:], arguments[2], **options)


@pytest.mark.parametrize(
  "flags, message",
  [
    ([], "error: config.custom.data='': expected a file of rows"),
    (
      ["--config.custom.data=embedded:sums"],
      "config.custom.reward='': expecte",
    ),
    (
      ["--config.custom.data=x", "--config.custom.reward=nobody.py:f"],
      "config.custom.reward='nobody.py:f': there is no file nobody.py",
    ),
    (
      ["--config.custom.data=x", "--config.custom.reward=judge"],
      "config.custom.judge.url='': expected an address",
    ),
  ],
)
@pytest.mark.slow  # The next test runs one of these cases.
def test_what_is_missing_is_said_by_the_command(tmp_path, flags, message):
  done = subprocess.run(
    [sys.executable, "-m", "azr_jax.train", "--config=configs/custom.py"]
    + [f"--workdir={tmp_path}", *flags],
    cwd=training.ROOT,
    env=training.environment(),
    capture_output=True,
    text=True,
    check=False,
  )
  assert done.returncode == 2
  assert message in done.stderr and done.stderr.count("\n") <= 3


def test_what_is_missing_is_said_before_anything_is_loaded(tmp_path):
  config = custom.get_config()
  with pytest.raises(Invalid, match="config.custom.data='': expected a file"):
    train.train(config, str(tmp_path / "run"))
  config.custom.data, config.custom.reward = "x", "nobody.py:f"
  with pytest.raises(Invalid, match="there is no file nobody.py"):
    train.train(config, str(tmp_path / "run"))
  assert not (tmp_path / "run").exists()


def test_sizes_follow_from_the_data_unless_they_are_given(
  on_one_device, monkeypatch
):
  fitted = sizes.fitted(8, 20, 6)
  assert fitted == {
    "rollout.prompt_buckets": (16, 32),
    "rollout.slots": 6,
    "rollout.decode_chunk": 8,
    "learner.row_length": 40,
    "learner.micro_rows": 6,
    "learner.max_micro_batches": 1,
    "learner.chunk_tokens": 240,
  }
  given = {"rollout.slots": 3, "learner.row_length": 48, "learner.epochs": 2}
  # Even a key that is not fitted yet must not overwrite the caller's value.
  monkeypatch.setattr(
    sizes, "fitted", lambda *_: fitted | {"learner.epochs": 3}
  )
  build_given = build.build
  built = []

  def keep(settings):
    built.append(settings.shared)
    return build_given(settings)

  monkeypatch.setattr(build, "build", keep)
  options = {"prompt_tokens": 20, "batch_size": 6, "max_tokens": 8}
  api.load("embedded:orz-tiny", **options, config=given)
  [found] = built
  assert (found.rollout.slots, found.learner.row_length) == (3, 48)
  assert found.learner.epochs == 2
  assert found.learner.micro_rows == 6


def test_a_loaded_model_writes_prompts_as_its_config_says(on_one_device):
  model = api.load(
    "embedded:orz-tiny", system_prompt="4", max_tokens=8, prefill=" 2"
  )
  assert model.prompt("1 +").text == "4\n\n1 + 2"
  assert model.prompt("1 +", system_prompt="5").text == "5\n\n1 + 2"
  sample = stand_in(Sample)
  for reward in (float("nan"), 1.7e308, 10**400):
    with pytest.raises(ValueError, match="reward .*: expected a finite number"):
      model.update([[sample]], [[reward]])
  with pytest.raises(ValueError, match="chat='on': the model has no chat"):
    api.load("embedded:orz-tiny", chat="on").prompt("1 +")
  positions = load.config_of("embedded:orz-tiny", "").max_positions
  with pytest.raises(ValueError, match="max_position_embeddings"):
    api.load("embedded:orz-tiny", max_tokens=positions + 1)
  for key, value in (("max_tokens", "256"), ("remat", "some")):
    wrong: dict[str, Any] = {key: value}
    with pytest.raises(ValueError, match=f"{key}='{value}': expected"):
      api.load("embedded:orz-tiny", **wrong)


def test_a_loaded_model_rejects_a_kl_penalty():
  with pytest.raises(ValueError, match="kl_coef=0.1: expected 0"):
    api.load("embedded:orz-tiny", max_tokens=8, kl_coef=0.1)


def test_an_update_learns_from_what_the_teacher_reads(on_one_device):
  model = api.load(
    "embedded:orz-tiny",
    prompt_tokens=16,
    max_tokens=8,
    batch_size=2,
    config={
      "distill.weight": 1.0,
      "distill.policy_weight": 0.0,
      "distill.text_tokens": 40,
      "distill.feedback_text": " {text}",
    },
  )
  prompt = model.prompt("1 +")
  ids = [model.tokenizer.encode(text) for text in (" 2 = 3", " 5")]
  samples = [
    Sample(
      prompt,
      types.Completion(
        np.array(one, np.int32),
        np.zeros(len(one), np.float32),
        np.ones(len(one), bool),
        "stop",
        "",
      ),
    )
    for one in ids
  ]

  def updated(feedback):
    before = jax.device_get(model._state.params)
    metrics = model.update([samples], [[0.0, 1.0]], feedback)
    after = jax.device_get(model._state.params)
    same = jax.tree.map(np.array_equal, before, after)
    return metrics["distill/fraction"], all(jax.tree.leaves(same))

  # Advantages have no weight here.
  assert updated(None) == (0.0, True)
  assert updated([["", " "]]) == (0.0, True)
  lengths = [len(one) for one in ids]
  fraction, is_same = updated([["no", ""]])
  assert fraction == pytest.approx(lengths[0] / sum(lengths))
  assert not is_same


@pytest.mark.slow
def test_a_loaded_model_learns_from_another(on_one_device, monkeypatch):
  held, memory_of = [], sizes.Memory

  def keep(*args):
    found = memory_of(*args)
    held.append(found.base_bytes)
    return found

  monkeypatch.setattr(sizes, "Memory", keep)
  model = api.load(
    "embedded:azr-tiny",
    prompt_tokens=16,
    max_tokens=8,
    batch_size=2,
    config={
      "distill.weight": 1.0,
      "distill.policy_weight": 0.0,
      "distill.teacher": "random:moe-tiny",
    },
  )
  assert held == [4 * presets.parameter_count(presets.PRESETS["moe-tiny"])]
  samples = model.sample("1 +", n=2, seed=0)
  metrics = model.update(samples, [[0.0, 0.0]])
  assert metrics["distill/fraction"] == 1
  assert metrics["distill/loss"] > 0 and metrics["learner/grad_norm"] > 0


def test_calls_and_training_sample_with_different_keys(on_one_device):
  model = api.load("embedded:orz-tiny", prompt_tokens=16, max_tokens=8)

  def ids_of(seed=None):
    [[one]] = model.sample("1 +", temperature=5.0, seed=seed)
    return tuple(one.completion.token_ids.tolist())

  experiment = model._experiment
  with policy.open_policy(
    experiment.sampler,
    model.tokenizer,
    model._state.params,
    experiment.sampling_key(0),
  ) as trained:
    prompt = model.prompt("1 +")
    [(_, _, sampled)] = trained.sample([prompt], temperature=5.0)
  calls = [ids_of(), ids_of(), ids_of(seed=0), ids_of(seed=1)]
  assert len({tuple(sampled.token_ids.tolist()), *calls}) == 5
  assert ids_of(seed=0) == calls[2]


def test_scores_are_in_the_order_of_the_completions(on_one_device):
  model = api.load("embedded:orz-tiny", prompt_tokens=16, max_tokens=8)
  prompts, texts = ["1 +", "2", "3 +", "40"], [" 2", " + 3 = 5", "4", "1 2"]
  together = model.score(prompts, texts)
  alone = [
    model.score([prompt], [text])[0]
    for prompt, text in zip(prompts, texts, strict=True)
  ]
  assert len({len(one) for one in alone}) > 1
  for found, want in zip(together, alone, strict=True):
    assert found == pytest.approx(want, abs=1e-4)


def test_the_verbs_train_what_is_sampled(on_one_device):
  model = api.load("embedded:orz-tiny", prompt_tokens=16, max_tokens=8)
  [samples] = model.sample("1 +", n=4, seed=0)
  advantages = [1.0, -0.5, 0.25, 2.0]
  data = [
    model.datum(sample, advantage)
    for sample, advantage in zip(samples, advantages, strict=True)
  ]
  scored = model.forward_backward(data, "importance_sampling")
  counts = [len(one.completion.token_ids) for one in samples]
  # All ratios are 1, because nothing was trained since.
  want = -np.dot(advantages, counts)
  assert scored.loss == pytest.approx(want, rel=1e-3)
  for one, logprobs, count in zip(
    samples, scored.logprobs, counts, strict=True
  ):
    assert logprobs[-count:] == pytest.approx(one.completion.logprobs, abs=1e-3)
  before = model.forward(data).logprobs
  metrics = model.optim_step(1e-5)
  assert metrics["grad_norm"] > 0 and metrics["skipped"] == 0
  gains = [
    float(np.sum((new - old)[-count:]))
    for new, old, count in zip(
      model.forward(data).logprobs, before, counts, strict=True
    )
  ]
  assert np.dot(gains, advantages) > 0 and model.updates == 1
  # Sampling and scoring use the new parameters.
  [again] = model.sample("1 +", n=4, seed=0)
  [scores] = model.score(["1 +"], again[:1])
  assert scores == pytest.approx(again[0].completion.logprobs, abs=1e-3)
  text = model.supervised_datum("1 +", " 2")
  scored = model.forward([text])
  [want] = model.score(["1 +"], [" 2"])
  assert scored.loss == pytest.approx(-sum(want), rel=1e-3)


def test_calls_and_the_config_file_share_an_objective(monkeypatch):
  def change(config):
    config.learner.estimator = "rloo"

  monkeypatch.setattr(custom, "set_objective", change)
  for config in (api._config({}), custom.get_config()):
    assert config.learner.estimator == "rloo"


def test_a_call_gives_the_chat_template_a_dictionary():
  given = {"enable_thinking": False}
  found = api._config({"custom.chat_template_kwargs": given}).custom.to_dict()
  assert settings_lib.build(CustomSettings, found).arguments == given


@pytest.mark.slow
@pytest.mark.parametrize("staleness", [0, 1])
def test_kills_change_no_metric(files, tmp_path, staleness):
  config = training.flags(
    "configs/custom.py:tiny",
    SMALL
    | {
      "custom.data": files / "rows.jsonl",
      "custom.reward": f"{files}/rewards.py:right,0.1*{files}/rewards.py:brief",
      "custom.curriculum": "bandit",
      "custom.bucket_column": "terms",
      "custom.dynamic_sampling.max_prompts": 3,
      "rollout.max_staleness": staleness,
      "train.save_every": 1,
    },
  )
  whole, cut = tmp_path / "whole", tmp_path / "cut"
  training.finish(training.start(whole, 5, config=config))
  training.train_with_kills(cut, 5, config, (1, 3))
  assert training.metrics_of(cut) == training.metrics_of(whole)


EXPERTS = {
  "model.source": "random:moe-tiny",
  "rollout.max_staleness": 1,
  "rollout.prompt_buckets": (96,),
  "optimizer.warmup_steps": 0,
}


@pytest.mark.slow
@pytest.mark.parametrize(
  "reward, changes",
  [("right", {}), ("arbitrary", EXPERTS)],
  ids=["", "router replay"],
)
def test_two_processes_train_as_one_does(files, tmp_path, reward, changes):
  config = training.flags(
    "configs/custom.py:tiny",
    SMALL
    | {
      "custom.data": files / "rows.jsonl",
      "custom.reward": f"{files}/rewards.py:{reward},"
      f"0.5*{files}/rewards.py:brief",
      "train.steps": 2,
    }
    | changes,
  )
  one, two = tmp_path / "one", tmp_path / "two"
  training.finish(training.start(one, 2, config=config))
  training.train_on_two_processes(two, config)
  for mine, theirs in zip(
    training.metrics_of(two), training.metrics_of(one), strict=True
  ):
    assert mine == pytest.approx(theirs, rel=1e-4, abs=1e-4)
  if changes:
    # Routers have changed since step 2 was sampled, and would choose others.
    gaps = [m["rollout/router_gap"] for m in training.metrics_of(two)[:2]]
    assert gaps[0] == 0 and gaps[1] > 1e-3
