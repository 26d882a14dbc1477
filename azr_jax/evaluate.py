"""Runs benchmarks on a model, a safetensors folder or a run folder.

  python -m azr_jax.evaluate --config=configs/evaluate.py \\
      --model=SPEC|FOLDER|RUN --benchmark=programs_heldout --workdir=DIR
  python -m azr_jax.evaluate --config=configs/evaluate.py:chat \\
      --model=SPEC --benchmark=humaneval,gsm8k \\
      --data=humaneval=FILE,gsm8k=FILE --workdir=DIR

`--benchmark` takes names and groups (all, code, math) between commas; see
`evals/registry.py`. Data comes from the benchmark's public source, or from
`--data=PATH` (one benchmark) or `--data=NAME=PATH,...`.

Writes one record per item to `NAME.jsonl`, from which an interrupted run goes
on, and all scores to `results.json`; prints the scores as a table.
"""

import json
import pathlib
from collections.abc import Sequence
from typing import Any

import jax
import ml_collections
from absl import app, flags, logging
from ml_collections import config_flags

from azr_jax.cli import host_flags
from azr_jax.evals import questions, registry, runner, table
from azr_jax.models import load, transformer
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.parallel.hosts import Hosts
from azr_jax.rollout import policy as policy_lib
from azr_jax.rollout import sampler as sampler_lib
from azr_jax.run import checkpoint as checkpoint_lib
from azr_jax.run import storage
from azr_jax.run.metrics import say
from azr_jax.trainer import build as parts
from azr_jax.trainer import checks, schema

RESULTS = "results.json"

_LAYOUT = ("mesh", "sharding", "hosts")
_ROLLOUT_LAYOUT = (
  "mesh",
  "slots",
  "prompt_buckets",
  "prefill_tokens",
  "decode_chunk",
  "cache_chunk",
  "extend_chunk",
)


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
    config: `configs.evaluate.get_config()`.
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
  checks.check(config, schema.EVALUATE_CHECKS)
  names = registry.names(benchmark)
  paths = registry.paths(names, data)
  names = _with_data(names, paths, benchmark)
  if limit < 0:
    raise ValueError(f"limit={limit}: expected 0 (all) or more")
  folder = pathlib.Path(workdir).expanduser()
  hosts = Hosts(config.hosts.timeout_s)
  asked = {
    "model": model_spec,
    "step": step_of(model_spec),
    "data": data,
    "limit": limit,
    "config": what_matters(config.to_dict()),
  }
  hosts.assert_equal("config", [asked, benchmark, data])
  if hosts.is_primary:
    claim(folder, asked)
  hosts.barrier("the folder is there")
  mesh = mesh_lib.make_mesh(config.mesh)
  source, params = load_model(config, model_spec, mesh)
  model = parts.build_model(config, source.config, mesh)
  sampler = sampler_lib.Sampler(
    model,
    source.tokenizer,
    parts.rollout_mesh(config, mesh),
    parts.sharding_rules(config),
    parts.sampler_settings(config),
  )
  params = sampler.compute_params(params)
  scores: dict[str, float] = {}
  with parts.build_executor(config) as executor:
    for name in names:
      # A key of its own, so that scores do not depend on what else is run.
      policy = policy_lib.Policy(
        sampler, source.tokenizer, params, jax.random.key(config.seed)
      )
      settings = runner.RunSettings(
        paths.get(name, ""),
        limit,
        config.evaluate.prompt_style,
        config.evaluate.samples,
      )
      asked_one, ask = registry.BENCHMARKS[name], policy_lib.ask
      if name == questions.NAME:
        asked_one = questions.asked_by(asked_one, config.evaluate.agent)
        ask = parts.build_agent(
          config, config.evaluate.agent, source.tokenizer, executor, hosts
        )
      scores |= runner.run(
        asked_one,
        policy,
        executor,
        hosts,
        settings,
        folder / f"{name}.jsonl",
        ask,
      )
      if hosts.is_primary:
        _write(folder, asked, scores)
  return _write(folder, asked, scores) if hosts.is_primary else scores


def what_matters(config: dict[str, Any]) -> dict[str, Any]:
  """A config without the layout, on which scores do not depend."""
  kept = {key: config[key] for key in config if key not in _LAYOUT}
  kept["rollout"] = {
    key: value
    for key, value in config["rollout"].items()
    if key not in _ROLLOUT_LAYOUT
  }
  return kept


def step_of(model_spec: str) -> int | None:
  """The step that a run's newest checkpoint is of; None: it is no run."""
  folder = storage.resolve(model_spec)
  if not (folder / "checkpoints").is_dir():
    return None
  checkpoints = checkpoint_lib.Checkpointer(folder, keep=None)
  step = checkpoints.latest_step()
  checkpoints.close()
  return step


