"""Tests the results that are written for runs with a known answer."""

import dataclasses
import json
import os
import re
import shutil
import subprocess

import numpy as np
import pytest
import scipy
from typed import present

from azr_jax.lab.experiments import analysis as analysis_lib
from azr_jax.lab.experiments import (
  archive,
  checks,
  figure,
  folders,
  jobs,
  outcomes,
  page,
  plan_file,
  reading,
  registration,
)
from azr_jax.lab.experiments.folders import Workdir
from azr_jax.lab.experiments.plan import ArmComparison, OutcomeSettings

draw_figure = figure.draw
figure_lib = pytest.importorskip("matplotlib.figure", reason="draws figures")
STEPS, SEEDS, ITEMS = 4, 5, 60
PLAN = """
question = "Is it?"
claim = "It is."
source = "a paper"
refuted_if = "it is not"
analysis = "two_samples"
seeds = [0, 1, 2, 3, 4]

[set]
"train.steps" = 4
"evaluation.every" = 0

[arms.plain]
config = "configs/orz.py:tiny"

[arms.better]
config = "configs/orz.py:tiny"
set = { "critic.gae_lambda" = 0.5 }

[arms.same]
config = "configs/orz.py:tiny"
set = { "critic.gae_lambda" = 0.6 }

[scores.sums]
config = "configs/evaluate.py:problems_tiny"
benchmark = "problems"

[outcomes.sums]
title = "% of sums"
score = "sums"

[outcomes.late]
title = "late x less y"
metric = "x"
minus = "y"
first_step = 3
last_step = 4

[panels]
"x" = "x"

[transition]
outcome = "sums"
axis = "dose"

[transition.lines.up]
better = 1.0
plain = 0.0

[transition.lines.flat]
same = 0.5

[[comparisons]]
outcome = "sums"
arm = "better"
base = "plain"
claim = "higher"
margin = 0.05
expected_sd = 0.05

[[comparisons]]
outcome = "sums"
arm = "same"
base = "plain"
claim = "higher"
margin = 0.3

[[comparisons]]
outcome = "sums"
arm = "same"
base = "plain"
claim = "higher"

[[comparisons]]
outcome = "late"
arm = "better"
claim = "lower"

[[comparisons]]
outcome = "late"
arm = "same"
base = "plain"
claim = "not_lower"
margin = 0.5
primary = false
"""
RATE = {"plain": 0.4, "better": 0.8, "same": 0.4}
LEVEL = {"plain": 3.0, "better": -1.0, "same": 3.0}


@pytest.fixture(autouse=True)
def no_figures(monkeypatch):
  """Leaves out the figure, which takes most of a page's time."""
  monkeypatch.setattr(figure, "draw", lambda workdir, results, path: None)


@pytest.fixture
def finished(tmp_path):
  """Returns the folders of a plan and of its finished runs."""
  source, out = tmp_path / "plan", tmp_path / "runs"
  source.mkdir()
  (source / plan_file.FILE).write_text(PLAN)
  plan = plan_file.read(source)
  workdir = Workdir(out, plan)
  workdir.register(source)
  rng = np.random.default_rng(0)
  hard = rng.random(ITEMS)
  for arm, seed in plan.runs():
    run = workdir.run(arm, seed)
    run.mkdir()
    config = checks.config_of(plan.arms[arm].config, plan.arms[arm].overrides)
    config.seed = seed
    (run / "config.json").write_text(json.dumps(config.to_dict()))
    rows = [
      {"step": step, "x": value, "y": 1.0, "time/step": 60.0}
      for step in range(1, STEPS + 1)
      for value in [LEVEL[arm] + rng.normal(0, 0.1) if step > 2 else 100.0]
    ]
    lines = [json.dumps(row) + "\n" for row in rows]
    (run / "metrics.jsonl").write_text("".join(lines) + '{"step": 5, "x"')
    scores = workdir.scores(arm, seed, "sums")
    scores.mkdir(parents=True)
    asked = {"problems/items": ITEMS, "problems/too_long": 0.0}
    result = {"scores": asked}
    (scores / "results.json").write_text(json.dumps(result))
    with (scores / "problems.jsonl").open("w") as file:
      for item in range(ITEMS):
        chance = RATE[arm] + 0.3 * (hard[item] - 0.5)
        correct = [bool(rng.random() < chance)]
        record = {"id": str(item), "question": f"q{item}", "correct": correct}
        file.write(json.dumps(record) + "\n")
  return source, workdir


