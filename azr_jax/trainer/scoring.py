"""Scores a model on benchmarks, resumably: what `azr_jax.evaluate` runs."""

import json
import pathlib
from collections.abc import Sequence
from typing import Any

import jax
import ml_collections

from azr_jax.config import settings as settings_lib
from azr_jax.evals import questions, registry, runner, table
from azr_jax.executor import Executor
from azr_jax.models.tokenizers import Tokenizer
from azr_jax.parallel.shared_jobs import SharedJobs
from azr_jax.rollout import policy as policy_lib
from azr_jax.rollout.python_tool import PythonTool
from azr_jax.run import session
from azr_jax.run.folder import SCORING_LAYOUT
from azr_jax.run.session import Run
from azr_jax.systems.code_interpreter import agents
from azr_jax.trainer import build, restore
from azr_jax.trainer import settings as train_settings
from azr_jax.trainer.settings import EvaluateSettings

RESULTS = "results.json"


def evaluate(
  config: ml_collections.ConfigDict,
  model_spec: str,
  benchmark: str,
  workdir: str,
  data: str = "",
  limit: int = 0,
) -> dict[str, float]:
  """Returns the scores of all benchmarks.

  Args:
    config: of `configs/evaluate.py`.
    model_spec: a model spec (models/load.py), or a run folder, whose newest
      checkpoint is taken.
    benchmark: names and groups of `evals/registry.py`, between commas.
    workdir: where results and records go.
    data: of one benchmark a path, or NAME=PATH between commas; "": the public
      sources.
    limit: most items of a benchmark; 0: all, or as many as its paper takes.

  Raises:
    ValueError: a config value, model, benchmark or data is not what is
      expected, or the folder has results of something else.
  """
  settings = train_settings.read(EvaluateSettings, config)
  names = registry.names(benchmark)
  paths = registry.paths(names, data)
  if limit < 0:
    raise ValueError(f"limit={limit}: expected 0 (all) or more")
  _require_data(names, paths, benchmark)
  identity = asked_of(settings, model_spec) | {"data": data, "limit": limit}
  with open_scores(workdir, settings, identity) as run:
    names = _with_data(names, paths, run)
    loaded = restore.load_for_sampling(settings, model_spec)
    sampler = loaded.make_sampler(settings)
    params = sampler.compute_params(loaded.params)
    scores: dict[str, float] = {}
    with build.build_executor(settings.executor) as executor:
      for name in names:
        # Every benchmark starts from the same key, so that its scores do not
        # depend on what else is run.
        policy = policy_lib.Policy(
          sampler,
          loaded.source.tokenizer,
          params,
          jax.random.key(settings.seed),
        )
        scores |= _score(
          name,
          policy,
          executor,
          run,
          settings,
          runner.RunSettings(
            paths.get(name, ""),
            limit,
            settings.evaluate.prompt_style,
            settings.evaluate.samples,
          ),
        )
        if run.is_primary:
          _write(run.folder, identity, scores)
    return _write(run.folder, identity, scores) if run.is_primary else scores


def asked_of(settings: EvaluateSettings, model_spec: str) -> dict[str, Any]:
  """Returns what a folder of answers depends on: model, step and config."""
  return {
    "model": model_spec,
    "step": restore.checkpoint_step(model_spec),
    "config": settings_lib.as_dict(settings),
  }


def open_scores(
  workdir: str, settings: EvaluateSettings, identity: dict[str, Any]
):
  """Opens a folder of records, which may hold some of the same question."""
  return session.open_run(
    workdir,
    identity,
    settings.hosts.timeout_s,
    may_change=tuple(f"config.{key}" for key in SCORING_LAYOUT),
    begun_by=("*.jsonl",),
    section="",
    stops_after_step=False,
  )


def build_agent(
  settings: EvaluateSettings,
  name: str,
  tokenizer: Tokenizer,
  executor: Executor,
  run: Run,
) -> policy_lib.Agent:
  """Builds one of the Code Interpreter's agents, by section `evaluate`."""
  return agents.make(
    name,
    PythonTool(
      settings.evaluate.tool,
      tokenizer,
      executor,
      run.hosts,
      settings.executor.timeout_s,
    ),
    SharedJobs(executor, run.hosts),
    settings.evaluate.prompt_style,
  )


def _score(
  name: str,
  policy: policy_lib.Policy,
  executor: Executor,
  run: Run,
  settings: EvaluateSettings,
  how: runner.RunSettings,
) -> dict[str, float]:
  """Runs one benchmark."""
  benchmark, agent = registry.BENCHMARKS[name], policy_lib.single_turn
  if name == questions.NAME:
    agent_name = settings.evaluate.agent
    benchmark = questions.asked_by(benchmark, agent_name)
    agent = build_agent(settings, agent_name, policy.tokenizer, executor, run)
  path = run.folder / f"{name}.jsonl"
  return runner.run(benchmark, policy, executor, run.hosts, how, path, agent)


def _require_data(
  names: Sequence[str], paths: dict[str, str], asked: str
) -> None:
  """Raises ValueError for a benchmark that is named but has no data."""
  for name in _lacking(names, paths):
    if name in asked.split(","):
      raise ValueError(
        f"benchmark {name!r}: expected --data={name}=PATH, for it has no "
        "public source that could be read"
      )


def _with_data(
  names: Sequence[str], paths: dict[str, str], run: Run
) -> tuple[str, ...]:
  """Leaves out of a group what has no public source and was given no data."""
  lacking = _lacking(names, paths)
  for name in lacking:
    run.say(f"{name} is left out: it needs --data={name}=PATH")
  return tuple(name for name in names if name not in lacking)


def _lacking(names: Sequence[str], paths: dict[str, str]) -> list[str]:
  return [n for n in names if n in registry.NEED_DATA and n not in paths]


def _write(
  folder: pathlib.Path, identity: dict[str, Any], scores: dict[str, float]
) -> dict[str, float]:
  """Adds scores to the results and averages to the scores; returns them."""
  path = folder / RESULTS
  earlier: dict[str, float] = {}
  if path.exists():
    earlier = json.loads(path.read_text(encoding="utf-8"))["scores"]
  scores = earlier | scores
  main = {
    name: scores[table.main_score(name)]
    for name in registry.BENCHMARKS
    if table.main_score(name) in scores
  }
  scores |= registry.averages(main)
  text = json.dumps(identity | {"scores": scores}, indent=2)
  path.write_text(text + "\n", encoding="utf-8")
  return scores
