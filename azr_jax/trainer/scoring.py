"""Scores a model on benchmarks. An interrupted evaluation resumes.

The command is `azr_jax.evaluate`.
"""

import collections
import contextlib
import dataclasses
import json
import pathlib
from collections.abc import Callable, Collection, Sequence
from typing import Any

import ml_collections

from azr_jax.config import settings as settings_lib
from azr_jax.config import user_files
from azr_jax.evals import items as items_lib
from azr_jax.evals import (
  program_tasks,
  questions,
  registry,
  runner,
  score_files,
  table,
)
from azr_jax.evals.benchmark import Benchmark
from azr_jax.evals.items import ItemOptions
from azr_jax.executor import Executor
from azr_jax.models import tokenizers
from azr_jax.models.tokenizers import Tokenizer
from azr_jax.parallel import memory
from azr_jax.rollout import policy as policy_lib
from azr_jax.run import session, storage
from azr_jax.run.folder import SCORING_MUTABLE_KEYS
from azr_jax.run.session import Run
from azr_jax.systems import benchmark_agents
from azr_jax.systems import registry as systems
from azr_jax.tasks.templates import Templates
from azr_jax.trainer import build, loading, sizes, user_prompts
from azr_jax.trainer import settings as train_settings
from azr_jax.trainer.evaluation_settings import BenchmarkSettings
from azr_jax.trainer.settings import EvaluateSettings

RESULTS = score_files.RESULTS
# Keys of a results file. Scores are merged only if all of these are equal.
_IDENTITY_KEYS = ("model", "step", "data", "limit")


@memory.explained(memory.SAMPLING_KEYS)
def evaluate(
  config: ml_collections.ConfigDict,
  model_spec: str,
  benchmark: str,
  workdir: str,
  data: str = "",
  limit: int = 0,
  step: int | None = None,
  beside: str = "",
) -> dict[str, float]:
  """Scores a model on benchmarks and returns the scores.

  The primary host also writes the scores to `RESULTS`. On that host, the result
  includes averages and the earlier scores in the file.

  Args:
    config: a config of `configs/evaluate.py`.
    model_spec: a model spec (models/load.py), or a run folder.
    benchmark: comma-separated names and groups of `evals/registry.py`.
    workdir: the folder for results and records.
    data: the path of one benchmark's data, or comma-separated NAME=PATH; ""
      reads the public sources.
    limit: the maximum number of items per benchmark. 0 means the benchmark's
      default, which is all items unless its paper takes fewer.
    step: the checkpoint of the run folder. None means the newest.
    beside: other benchmarks, whose prompts the user's folder may have.

  Raises:
    ValueError: a config value, model, benchmark or data is invalid, or the
      folder has results of a different evaluation.
  """
  settings = train_settings.read(EvaluateSettings, config)
  names = registry.names(benchmark)
  paths = registry.paths(names, data)
  _require_data(names, paths, benchmark)
  left_out = _without_data(names, paths)
  names = [name for name in names if name not in left_out]
  agent_names = benchmark_agents.agent_names(settings.evaluate, names)
  settings, templates = read_prompts(
    settings, workdir, names, registry.names(beside) if beside else ()
  )
  identity = _identity(settings, model_spec, data, limit, step)
  with open_scores(workdir, settings, identity) as run:
    for name in left_out:
      run.print_status(f"{name} is left out: it needs --data={name}=PATH")
    user_prompts.print_differing(templates, model_spec, run)
    if any(agent_names):
      require_same_sandbox(settings, model_spec)
    how = _how(settings.evaluate, templates, limit)
    # Read all data before the weights, and build all prompts before sampling:
    # an error should show up now, not hours later.
    say = run.print_status
    opened = collections.deque(
      pair
      for name in names
      for pair in _open(name, paths, agent_names, settings, how, say)
    )
    _print_limits(opened, settings, run)
    policy = loading.load_policy(
      settings,
      model_spec,
      identity["step"],
      lambda tokenizer: _request(
        opened, settings, how, tokenizers.dated(tokenizer, run.date)
      ),
    )
    policy.tokenizer = tokenizers.dated(policy.tokenizer, run.date)
    scores: dict[str, float] = {}
    with build.build_executor(settings.executor, run.hosts) as executor:
      while opened:  # Frees the items of finished benchmarks.
        chosen, agent = opened.popleft()
        # A benchmark's scores do not depend on the other benchmarks.
        key = runner.key_of(chosen, policy.key)
        with policy.with_key(key) as eval_policy:
          scores |= _score(
            chosen, agent, eval_policy, executor, run, settings, how
          )
        if run.is_primary:
          scores = _write(run.folder, identity, scores)
    return scores


def read_prompts(
  settings: EvaluateSettings,
  workdir: str,
  names: Sequence[str],
  beside: Sequence[str] = (),
) -> tuple[EvaluateSettings, Templates | None]:
  """Returns settings with the digest of the user's prompts, and the prompts.

  Args:
    settings: the command's settings.
    workdir: the folder of records.
    names: the benchmarks to ask.
    beside: other benchmarks, whose prompts the user's folder may have.

  Raises:
    ValueError: as for `user_prompts.read_for_scores`.
  """
  agents = benchmark_agents.agent_names(settings.evaluate, names)
  asked = [
    benchmark
    for name in dict.fromkeys((*names, *beside))
    for benchmark, _ in _by_agents(name, agents, settings)
  ]
  return user_prompts.read_for_scores(
    settings, workdir, benchmarks=asked, agents=agents
  )