def test_an_outcome_can_count_a_part_of_the_items(finished):
  _, workdir = finished
  whole = present(
    outcomes.read(workdir, "plain", OutcomeSettings(title="%", score="sums"))
  )
  tens = OutcomeSettings(title="%", score="sums", items="1")
  part = present(outcomes.read(workdir, "plain", tens))
  ids = ["1", *map(str, range(10, 20))]
  assert [*part.items] == ids
  columns = [[*whole.items].index(id_) for id_ in ids]
  np.testing.assert_array_equal(part.values, whole.values[:, columns])
  none = dataclasses.replace(tens, items="x")
  with pytest.raises(ValueError, match="expected items of problems"):
    outcomes.read(workdir, "plain", none)


def test_claims_are_judged_as_the_runs_were_made(finished, monkeypatch):
  monkeypatch.setattr(figure, "draw", draw_figure)
  source, workdir = finished
  text = page.write(source, source, workdir)
  results = json.loads((source / page.RESULTS).read_text())
  found = results["comparisons"]
  verdicts = [one["verdict"] for one in found]
  assert verdicts == ["holds", "excluded", "undecided", "holds", "holds"]
  assert found[0]["difference"] == pytest.approx(0.4, abs=0.1)
  for one in found[:3]:
    assert len(one["seeds"]) == len(one["base_seeds"]) == SEEDS
    assert one["items"] == ITEMS
    low, high = one["interval"]
    assert low < one["difference"] < high
    # The bootstrap lacks Student's heavy tails, but is similar otherwise.
    widths = np.diff(one["bootstrap"])[0] / (high - low)
    assert 0.4 < widths < 1.3
    assert one["p_holm"] >= one["p"]
  assert found[3]["difference"] == pytest.approx(-2.0, abs=0.2)
  assert found[3]["items"] == 1 and found[4]["p_holm"] is None
  # Cohen's d of 5 + 5 seeds at 0.05 / 4 and a power of 0.8, by integrating the
  # noncentral t's density, is 2.641 deviations of a run.
  assert found[0]["planned"] == pytest.approx(2.641 * 0.05 / 2**0.5, rel=1e-3)
  assert found[1]["planned"] is None
  assert "These runs cannot tell" in text and "`better`" in text
  assert "15 of 15 runs have begun, with 1.0 core-hours" in text
  rows = [line for line in text.splitlines() if line.startswith("| % of sums")]
  assert rows[0].endswith("| holds |") and rows[1].endswith(
    "| no gain of 30.0 |"
  )
  assert "| 5 + 5 x 60 |" in rows[0]
  secondary = [line for line in text.splitlines() if "(secondary)" in line]
  assert [row.split(" | ")[-1] for row in secondary] == [
    "hint (not corrected) |"
  ]
  assert (source / page.FIGURE).read_bytes().startswith(b"\x89PNG")


def test_two_samples_have_welch_s_test_and_pairs_the_paired_one(finished):
  source, workdir = finished

  def late(analysis):
    about = dataclasses.replace(workdir.plan.about, analysis=analysis)
    plan = dataclasses.replace(workdir.plan, about=about)
    return analysis_lib.findings(Workdir(workdir.path, plan))[4]

  values = [
    present(outcomes.read(workdir, arm, workdir.plan.outcomes["late"])).values[
      :, 0
    ]
    for arm in ("same", "plain")
  ]
  welch = scipy.stats.ttest_ind(*values, equal_var=False)
  paired = scipy.stats.ttest_rel(*values)
  for found, test, base in (
    (late("two_samples"), welch, (0, 1, 2, 3, 4)),
    (late("paired_seeds"), paired, ()),
  ):
    interval = test.confidence_interval(0.95)
    assert found.interval == pytest.approx(tuple(interval))
    assert found.base_seeds == base
  # With two samples, a seed that one arm lacks takes none from the other.
  shutil.rmtree(workdir.run("plain", 3))
  assert len(late("two_samples").seeds) == 5
  assert late("two_samples").base_seeds == (0, 1, 2, 4)
  assert late("paired_seeds").seeds == (0, 1, 2, 4)


