"""Tests that every plan of `experiments/` can run, and wrong ones are named."""

import ast
import importlib.util
import math
import pathlib

import pytest

from azr_jax.lab.compile import programs
from azr_jax.lab.data.countdown_pool import ProposeRunSettings
from azr_jax.lab.data.question_potential import PotentialRunSettings
from azr_jax.lab.experiments import analysis, archive, checks, jobs, plan_file
from azr_jax.lab.experiments.folders import Workdir
from azr_jax.lab.experiments.plan import SUPERVISED
from azr_jax.models import presets
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.trainer import settings

NAMES = sorted(p.parent.name for p in plan_file.EXPERIMENTS.glob("*/*.toml"))
# The first arm of a plan is tested always, the others in slow tests.
ARMS = [
  pytest.param(name, arm, marks=[pytest.mark.slow] if index else [])
  for name in NAMES
  for index, arm in enumerate(plan_file.read(plan_file.folder_of(name)).arms)
]
READERS = {
  "azr_jax.sft": settings.read_supervised,
  "azr_jax.evaluate": lambda c: settings.read(settings.EvaluateSettings, c),
  "azr_jax.potential": lambda c: settings.read(PotentialRunSettings, c),
  "azr_jax.propose": lambda c: settings.read(ProposeRunSettings, c),
  "azr_jax.train": settings.read_train,
}
PLAN = {
  "question": "Is it?",
  "claim": "It is.",
  "source": "a paper",
  "refuted_if": "it is not",
  "analysis": "two_samples",
  "seeds": [0, 1],
  "arms": {"a": {"config": "configs/orz.py:tiny"}},
  "outcomes": {"reward": {"title": "reward", "metric": "x"}},
  "comparisons": [{"outcome": "reward", "arm": "a"}],
}
TRANSITION = {"outcome": "reward", "axis": "dose", "lines": {"one": {"a": 0}}}


def plan_of(name):
  return plan_file.read(plan_file.folder_of(name))


@pytest.mark.parametrize("name, arm", ARMS)
def test_every_arm_builds_down_to_abstract_shapes(name, arm):
  plan = plan_of(name)
  config = checks.config_of(plan.arms[arm].config, plan.arms[arm].overrides)
  if plan.arms[arm].command == SUPERVISED:
    assert settings.read_supervised(config).shared.train.steps
    return
  checked = settings.read_train(config)
  model = {"code_interpreter": "code", "custom": "orz"}
  name = checked.system.name
  shape = presets.PRESETS[f"{model.get(name, name)}-tiny"]
  mesh = mesh_lib.make_mesh({"data": 1, "fsdp": 4, "tensor": 2})
  made = programs.make_programs(checked.shared, shape, mesh)
  assert {"prefill", "decode", "update"} <= {program.name for program in made}


@pytest.mark.parametrize("name", NAMES)
def test_no_two_arms_have_the_same_config(name):
  configs = [
    checks.config_of(arm.config, arm.overrides).to_dict()
    for arm in plan_of(name).arms.values()
  ]
  assert not any(one in configs[:i] for i, one in enumerate(configs))


@pytest.mark.parametrize(
  "name",
  [
    # This plan has ninety runs.
    pytest.param(name, marks=pytest.mark.slow)
    if name == "selfplay_gate"
    else name
    for name in NAMES
  ],
)
def test_kept_runs_are_still_those_of_their_arms(name, tmp_path):
  """The package's configs may change without invalidating past runs."""
  source = plan_file.folder_of(name)
  workdir = Workdir(tmp_path, plan_of(name))
  if archive.restore(workdir, source, goes_on=False):
    analysis.check_runs(workdir)
  else:
    assert not list(source.glob("runs/*_*.json"))