def _how(
  settings: BenchmarkSettings, templates: Templates | None, limit: int
) -> ItemOptions:
  """Returns how to ask benchmarks, whose data are not yet named."""
  return ItemOptions(
    "",
    limit,
    templates or settings.prompt_format,
    settings.samples,
    settings.arguments,
    settings.prefill,
  )


def _request(
  opened: Collection[tuple[Benchmark, str]],
  settings: EvaluateSettings,
  how: ItemOptions,
  tokenizer: Tokenizer,
) -> sizes.Workload:
  """Returns the largest sizes that any benchmark needs; they run one by one.

  Raises:
    ValueError: a benchmark has no prompts in the format.
  """
  longest, responses, limits = [], [], []
  for benchmark, agent in opened:
    tokens = items_lib.longest_prompt(benchmark, how, tokenizer)
    # Agents write their own prompts, whose length is unknown.
    longest.append(0 if agent else tokens)
    items = items_lib.items_of(benchmark, how)
    responses.append(len(items) * how.samples)
    limits.append(
      _longest_response(benchmark, agent, settings)
      or settings.rollout.max_tokens
    )
  known = max(longest, default=0) if all(longest) else 0
  return sizes.Workload(
    max(responses, default=1), known, max(limits, default=0)
  )


def _longest_response(
  benchmark: Benchmark, agent_name: str, settings: EvaluateSettings
) -> int | None:
  """Returns a benchmark's response limit, or None for rollout.max_tokens."""
  longest = settings.evaluate.longest(benchmark.name)
  if longest is None or agent_name:
    return None
  return min(longest, settings.rollout.max_tokens)


def _print_limits(
  opened: Collection[tuple[Benchmark, str]],
  settings: EvaluateSettings,
  run: Run,
) -> None:
  """Prints which benchmarks limit responses below rollout.max_tokens.

  Agents are limited by rollout.max_tokens alone, so with agents it prints that
  `evaluate.max_tokens` has no effect. Otherwise it names the benchmarks that
  `evaluate.max_tokens` does not cover.
  """
  most, given = settings.rollout.max_tokens, settings.evaluate.max_tokens
  shorter = collections.defaultdict(list)
  for benchmark, agent in opened:
    limit = _longest_response(benchmark, agent, settings) or most
    if limit < most:
      shorter[limit].append(benchmark.name)
  for limit, names in shorter.items():
    run.print_status(
      f"{', '.join(names)}: responses have at most {limit} tokens, not "
      f"rollout.max_tokens={most} (evaluate.max_tokens)"
    )
  if settings.evaluate.agents and given:
    run.print_status(
      f"evaluate.max_tokens={given!r} has no effect: "
      f"responses of agents have at most rollout.max_tokens={most} tokens"
    )
  elif given:
    names = [benchmark.name for benchmark, _ in opened]
    names = [one for one in names if settings.evaluate.longest(one) is None]
    if names:
      run.print_status(
        f"evaluate.max_tokens={given!r} names neither {', '.join(names)} nor "
        f"its group: responses have at most rollout.max_tokens={most} tokens"
      )


def identity_of(
  settings: EvaluateSettings, model_spec: str, step: int | None = None
) -> dict[str, Any]:
  """Returns model, step and config: the identity of a folder's records.

  Args:
    settings: the command's settings.
    model_spec: a model spec or run folder.
    step: the step of the run's checkpoint. None looks for the newest.
  """
  if step is None:
    step = loading.checkpoint_step(model_spec)
  return {
    "model": model_spec,
    "step": step,
    "config": settings_lib.as_dict(settings),
  }


def _identity(
  settings: EvaluateSettings,
  model_spec: str,
  data: str,
  limit: int,
  step: int | None,
) -> dict[str, Any]:
  """Returns the identity of a folder's records and scores.

  Raises:
    ValueError: the limit is negative, or `step` is given without a run.
  """
  if limit < 0:
    raise ValueError(
      f"limit={limit}: expected 0 (the benchmark's own number, else all) or "
      "more"
    )
  if step is not None and not loading.is_run(model_spec):
    raise ValueError(
      f"--step={step}: expected no step, because {model_spec} is not a run"
    )
  identity = identity_of(settings, model_spec, step)
  return identity | {"data": data, "limit": limit}


def open_scores(
  workdir: str,
  settings: EvaluateSettings,
  identity: dict[str, Any],
  marker_files: Sequence[str] = user_prompts.RECORDS,
) -> contextlib.AbstractContextManager[Run]:
  """Opens a records folder, which may hold records of the same identity.

  Args:
    workdir: the folder.
    settings: the command's settings.
    identity: everything that the records depend on.
    marker_files: patterns of files that exist once there are records.

  Raises:
    ValueError: the folder holds records of another identity.
  """
  return session.open_run(
    workdir,
    identity,
    settings.hosts.timeout_s,
    mutable_keys=tuple(f"config.{key}" for key in SCORING_MUTABLE_KEYS),
    marker_files=marker_files,
    section="",
    stops_after_step=False,
    defaults={"config": settings_lib.as_dict(type(settings)())},
  )