def test_a_plan_is_registered_if_git_has_it_no_later_than_the_runs(finished):
  source, workdir = finished

  def git(*arguments, date="2020-01-01T00:00:00+00:00"):
    who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    command = ["git", *who, *arguments]
    done = subprocess.run(
      command,
      cwd=source,
      check=True,
      capture_output=True,
      text=True,
      env={**os.environ, "GIT_COMMITTER_DATE": date},
    )
    return done.stdout.strip()

  def commit(day):
    date = f"2020-01-0{day}T00:00:00+00:00"
    git("add", plan_file.FILE)
    git("commit", "-q", "--allow-empty", "-m", "a day", date=date)
    return git("rev-parse", "HEAD")

  def registered(*commits):
    (workdir.path / folders.COMMITS).write_text("\n".join(commits))
    text = page.write(source, source, workdir)
    results = json.loads((source / page.RESULTS).read_text())
    return results["registered"], "older than the plan" in text

  path = source / plan_file.FILE
  git("init", "-q")
  path.write_text(PLAN.replace("margin = 0.05", "margin = 0.01"))
  with_another = commit(1)
  path.write_text(PLAN)
  with_it = commit(2)
  was = registration.fixed_plan_hash(source)
  path.write_text(amended(PLAN.replace("margin = 0.3", "margin = 0.4"), was))
  workdir = Workdir(workdir.path, plan_file.read(source))
  after = commit(3)
  assert registered(after, f"{with_it}-dirty") == (True, False)
  assert registered(after, with_another) == (False, True)
  assert registered(after, "0123456")[0] is None


def test_a_transition_has_the_scores_of_its_arms(finished):
  """The scores match the page, in percent, ordered by dose."""
  source, workdir = finished
  page.write(source, source, workdir)
  results = json.loads((source / page.RESULTS).read_text())
  means = {
    one["arm"]: 100 * one["mean"]
    for one in results["outcomes"]
    if one["outcome"] == "sums"
  }
  panel = figure_lib.Figure().subplots()
  figure._transition(panel, workdir.plan, results)
  lines = {line.get_label(): line for line in panel.get_lines()}
  assert list(lines["up"].get_xdata()) == [0.0, 1.0]
  assert lines["up"].get_ydata() == pytest.approx(
    [means["plain"], means["better"]]
  )
  assert lines["flat"].get_ydata() == pytest.approx([means["same"]])
  seeds = [line for line in panel.get_lines() if line.get_marker() == "o"]
  assert [len(line.get_xdata()) for line in seeds] == [SEEDS] * 3
  assert panel.get_xlabel() == "dose"


def test_without_comparisons_the_parts_of_gains_are_drawn():
  parts = {"from_shares": (0.2, 0.01), "from_within": (-0.05, 0.02)}
  results = {"styles": [{"score": "sums", "arm": "up", "parts": parts}] * 2}
  panel = figure_lib.Figure().subplots()
  figure._parts(panel, results)
  widths = [bar.get_width() for bar in panel.patches]
  assert widths == pytest.approx([20.0, 20.0, -5.0, -5.0])
  heights = [
    round(bar.get_y() + bar.get_height() / 2, 6) for bar in panel.patches
  ]
  assert heights == [-0.2, 0.8, 0.2, 1.2]
  labels = [label.get_text() for label in panel.get_yticklabels()]
  assert labels == ["sums: up"] * 2


def test_a_run_of_other_values_or_an_unknown_metric_is_refused(finished):
  source, workdir = finished
  path = workdir.run("better", 2) / "config.json"
  config = json.loads(path.read_text())
  config["critic"]["gae_lambda"] = 1.0
  path.write_text(json.dumps(config))
  with pytest.raises(ValueError, match="gae_lambda=1.0: expected 0.5"):
    page.write(source, source, workdir)
  config["critic"]["gae_lambda"] = 0.5
  # Without a teacher, the words around its text do not matter.
  config["distill"]["feedback_text"] = "{text}"
  path.write_text(json.dumps(config))
  page.write(source, source, workdir)
  config["distill"]["weight"] = 0.5
  path.write_text(json.dumps(config))
  with pytest.raises(ValueError, match=r"distill\.feedback_text"):
    page.write(source, source, workdir)
  config["distill"]["weight"] = 0.0
  path.write_text(json.dumps(config))
  misspelt = source / plan_file.FILE
  misspelt.write_text(PLAN.replace('metric = "x"', 'metric = "z"'))
  other = Workdir(workdir.path, plan_file.read(source))
  with pytest.raises(ValueError, match=r"outcomes\.late\.metric='z'"):
    page.write(source, source, other)


