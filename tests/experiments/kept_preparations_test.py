"""What preparations made, kept beside the plan and put back elsewhere."""

import json

import pytest

from azr_jax.experiments import archive, folders, jobs, plan_file, preparations
from azr_jax.experiments.folders import Workdir

PLAN = """
question = "Is it?"
claim = "It is."
source = "a paper"
refuted_if = "it is not"
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
  # A checkpoint is no output.
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


def test_another_machine_starts_from_the_same_bytes(source, prepared, tmp_path):
  archive.save(prepared, source)
  other = Workdir(tmp_path / "other", prepared.plan)
  other.register(source)
  # A copy that was killed there halfway is made whole.
  (other.prepared("start") / "model").mkdir(parents=True)
  archive.restore(other, source)
  assert todo(other) == {"plain_0"}
  start, rates = other.prepared("start"), other.prepared("rates")
  assert (start / "model" / "deep" / "weights").read_bytes() == WEIGHTS
  assert (rates / "rates.jsonl").read_bytes() == RATES
  assert not (start / "checkpoint").exists()
  assert other.spent() == {"start": 60.0, "rates": 5.0}
  record = source / "runs" / "prepared" / "start.json"
  assert json.loads(record.read_text())["commits"] == prepared.commits()


def test_what_is_not_done_or_is_large_is_made_again(
  source, prepared, tmp_path, monkeypatch
):
  prepared.prepared("rates").with_name("rates.done").unlink()
  monkeypatch.setattr(preparations, "_MAX_BYTES", len(WEIGHTS) - 1)
  archive.save(prepared, source)
  other = Workdir(tmp_path / "other", prepared.plan)
  other.register(source)
  assert preparations.restore(other, source) == 0
  assert todo(other) == {"start", "rates", "plain_0"}


def test_what_another_plan_made_is_refused(source, prepared, tmp_path):
  archive.save(prepared, source)
  path = source / plan_file.FILE
  path.write_text(PLAN.replace("{start}/model", "{start}"))
  other = Workdir(tmp_path / "other", plan_file.read(source))
  with pytest.raises(ValueError, match=r"start\.json: .*another plan"):
    archive.restore(other, source)
  assert not folders.is_prepared(other.prepared("start"))