def _with_data(
  names: Sequence[str], paths: dict[str, str], asked: str
) -> tuple[str, ...]:
  """Leaves out of a group what has no public source and was given no data."""
  named = asked.split(",")
  left = [
    name for name in names if name in registry.NEED_DATA and name not in paths
  ]
  for name in left:
    if name in named:
      raise ValueError(
        f"benchmark {name!r}: expected --data={name}=PATH, for it has no "
        "public source that could be read"
      )
    say(f"{name} is left out: it needs --data={name}=PATH")
  return tuple(name for name in names if name not in left)


def claim(folder: pathlib.Path, asked: dict[str, Any]) -> None:
  """Refuses a folder whose results are of something else."""
  folder.mkdir(parents=True, exist_ok=True)
  path = folder / RESULTS
  asked = json.loads(json.dumps(asked))
  begun = any(file.stat().st_size for file in folder.glob("*.jsonl"))
  if not path.exists() or not begun:
    path.write_text(json.dumps(asked | {"scores": {}}), encoding="utf-8")
  theirs = json.loads(path.read_text(encoding="utf-8"))
  different = [key for key in asked if theirs.get(key) != asked[key]]
  if different:
    raise ValueError(
      f"{folder} holds scores of model {theirs.get('model')!r} with another "
      f"{', '.join(different)}: expected the same, or another --workdir"
    )


def _write(
  folder: pathlib.Path, asked: dict[str, Any], scores: dict[str, float]
) -> dict[str, float]:
  """Adds scores to the results and averages to the scores; returns them."""
  path = folder / RESULTS
  earlier = json.loads(path.read_text(encoding="utf-8"))["scores"]
  scores = earlier | scores
  main = {
    name: scores[table.main_score(name)]
    for name in registry.BENCHMARKS
    if table.main_score(name) in scores
  }
  scores |= registry.averages(main)
  text = json.dumps(asked | {"scores": scores}, indent=2)
  path.write_text(text + "\n", encoding="utf-8")
  return scores


def load_model(
  config: ml_collections.ConfigDict, spec: str, mesh: Any
) -> tuple[load.ModelSource, Any]:
  """Loads a spec, or a run folder's newest checkpoint, into its shards.

  Raises:
    ValueError: the folder is no model and no run with a checkpoint.
  """
  rules = parts.sharding_rules(config)
  folder = storage.resolve(spec)
  if not (folder / "checkpoints").is_dir():
    if folder.is_dir() and not any(folder.glob("*.safetensors")):
      raise ValueError(
        f"{folder}: expected a run's folder with checkpoints, or a model's "
        "with config.json and safetensors"
      )
    source = load.resolve(spec, config.model.cache_dir)
    return source, source.load_params(mesh, rules)
  text = (folder / "config.json").read_text(encoding="utf-8")
  run_config = ml_collections.ConfigDict(json.loads(text))
  source = load.resolve(run_config.model.source, config.model.cache_dir)
  model = transformer.Transformer(source.config)
  abstract = parts.abstract_state(run_config, model, mesh, rules)
  checkpoints = checkpoint_lib.Checkpointer(folder, keep=None)
  step = checkpoints.latest_step()
  if step is None:
    raise ValueError(f"{folder} holds no finished checkpoint")
  state, _ = checkpoints.restore(step, abstract)
  checkpoints.close()
  return source, state.params


def run() -> None:
  """The console script."""
  config = config_flags.DEFINE_config_file("config", None, "The experiment.")
  model = flags.DEFINE_string(
    "model", None, "A model spec or run folder.", required=True
  )
  benchmark = flags.DEFINE_string(
    "benchmark", None, "Names or groups, between commas.", required=True
  )
  data = flags.DEFINE_string("data", "", "PATH, or NAME=PATH,... of data.")
  workdir = flags.DEFINE_string(
    "workdir", None, "Where results go.", required=True
  )
  limit = flags.DEFINE_integer("limit", 0, "Most items; 0 = all.")
  join = host_flags.define()
  flags.mark_flag_as_required("config")

  def main(argv: list[str]) -> None:
    del argv
    logging.set_verbosity(logging.WARNING)
    chosen = config.value  # Whether it can be read, before others wait.
    join()
    scores = evaluate(
      chosen,
      model.value,
      benchmark.value,
      workdir.value,
      data.value,
      limit.value,
    )
    if jax.process_index() == 0:
      for name, score in sorted(scores.items()):
        print(f"{name:40s} {score:.4f}")
      print(table.show({model.value: scores}))

  app.run(main)


if __name__ == "__main__":
  run()