def refused(workdir, source):
  """Returns the hash that the error asks for."""
  with pytest.raises(ValueError, match="changed after") as error:
    workdir.check_plan(source)
  return re.findall("was = '([0-9a-f]{64})'", str(error.value))[0]


def amended(text, was):
  return (
    f'{text}\n[[amended]]\nwhen = "late"\nwhy = "it was wrong"\nwas = "{was}"\n'
  )


def test_a_plan_changes_after_its_runs_began_only_if_it_says_so(finished):
  source, workdir = finished
  path = source / plan_file.FILE
  path.write_text(PLAN.replace('axis = "dose"', 'axis = "other"'))
  workdir.register(source)
  for old, new in (
    ("margin = 0.05", "margin = 0.01"),
    ("seeds = [0, 1, 2, 3, 4]", "seeds = [1, 2, 3, 4]"),
  ):
    changed = PLAN.replace(old, new)
    path.write_text(changed)
    was = refused(workdir, source)
    path.write_text(amended(changed, was[::-1]))
    refused(workdir, source)
    path.write_text(amended(changed, was))
    workdir.check_plan(source)
  page.write(source, source, Workdir(workdir.path, plan_file.read(source)))
  assert "Amended, late: it was wrong" in (source / page.PAGE).read_text()
  # A changed arm makes it another experiment.
  changed = amended(PLAN.replace('gae_lambda" = 0.5', 'gae_lambda" = 0.7'), was)
  path.write_text(changed)
  refused(workdir, source)


@pytest.mark.parametrize("samples", [1, 2])
def test_answers_with_styles_are_kept(finished, tmp_path, samples):
  source, workdir = finished
  arm, seed = workdir.plan.runs()[0]
  path = workdir.scores(arm, seed, "sums") / "problems.jsonl"
  styled, written = [], []
  for line in path.read_text().splitlines():
    record = json.loads(line)
    number = int(record["id"])
    answered = {"subset": "a", "styles": [f"s{number % 3}"] * samples}
    record["correct"] *= samples
    texts = {"responses": [f"text {number}"] * samples}
    styled.append(record | answered | (texts if samples == 1 else {}))
    written.append(record | answered | texts)
  path.write_text("".join(json.dumps(one) + "\n" for one in written))
  archive.save(workdir, source)
  kept = [*source.glob("runs/answers/*")]
  assert [one.name for one in kept] == [f"sums_{arm}_{seed}.jsonl.gz"]
  before = kept[0].stat().st_mtime_ns
  archive.save(workdir, source)
  assert kept[0].stat().st_mtime_ns == before
  other = Workdir(tmp_path / "other", plan_file.read(source))
  archive.restore(other, source, goes_on=False)
  copied = other.scores(arm, seed, "sums") / "problems.jsonl"
  restored = {
    one["id"]: one for one in map(json.loads, copied.read_text().splitlines())
  }
  assert restored == {one["id"]: one for one in styled}
  archive.save(other, source)
  assert kept[0].stat().st_mtime_ns == before


def write_styled(folder, share, accuracy):
  """Writes answers: a share in style `a`, all right, and the rest in `b`."""
  folder.mkdir(parents=True, exist_ok=True)
  asked = {"problems/items": ITEMS, "problems/too_long": 0.0}
  (folder / "results.json").write_text(json.dumps({"scores": asked}))
  edge = round(share * ITEMS)
  right = edge + round(accuracy * (ITEMS - edge))
  records = [
    {
      "id": str(item),
      "question": f"q{item}",
      "correct": [item < right],
      "styles": ["a" if item < edge else "b"],
    }
    for item in range(ITEMS)
  ]
  text = "".join(json.dumps(record) + "\n" for record in records)
  (folder / "problems.jsonl").write_text(text)