def require_same_sandbox(settings: EvaluateSettings, model_spec: str) -> None:
  """Rejects executor limits or libraries other than those of training.

  Only runs whose system has a tool are checked.

  Raises:
    Invalid: a value of section `executor` differs.
  """
  if not loading.is_run(model_spec):
    return
  trained = loading.read_run_config(storage.resolve(model_spec)).to_dict()
  section = trained.get(systems.load(trained["system"]).name, {})
  if "tool" in section:
    settings.executor.require_same(trained["executor"], model_spec)


def _open(
  name: str,
  paths: dict[str, str],
  agent_names: Sequence[str],
  settings: EvaluateSettings,
  how: ItemOptions,
  say: Callable[[str], None],
) -> list[tuple[Benchmark, str]]:
  """Returns a benchmark with its items, paired with each agent's name.

  Raises:
    ValueError: the data cannot be read, or an agent cannot answer it.
  """
  data = dataclasses.replace(how, data=paths.get(name, ""))
  items = items_lib.items_of(settings.evaluate.benchmark(name), data, say)
  return [
    (program_tasks.in_format(one, how.prompt_format).with_items(items), agent)
    for one, agent in _by_agents(name, agent_names, settings)
  ]


def _by_agents(
  name: str, agent_names: Sequence[str], settings: EvaluateSettings
) -> list[tuple[Benchmark, str]]:
  """Returns a benchmark as each agent is asked it, with the agent's name.

  Raises:
    ValueError: an agent cannot answer it.
  """
  benchmark, agents = (
    settings.evaluate.benchmark(name),
    settings.evaluate.agents,
  )
  return [
    (
      questions.answered_by(benchmark, agent, agents) if agent else benchmark,
      agent,
    )
    for agent in agent_names
  ]


def _score(
  benchmark: Benchmark,
  agent_name: str,
  policy: policy_lib.Policy,
  executor: Executor,
  run: Run,
  settings: EvaluateSettings,
  how: ItemOptions,
) -> dict[str, float]:
  """Scores one benchmark.

  `agent_name` names the agent that answers. If it is empty, the model answers
  in a single turn.
  """
  agent: policy_lib.Agent = policy_lib.single_turn
  longest = _longest_response(benchmark, agent_name, settings)
  if longest is not None:
    agent = policy_lib.short_single_turn(longest)
  if agent_name:
    agent = benchmark_agents.build(
      settings.evaluate,
      agent_name,
      policy.tokenizer,
      executor,
      run.hosts,
      settings.executor,
      how.prompt_format,
    )
  path = run.folder / f"{benchmark.name}.jsonl"
  return runner.run(
    benchmark,
    policy,
    executor,
    run.hosts,
    how,
    path,
    agent,
    run.print_status,
  )


def _require_data(
  names: Sequence[str], paths: dict[str, str], benchmark: str
) -> None:
  """Raises ValueError if an explicitly named benchmark has no data."""
  for name in _without_data(names, paths):
    if name in benchmark.split(","):
      raise ValueError(
        f"benchmark {name!r}: expected --data={name}=PATH, because it has no "
        "public source that can be read"
      )


def _without_data(names: Sequence[str], paths: dict[str, str]) -> list[str]:
  return [n for n in names if n in registry.NEED_DATA and n not in paths]


def _write(
  folder: pathlib.Path, identity: dict[str, Any], scores: dict[str, float]
) -> dict[str, float]:
  """Writes earlier scores, new scores and their averages; returns all."""
  path = folder / RESULTS
  earlier = _earlier_scores(path, identity) if path.exists() else {}
  scores = earlier | scores
  main = {
    name: scores[table.main_score(name)]
    for name in registry.BENCHMARKS
    if table.main_score(name) in scores
  }
  errors = {
    name: scores[f"{table.main_score(name)}_stderr"]
    for name in main
    if f"{table.main_score(name)}_stderr" in scores
  }
  scores |= registry.averages(main) | registry.average_errors(errors)
  text = json.dumps(identity | {"scores": scores}, indent=2)
  storage.write_atomically(path, text + "\n")
  return scores


def _earlier_scores(
  path: pathlib.Path, identity: dict[str, Any]
) -> dict[str, float]:
  """Reads the scores of a results file.

  Raises:
    ValueError: the file is damaged, or belongs to a different evaluation.
  """
  with user_files.reading(path, "results of azr_jax.evaluate"):
    earlier = user_files.read_object(path)
    scores = earlier["scores"]
    found = {key: earlier.get(key) for key in _IDENTITY_KEYS}
  for key, value in found.items():
    if value != identity.get(key):
      raise ValueError(
        f"{path} has scores of {key}={value!r}: expected "
        f"{identity.get(key)!r}, or another --workdir"
      )
  return scores
