"""Runs a benchmark on a model, a safetensors folder or a run folder.

  python -m azr_jax.evaluate --config=configs/evaluate.py \\
      --model=SPEC|FOLDER|RUN --benchmark=programs_heldout --workdir=DIR

Writes `results.json` and one record per task to `records.jsonl`, and prints
the scores.
"""

import json
import pathlib
from typing import Any

import jax
import ml_collections
from absl import app, flags, logging
from ml_collections import config_flags

from azr_jax import checkpoint as checkpoint_lib
from azr_jax import host_flags
from azr_jax.benchmarks import countdown, programs_heldout
from azr_jax.configuration import checks, parts, schema
from azr_jax.grading.verification import Verification
from azr_jax.learner import train_state
from azr_jax.models import load, transformer
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.parallel.hosts import Hosts
from azr_jax.rollout import policy as policy_lib
from azr_jax.rollout import sampler as sampler_lib

BENCHMARKS = {
  programs_heldout.NAME: programs_heldout.run,
  countdown.NAME: countdown.run,
}


def evaluate(
  config: ml_collections.ConfigDict,
  model_spec: str,
  benchmark: str,
  workdir: str,
  data: str = "",
  limit: int = 0,
) -> dict[str, float]:
  """Returns the benchmark's scores.

  Args:
    config: `configs.evaluate.get_config()`.
    model_spec: a model spec (models/load.py), or a run folder, whose newest
      checkpoint is taken.
    benchmark: a key of `BENCHMARKS`.
    workdir: where results and records go.
    data: the benchmark's file, if it is not in the package.
    limit: most tasks per kind; 0 takes all.

  Raises:
    ValueError: a config value, model or benchmark is not what is expected.
  """
  checks.check(config, schema.EVALUATE_CHECKS)
  if benchmark not in BENCHMARKS:
    raise ValueError(
      f"benchmark {benchmark!r}: expected one of {tuple(BENCHMARKS)}"
    )
  if limit < 0:
    raise ValueError(f"limit={limit}: expected 0 (all) or more")
  folder = pathlib.Path(workdir).expanduser()
  _check_free(folder, model_spec, benchmark)
  hosts = Hosts(config.hosts.timeout_s)
  hosts.check_same_value(
    "config", [config.to_dict(), model_spec, benchmark, data, limit]
  )
  if hosts.first:
    folder.mkdir(parents=True, exist_ok=True)
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
  policy = policy_lib.Policy(
    sampler,
    source.tokenizer,
    params,
    jax.random.key(config.seed),
  )
  with parts.build_executor(config) as executor:
    scores, records = BENCHMARKS[benchmark](
      policy,
      Verification(executor, hosts),
      data=data,
      limit=limit,
      prompt_style=config.evaluate.prompt_style,
      samples=config.evaluate.samples,
    )
  if not hosts.first:
    return scores
  with (folder / "records.jsonl").open("w", encoding="utf-8") as file:
    file.writelines(json.dumps(record) + "\n" for record in records)
  result = {
    "model": model_spec,
    "benchmark": benchmark,
    "limit": limit,
    "tasks": len(records),
    "scores": scores,
    "config": config.to_dict(),
  }
  (folder / "results.json").write_text(
    json.dumps(result, indent=2) + "\n", encoding="utf-8"
  )
  return scores


def _check_free(folder: pathlib.Path, model_spec: str, benchmark: str) -> None:
  path = folder / "results.json"
  if path.exists():
    theirs = json.loads(path.read_text(encoding="utf-8"))
    if (theirs["model"], theirs["benchmark"]) != (model_spec, benchmark):
      raise ValueError(
        f"{folder} holds the scores of {theirs['model']} on "
        f"{theirs['benchmark']}: expected another --workdir"
      )


def load_model(
  config: ml_collections.ConfigDict, spec: str, mesh: Any
) -> tuple[load.ModelSource, Any]:
  """Loads a spec, or a run folder's newest checkpoint, into its shards.

  Raises:
    ValueError: the folder is no model and no run with a checkpoint.
  """
  rules = parts.sharding_rules(config)
  folder = pathlib.Path(spec).expanduser()
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
  optimizer = parts.build_optimizer(run_config)
  shardings = train_state.state_shardings(model, optimizer, mesh, rules)
  abstract = train_state.abstract_state(model, optimizer, shardings)
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
    "benchmark", None, "Which benchmark.", required=True
  )
  data = flags.DEFINE_string("data", "", "The benchmark's data file.")
  workdir = flags.DEFINE_string(
    "workdir", None, "Where results go.", required=True
  )
  limit = flags.DEFINE_integer("limit", 0, "Most tasks per kind; 0 = all.")
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
      for name, score in scores.items():
        print(f"{name:40s} {score:.4f}")

  app.run(main)


if __name__ == "__main__":
  run()