def test_gains_are_split_by_style(finished):
  source, workdir = finished
  assert page.write(source, source, workdir).count("within styles") == 0
  write_styled(workdir.start_scores("sums"), 0.5, 0.0)
  for seed, accuracy in ((0, 0.4), (1, 0.6)):
    write_styled(workdir.scores("plain", seed, "sums"), 0.5, accuracy)
  write_styled(workdir.scores("better", 3, "sums"), 0.75, 0.0)
  text = page.write(source, source, workdir)
  results = json.loads((source / page.RESULTS).read_text())
  plain, better = results["styles"]
  assert (plain["arm"], plain["seeds"]) == ("plain", [0, 1])
  assert plain["parts"]["from_shares"] == [0, 0]
  # Half of the answers are right in 50 % instead of 0 %: 20 and 30 points.
  assert plain["parts"]["from_within"][0] == pytest.approx(0.25)
  assert plain["within_by_seed_stderr"] == pytest.approx(0.05)
  assert better["parts"]["from_shares"][0] == pytest.approx(0.25)
  assert better["parts"]["from_within"][0] == pytest.approx(0)
  assert better["within_by_seed_stderr"] is None
  assert "| +25.0 +- " in text and "(5.0) | `a` 50 to 50 %" in text


def test_a_supervised_run_is_done_after_its_last_step(tmp_path):
  # Its config has no section of evaluations.
  (tmp_path / "config.json").write_text('{"train": {"steps": 2}}')
  for step, is_done in ((1, False), (2, True)):
    with (tmp_path / "metrics.jsonl").open("a") as file:
      file.write(f'{{"step": {step}}}\n')
    assert folders.is_done(tmp_path) == is_done


def test_a_run_whose_last_checkpoint_was_not_saved_is_open(tmp_path):
  (tmp_path / "config.json").write_text('{"train": {"steps": 2}}')
  (tmp_path / "metrics.jsonl").write_text('{"step": 2}\n')
  assert folders.is_done(tmp_path)  # An archived run.
  saved = tmp_path / "checkpoints"
  saved.mkdir()
  assert folders.is_done(tmp_path)  # Its checkpoints were deleted.
  (saved / "1").mkdir()
  (saved / "2.orbax-checkpoint-tmp").mkdir()
  assert not folders.is_done(tmp_path)
  (saved / "2.orbax-checkpoint-tmp").rename(saved / "2")
  assert folders.is_done(tmp_path)