@pytest.mark.parametrize("rehearse", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_the_command_of_every_job_has_a_valid_config(name, rehearse, tmp_path):
  plan = plan_of(name).rehearsal() if rehearse else plan_of(name)
  made = jobs.make(Workdir(tmp_path, plan))
  names = [job.name for job in made]
  assert len({*names}) == len(names) >= len(plan.runs())
  for number, job in enumerate(made):
    assert {*job.needs} <= {*names[:number]}
    _, _, module, *words = job.command
    flags = dict(word[2:].split("=", 1) for word in words)
    overrides = {
      key.removeprefix("config."): value_of(value)
      for key, value in flags.items()
      if key.startswith("config.")
    }
    assert "{" not in " ".join(words)
    if module.startswith("experiments."):
      assert importlib.util.find_spec(module)
      continue
    READERS[module](checks.config_of(flags["config"], overrides))


def value_of(text):
  """Reads a flag as ml_collections does: as text unless it is a literal."""
  try:
    return ast.literal_eval(text)
  except (ValueError, SyntaxError):
    return text


@pytest.mark.parametrize(
  "change, words",
  [
    ({"seeds": [0, 0]}, "seeds"),
    ({"surprise": 1}, "surprise"),
    ({"claim": ""}, "claim"),
    ({"comparisons": [{"outcome": "rewrad", "arm": "a"}]}, "outcome='rewrad'"),
    (
      {"comparisons": [{"outcome": "reward", "arm": "a", "base": "a"}]},
      "base='a'",
    ),
    (
      {"comparisons": [{"outcome": "reward", "arm": "a", "base": "start"}]},
      "base='start'",
    ),
    ({"comparisons": [{"outcome": "reward", "arm": "start"}]}, "arm='start'"),
    ({"arms": {"a b": {"config": "x"}}}, "arms.a b"),
    ({"arms": {"a": {"config": "x", "command": "azr_jax.serve"}}}, "a.command"),
    ({"set": {"model.source": "{start}/model"}}, "start"),
    ({"outcomes": {"reward": {"title": "t"}}}, "metric"),
    (
      {"outcomes": {"reward": {"title": "t", "metric": "x", "items": "a"}}},
      "items",
    ),
    ({"transition": TRANSITION | {"axis": ""}}, "transition"),
    ({"transition": TRANSITION | {"lines": {"one": {"a": "x"}}}}, "numbers"),
    ({"transition": TRANSITION | {"lines": {"one": {"a": True}}}}, "numbers"),
    (
      {"transition": TRANSITION | {"lines": {"one": {"a": math.nan}}}},
      "numbers",
    ),
    ({"transition": TRANSITION | {"lines": {"one": {}}}}, "numbers"),
    (
      {"transition": TRANSITION | {"lines": {"one": {"a": 10**400}}}},
      "numbers",
    ),
    ({"transition": TRANSITION | {"outcome": "rewrad"}}, "rewrad"),
    ({"transition": TRANSITION | {"lines": {"one": {"z": 1.0}}}}, "lines.one"),
  ],
)
def test_a_wrong_plan_is_refused_by_its_key(change, words):
  plan_file.parse("good", PLAN | {"transition": TRANSITION})
  with pytest.raises(ValueError, match=words):
    plan_file.parse("wrong", PLAN | change)


def test_an_arm_with_a_wrong_key_is_refused():
  for key, words in (("orz.prompst", "prompst"), ("orz.prompts", "prompts")):
    arms = {"a": {"config": "configs/orz.py:tiny", "set": {key: -1}}}
    with pytest.raises(ValueError, match=f"arm a: .*{words}"):
      checks.check_arms(plan_file.parse("wrong", PLAN | {"arms": arms}))


def test_an_arm_starts_from_the_start_of_its_scores():
  score = {"config": "configs/evaluate.py:greedy", "benchmark": "problems"}
  for start, arms in (("embedded:orz-tiny", []), ("embedded:x", ["b"])):
    other = {"config": "configs/custom.py:smollm2-135m"}
    both = {"a": PLAN["arms"]["a"], "b": other} if arms else PLAN["arms"]
    scores = {"s": score | {"start": start, "arms": arms}}
    tables = PLAN | {"arms": both, "scores": scores}
    plan = plan_file.parse("starts", tables)
    if not arms:
      checks.check_arms(plan)
      continue
    with pytest.raises(ValueError, match=r"arm b: .*smollm2.*scores.s.start"):
      checks.check_arms(plan)


def test_a_supervised_arm_has_its_own_keys_and_command(tmp_path):
  own = {"train.steps": 3}
  arm = {"config": "configs/sft.py:own", "command": SUPERVISED, "set": own}
  plan = plan_file.parse(
    "mixed",
    PLAN | {"set": {"orz.prompts": 4}, "arms": {**PLAN["arms"], "sft": arm}},
  )
  checks.check_arms(plan)
  assert plan.arms["sft"].overrides == own
  assert plan.rehearsal().arms["sft"].command == SUPERVISED
  made = {job.name: job.command for job in jobs.make(Workdir(tmp_path, plan))}
  assert made["a_0"][2] == "azr_jax.train"
  assert made["sft_1"][2] == SUPERVISED and "--config.seed=1" in made["sft_1"]


def test_an_arm_reads_the_run_of_another_arm_with_the_next_seed(tmp_path):
  yoked = {"config": "configs/azr.py:tiny", "set": {"azr.yoked_to": "{next:a}"}}
  tables = PLAN | {"arms": {**PLAN["arms"], "b": yoked}, "seeds": [3, 5]}
  workdir = Workdir(tmp_path, plan_file.parse("yoked", tables))
  made = {job.name: job for job in jobs.make(workdir)}
  assert made["b_3"].needs == ("a_5",) and made["b_5"].needs == ("a_3",)
  assert f"--config.azr.yoked_to={tmp_path}/a_5" in made["b_3"].command
  assert workdir.folders_of("b", 3) == {"next:a": f"{tmp_path}/a_5"}
  assert not made["a_3"].needs and not workdir.folders_of("a", 3)
  # Each run comes after the one that it reads, and arms stay together.
  assert [*made] == ["a_3", "a_5", "b_3", "b_5"]
  with pytest.raises(ValueError, match="seeds.*two or more"):
    plan_file.parse("single", tables | {"seeds": [3]})


@pytest.mark.parametrize("source", ["b", "c", "none"])
def test_an_arm_does_not_read_an_arm_that_reads_another(source):
  arm = {"config": "configs/azr.py:tiny", "set": {"azr.yoked_to": "{next:a}"}}
  third = {**arm, "set": {"azr.yoked_to": f"{{next:{source}}}"}}
  arms = {**PLAN["arms"], "b": arm, "c": third}
  with pytest.raises(ValueError, match=f"c.set.azr.yoked_to.*next:{source}"):
    plan_file.parse("wrong", PLAN | {"arms": arms})


def test_texts_and_the_keys_of_all_arms_are_filled_in():
  tables = PLAN | {
    "text": {"sums": "gym:chain_sum"},
    "set": {"orz.data": ["{sums}"], "orz.prompts": 4},
    "arms": {"a": {"config": "c", "set": {"orz.prompts": 8}}},
  }
  overrides = plan_file.parse("texts", tables).arms["a"].overrides
  assert overrides == {"orz.data": ["gym:chain_sum"], "orz.prompts": 8}


def test_a_name_is_a_folder_of_experiments():
  assert (
    plan_file.folder_of("orz_critic") == plan_file.EXPERIMENTS / "orz_critic"
  )
  assert plan_file.folder_of("./here") == pathlib.Path("here")
