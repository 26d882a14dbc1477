"""Tests archiving the outputs of preparations and restoring them elsewhere."""

import json
import shutil
from typing import Any

import pytest

from azr_jax.lab.experiments import (
  archive,
  folders,
  jobs,
  plan_file,
  preparations,
  registration,
)
from azr_jax.lab.experiments.folders import Workdir
from azr_jax.run import folder as run_folder

PLAN = """
question = "Is it?"
claim = "It is."
source = "a paper"
refuted_if = "it is not"
analysis = "two_samples"
seeds = [0]

[[prepare]]
name = "start"
command = "azr_jax.sft"
output = "model"

[[prepare]]
name = "rates"
command = "azr_jax.potential"
arguments = ["--model={start}/model"]
output = "rates.jsonl"

[arms.plain]
config = "configs/orz.py:tiny"
"""
WEIGHTS, RATES = bytes(range(256)), b'{"rate": 0.5}\n'


def make_start(workdir):
  model = workdir.prepared("start") / "model"
  (model / "deep").mkdir(parents=True)
  (model / "deep" / "weights").write_bytes(WEIGHTS)
  # A checkpoint is not part of the output.
  (workdir.prepared("start") / "checkpoint").touch()


def make_rates(workdir):
  workdir.prepared("rates").mkdir(parents=True)
  (workdir.prepared("rates") / "rates.jsonl").write_bytes(RATES)


def todo(workdir):
  return {job.name for job in jobs.make(workdir) if not job.is_done()}


@pytest.fixture
def source(tmp_path):
  folder = tmp_path / "plan"
  folder.mkdir()
  (folder / plan_file.FILE).write_text(PLAN)
  return folder


@pytest.fixture
def prepared(source, tmp_path):
  """Returns a working directory whose preparations are done."""
  workdir = Workdir(tmp_path / "first", plan_file.read(source))
  workdir.register(source)
  workdir.write_spent({"start": 60.0, "rates": 5.0})
  for make, job in ((make_start, "start"), (make_rates, "rates")):
    make(workdir)
    next(one for one in jobs.make(workdir) if one.name == job).finish()
  assert todo(workdir) == {"plain_0"}
  return workdir


def another(prepared, source, tmp_path):
  other = Workdir(tmp_path / "other", prepared.plan)
  other.register(source)
  return other


def test_another_machine_starts_from_the_same_bytes(source, prepared, tmp_path):
  archive.save(prepared, source)
  other = another(prepared, source, tmp_path)
  # A killed training has left a part of another model there.
  model = other.prepared("start") / "model"
  model.mkdir(parents=True)
  (model / "more_weights").touch()
  archive.restore(other, source, goes_on=False)
  assert todo(other) == {"start", "rates", "plain_0"}
  archive.restore(other, source, goes_on=True)
  assert todo(other) == {"plain_0"}
  assert [path.name for path in model.rglob("*")] == ["deep", "weights"]
  assert (model / "deep" / "weights").read_bytes() == WEIGHTS
  rates = other.prepared("rates") / "rates.jsonl"
  assert rates.read_bytes() == RATES
  assert other.spent() == {"start": 60.0, "rates": 5.0}
  commits = [
    folders.prepared_commit(workdir.prepared("start"))
    for workdir in (prepared, other)
  ]
  assert commits[0] and commits[0] == commits[1]
  # Both match the archive, so saving again changes nothing.
  before = (source / "runs" / "prepared" / "start.json").read_bytes()
  archive.save(other, source)
  assert (source / "runs" / "prepared" / "start.json").read_bytes() == before
  assert preparations.restore(other, source) == 0