def test_an_arm_is_compared_with_its_start_item_by_item(finished):
  _, workdir = finished
  write_styled(workdir.start_scores("sums"), 0.5, 0.0)
  comparison = ArmComparison(outcome="sums", arm="plain", base="start")
  plan = dataclasses.replace(workdir.plan, comparisons=[comparison])
  [found] = analysis_lib.findings(Workdir(workdir.path, plan))
  values = present(
    outcomes.read(workdir, "plain", plan.outcomes["sums"])
  ).values
  # Items are sorted as text, and the first half of their numbers are right.
  start = np.array(
    [int(id_) < ITEMS // 2 for id_ in sorted(map(str, range(60)))]
  )
  by_seed = (values - start).mean(axis=1)
  assert found.difference == pytest.approx(by_seed.mean())
  assert (found.seeds, found.base_seeds) == ((0, 1, 2, 3, 4), ())
  # The error over items makes it wider than that over seeds alone.
  alone = scipy.stats.ttest_1samp(by_seed, 0).confidence_interval(0.95)
  assert np.ptp(present(found.interval)) >= np.ptp(alone)


def test_kept_runs_are_of_an_amended_plan(finished, tmp_path):
  source, workdir = finished
  archive.save(workdir, source)
  was, path = registration.fixed_plan_hash(source), source / plan_file.FILE
  path.write_text(amended(PLAN.replace("margin = 0.05", "margin = 0.01"), was))
  other = Workdir(tmp_path / "other", plan_file.read(source))
  assert archive.restore(other, source, goes_on=False) == 3 * SEEDS
  # A record keeps the plan that it was made with.
  archive.save(other, source)
  kept = json.loads((source / "runs" / "plain_0.json").read_text())
  assert kept["plan"] == was != registration.fixed_plan_hash(source)
  # Scores on other data are not this plan's, whatever its amendment says.
  more = 'benchmark = "problems"\narguments = ["--limit=5"]'
  changed = PLAN.replace('benchmark = "problems"', more)
  path.write_text(amended(changed, was))
  third = Workdir(tmp_path / "third", plan_file.read(source))
  with pytest.raises(ValueError, match="expected the same text, set, prepare"):
    archive.restore(third, source, goes_on=False)


ADDED = """
[arms.more]
config = "configs/orz.py:tiny"
set = { "critic.gae_lambda" = 0.8 }

[[comparisons]]
outcome = "sums"
arm = "more"
base = "plain"
claim = "higher"
primary = false
"""


def test_arms_are_added_to_runs_that_are_done_elsewhere_or_here(
  finished, tmp_path
):
  source, workdir = finished
  archive.save(workdir, source)
  was, path = registration.fixed_plan_hash(source), source / plan_file.FILE
  unsaid = amended(PLAN + ADDED, was)
  path.write_text(unsaid)
  refused(workdir, source)
  other = Workdir(tmp_path / "other", plan_file.read(source))
  with pytest.raises(ValueError, match="expected the same text, set, prepare"):
    archive.restore(other, source, goes_on=False)
  path.write_text(unsaid + 'adds = ["more"]\n')
  other = Workdir(tmp_path / "other", plan_file.read(source))
  assert archive.restore(other, source, goes_on=True) == 3 * SEEDS
  here = Workdir(workdir.path, plan_file.read(source))
  here.register(source)
  for one in (here, other):
    todo = {job.name for job in jobs.make(one) if not job.is_done()}
    assert todo == {
      f"more_{seed}{score}" for seed in range(SEEDS) for score in ("", "_sums")
    }
  # A second amendment accepts what was archived with the plan it amends.
  second = ADDED.replace("more", "most").replace("0.8", "0.9")
  was = registration.fixed_plan_hash(source)
  amendments = path.read_text().removeprefix(PLAN + ADDED)
  text = amended(PLAN + ADDED + second + amendments, was) + 'adds = ["most"]\n'
  kept = {
    "plan": was,
    "plan_of_runs": registration.plan_hashes(source)["plan_of_runs"],
  }
  path.write_text(text)
  registration.check_kept(source, kept)
  # Adding an arm does not allow changing another one.
  path.write_text(
    path.read_text().replace('gae_lambda" = 0.5', 'gae_lambda" = 0.7')
  )
  refused(workdir, source)


@pytest.mark.parametrize(
  ("old", "new", "error"),
  [
    ('adds = ["more"]', 'adds = ["less"]', r"amended\[0\]\.adds='less'"),
    ("primary = false\n\n[[amended]]", "[[amended]]", "primary=True"),
  ],
)
def test_an_arm_that_was_added_is_one_and_decides_nothing(
  finished, old, new, error
):
  source, _ = finished
  text = amended(PLAN + ADDED, "0" * 64) + 'adds = ["more"]\n'
  assert old in text
  (source / plan_file.FILE).write_text(text.replace(old, new))
  with pytest.raises(ValueError, match=error):
    plan_file.read(source)


def test_a_run_of_another_variant_is_refused(finished):
  """Arms may differ only in their config's variant."""
  source, workdir = finished
  path = workdir.run("plain", 1) / "config.json"
  config = json.loads(path.read_text())
  config["executor"]["workers"] += 1  # Resumed runs may change it.
  path.write_text(json.dumps(config))
  page.write(source, source, workdir)
  config["orz"]["prompts"] += 1
  path.write_text(json.dumps(config))
  with pytest.raises(ValueError, match=r"config\.orz\.prompts"):
    page.write(source, source, workdir)
  # A setting that was added after the run is not a difference.
  del config["orz"]["prompts"]
  path.write_text(json.dumps(config))
  page.write(source, source, workdir)
  del config["critic"]["gae_lambda"]
  path = workdir.run("better", 1) / "config.json"
  path.write_text(json.dumps(config))
  with pytest.raises(ValueError, match="gae_lambda=None: expected 0.5"):
    page.write(source, source, workdir)


def test_a_run_that_goes_on_here_gets_no_scores_of_another(finished, tmp_path):
  source, workdir = finished
  archive.save(workdir, source)
  other = Workdir(tmp_path / "other", workdir.plan)
  run = other.run("plain", 2)
  shutil.copytree(workdir.run("plain", 2), run)
  rows = (run / "metrics.jsonl").read_text().splitlines()
  (run / "metrics.jsonl").write_text(rows[0] + "\n")
  assert archive.restore(other, source, goes_on=True) == 3 * SEEDS - 1
  todo = {job.name for job in jobs.make(other) if not job.is_done()}
  assert todo == {"plain_2", "plain_2_sums"}


def test_one_seed_decides_nothing(finished, tmp_path):
  source, workdir = finished
  alone = Workdir(tmp_path / "alone", workdir.plan)
  for arm in ("plain", "better"):
    for name in (f"{arm}_3", f"{arm}_3_scores"):
      shutil.copytree(workdir.path / name, alone.path / name)
  shutil.copytree(workdir.run("better", 4), alone.run("better", 4))
  text = page.write(source, source, alone)
  found = json.loads((source / page.RESULTS).read_text())["comparisons"]
  assert found[0]["p_holm"] < 0.05
  want = ["undecided", "not run", "not run", "holds", "not run"]
  assert [one["verdict"] for one in found] == want
  assert "Only one seed was run" in text and "(items) (1 of 2 seeds)" in text
  shutil.rmtree(alone.run("better", 4))
  text = page.write(source, source, alone)
  assert "**late x less y: `better` below 0**: undecided" in text
  assert "| -1.9" in text or "| -2" in text


@pytest.mark.parametrize(
  ("changes", "words"),
  [
    ({"interval": [0.01, 0.3]}, "It may be smaller than what matters."),
    ({"interval": [0.06, 0.3]}, "holds. The difference is"),
    ({"verdict": "excluded"}, "no gain of 5.0. The"),
    ({"verdict": "excluded", "margin": 0.0}, "opposite sign. The"),
    ({"verdict": "excluded", "claim": "lower"}, "no loss of 5.0. The"),
    (
      {"verdict": "excluded", "claim": "not_lower"},
      "lower by more than 5.0. The",
    ),
  ],
)
def test_a_reading_says_what_the_verdict_leaves_open(finished, changes, words):
  source, workdir = finished
  page.write(source, source, workdir)
  one = json.loads((source / page.RESULTS).read_text())["comparisons"][0]
  text = reading.sentence(workdir.plan, one | changes)
  assert words in text
  assert ("may be smaller" in text) == ("may be smaller" in words)


def test_a_score_that_could_not_ask_all_items_is_not_kept(finished):
  """This also holds without a runner, because `--analyse` archives results."""
  source, workdir = finished
  path = workdir.scores("better", 1, "sums") / "results.json"
  result = json.loads(path.read_text())
  result["scores"]["problems/too_long"] = 3.0
  path.write_text(json.dumps(result))
  with pytest.raises(ValueError, match=f"3 of {ITEMS} items"):
    archive.save(workdir, source)
  assert not (source / "runs" / "better_1.json").exists()


def test_a_curve_is_smoothed_over_steps_and_not_over_evaluations():
  every = figure._smooth({s: float(s) for s in range(1, 8)}, range(1, 8))
  assert every == [1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0]
  scores = {1: 0.4, 13: 0.5, 17: 0.7, 22: 0.9}
  assert figure._smooth(scores, [*scores]) == [0.4, 0.5, 0.6, 0.9]


def test_each_arm_is_in_the_legend_and_an_empty_panel_says_why(
  finished, monkeypatch
):
  """An arm lacks the first panel's metric."""
  source, workdir = finished
  for seed in range(SEEDS):
    path = workdir.run("plain", seed) / "metrics.jsonl"
    path.write_text(path.read_text().replace('"x": ', '"w": '))
  panels = {"x": "x", "w": "w", "none": "v"}
  plan = dataclasses.replace(workdir.plan, panels=panels)
  seen = []
  monkeypatch.setattr(
    figure_lib.Figure, "savefig", lambda self, *_, **__: seen.append(self)
  )
  draw_figure(
    Workdir(workdir.path, plan),
    {"outcomes": [], "comparisons": [], "styles": []},
    source / page.FIGURE,
  )
  (legend,) = seen[0].legends
  colours = {
    text.get_text(): line.get_color()
    for text, line in zip(legend.get_texts(), legend.get_lines(), strict=True)
  }
  assert colours == {"plain": "C0", "better": "C1", "same": "C2"}
  assert [text.get_text() for text in seen[0].axes[2].texts] == [
    "no run has\nv"
  ]


def test_what_would_be_seen_is_told_as_a_difference(finished):
  source, workdir = finished
  page.write(source, source, workdir)
  one = json.loads((source / page.RESULTS).read_text())["comparisons"][4]
  one |= {"verdict": "undecided", "smallest": 0.75, "interval": [-0.7, 0.6]}
  text = reading.sentence(workdir.plan, one)
  assert "`same` not below `plain` by 0.5" in text
  assert "a true difference of +0.25 would be seen in 80 of 100" in text
  text = reading.sentence(workdir.plan, one | {"interval": [-0.4, 0.6]})
  assert "for several claims at level 0.05" in text


def test_another_machine_goes_on_from_what_was_kept(finished, tmp_path):
  source, workdir = finished
  page.write(source, source, workdir)
  want = json.loads((source / page.RESULTS).read_text())
  late = workdir.run("better", 4)
  rows = (late / "metrics.jsonl").read_text()
  (late / "metrics.jsonl").write_text(rows.splitlines()[0] + "\n")
  archive.save(workdir, source)
  other = Workdir(tmp_path / "other", workdir.plan)
  other.register(source)
  assert archive.restore(other, source, goes_on=True) == 3 * SEEDS - 1
  todo = {job.name for job in jobs.make(other) if not job.is_done()}
  assert todo == {"better_4", "better_4_sums"}
  # The unfinished run finishes there, and is archived with the others.
  late = other.run("better", 4)
  late.mkdir()
  (late / "metrics.jsonl").write_text(rows)
  config = json.loads((workdir.run("better", 4) / "config.json").read_text())
  (late / "config.json").write_text(json.dumps(config))
  shutil.copytree(
    workdir.scores("better", 4, "sums"), other.scores("better", 4, "sums")
  )
  (late / "starts.jsonl").write_text(
    '{"commit": "abc"}\n{"commit": "def"}\n{"commit": null}\n'
    '{"commit": "abc"}\n{"comm'
  )
  archive.save(other, source)
  third = Workdir(tmp_path / "third", workdir.plan)
  third.register(source)
  assert archive.restore(third, source, goes_on=True) == 3 * SEEDS
  # A run lists the commits it was started at, wherever it was archived.
  kept = [
    json.loads((source / "runs" / f"{name}.json").read_text())["commits"]
    for name in ("better_0", "better_4")
  ]
  assert kept[1] == ["abc", "def"] and len(kept[0]) == 1
  assert kept[0][0].startswith(want["commits"][0].removesuffix("-dirty"))
  page.write(source, source, third)
  got = json.loads((source / page.RESULTS).read_text())
  assert got.pop("commits") == sorted([*want.pop("commits"), "abc", "def"])
  assert got == want


def test_runs_of_another_plan_are_refused(finished, tmp_path):
  source, workdir = finished
  archive.save(workdir, source)
  plan = source / plan_file.FILE
  plan.write_text(PLAN.replace("margin = 0.05", "margin = 0.04"))
  other = Workdir(tmp_path / "other", plan_file.read(source))
  other.register(source)
  with pytest.raises(ValueError, match="another plan"):
    archive.restore(other, source, goes_on=True)


def test_no_runs_overwrite_no_results(finished, tmp_path):
  source, workdir = finished
  page.write(source, source, workdir)
  before = (source / page.RESULTS).read_text()
  with pytest.raises(ValueError, match="nothing is written"):
    page.write(source, source, Workdir(tmp_path / "empty", workdir.plan))
  assert (source / page.RESULTS).read_text() == before