@pytest.mark.parametrize("reason", ["large", "not done", "deleted"])
def test_what_is_not_kept_is_made_again_with_what_reads_it(
  source, prepared, tmp_path, monkeypatch, reason
):
  start = prepared.prepared("start")
  if reason == "large":
    monkeypatch.setattr(preparations, "_MAX_BYTES", len(WEIGHTS) - 1)
  elif reason == "not done":
    start.with_name("start.done").unlink()
  else:
    shutil.rmtree(start / "model")
  archive.save(prepared, source)
  other = another(prepared, source, tmp_path)
  assert preparations.restore(other, source) == 0
  assert todo(other) == {"start", "rates", "plain_0"}


def test_other_weights_than_those_kept_are_refused(source, prepared):
  archive.save(prepared, source)
  (prepared.prepared("rates") / "rates.jsonl").write_bytes(RATES * 2)
  for goes_on in (True, False):
    with pytest.raises(ValueError, match=r"rates\.jsonl differs from what is"):
      archive.restore(prepared, source, goes_on)


@pytest.mark.parametrize("damage", ["bytes", "missing"])
def test_a_damaged_copy_is_refused(source, prepared, tmp_path, damage):
  archive.save(prepared, source)
  file = source / "runs" / "prepared" / "start" / "model" / "deep" / "weights"
  if damage == "bytes":
    file.write_bytes(WEIGHTS[::-1])
  else:
    file.unlink()
  other = another(prepared, source, tmp_path)
  with pytest.raises(ValueError, match="model is damaged"):
    preparations.restore(other, source)
  assert not folders.is_prepared(other.prepared("start"))


def test_what_another_plan_made_is_refused(source, prepared, tmp_path):
  archive.save(prepared, source)
  path = source / plan_file.FILE
  path.write_text(PLAN.replace("{start}/model", "{start}"))
  other = Workdir(tmp_path / "other", plan_file.read(source))
  other.register(source)
  with pytest.raises(ValueError, match=r"start\.json: .*another plan"):
    preparations.restore(other, source)
  assert not folders.is_prepared(other.prepared("start"))


READERS = """
[arms.reader]
config = "configs/azr.py:tiny"
set = { "azr.yoked_to" = "{next:plain}" }
"""


def test_a_restored_run_has_the_records_that_other_arms_read(tmp_path):
  source = tmp_path / "plan"
  source.mkdir()
  text = PLAN.replace("seeds = [0]", "seeds = [0, 1]") + READERS
  (source / plan_file.FILE).write_text(text)
  workdir = Workdir(tmp_path / "first", plan_file.read(source))
  workdir.register(source)
  for arm, seed in workdir.plan.runs():
    run = workdir.run(arm, seed)
    (run / "records/tasks").mkdir(parents=True)
    (run / "records/tasks/000001.jsonl").write_text(f'{{"a": "{run.name} ü"}}')
    (run / "metrics.jsonl").write_text('{"step": 1}\n')
    config: dict[str, Any] = {"train": {"steps": 1}}
    if arm == "reader":
      read = workdir.run("plain", 1 - seed)
      config["azr"] = {"yoked_to": str(read.resolve())}
    (run / "config.json").write_text(json.dumps(config))
  archive.save(workdir, source)
  other = Workdir(tmp_path / "other", workdir.plan)
  archive.restore(other, source, goes_on=False)
  for seed in (0, 1):
    run = other.run("plain", seed)
    kept = (run / "records/tasks/000001.jsonl").read_text("utf-8")
    assert kept == f'{{"a": "plain_{seed} ü"}}'
    assert not (other.run("reader", seed) / "records").exists()
    config = run_folder.read_config(other.run("reader", seed))
    assert config["azr"]["yoked_to"] == str(other.run("plain", 1 - seed))
  # Another last seed would make `{next:plain}` another run.
  path = source / plan_file.FILE
  was = registration.fixed_plan_hash(source)
  path.write_text(
    text.replace("[0, 1]", "[0, 1, 2]")
    + f'\n[[amended]]\nwhen = "now"\nwhy = "more"\nwas = "{was}"\n'
  )
  third = Workdir(tmp_path / "third", plan_file.read(source))
  with pytest.raises(ValueError, match="another plan"):
    archive.restore(third, source, goes_on=False)
