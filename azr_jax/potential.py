"""Measures what a model could learn from questions (seed 001, section 3.3).

  python -m azr_jax.potential --config=configs/potential.py:tiny --model=SPEC \\
      --workdir=DIR

Every question is answered by several agents at several temperatures. The counts
of right answers are in `DIR/measured.jsonl`, which `code_interpreter.measured`
takes; every answer is in a file beside it. The same command goes on where it
was interrupted.
"""

import dataclasses
import json
import pathlib

import jax
import ml_collections
from absl import app, flags, logging
from ml_collections import config_flags

from azr_jax import evaluate, host_flags
from azr_jax.benchmarks import questions as benchmark_lib
from azr_jax.benchmarks import runner
from azr_jax.configuration import checks, parts, schema
from azr_jax.curricula.potential import Measured
from azr_jax.metrics import say
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.parallel.hosts import Hosts
from azr_jax.rollout import policy as policy_lib
from azr_jax.rollout import sampler as sampler_lib
from azr_jax.rollout import token_choice
from azr_jax.tasks.questions import measured, sources

FILE = "measured.jsonl"


def measure(
  config: ml_collections.ConfigDict, model_spec: str, workdir: str
) -> list[Measured]:
  """Measures all questions; writes and returns their counts.

  Args:
    config: of `configs/potential.py`.
    model_spec: a model spec or run folder.
    workdir: where the answers and counts go; may hold some of them.

  Raises:
    ValueError: a config value is not what is expected, or the folder has
      answers of something else.
  """
  checks.check(config, schema.POTENTIAL_CHECKS)
  c = config.potential
  folder = pathlib.Path(workdir).expanduser()
  hosts = Hosts(config.hosts.timeout_s)
  if hosts.first:
    evaluate.claim(folder, {"model": model_spec, "config": config.to_dict()})
  hosts.meet("the folder is there")
  asked = sources.read_all(c.questions, c.count, c.data_seed)
  items = [benchmark_lib.item(question) for question in asked]
  mesh = mesh_lib.make_mesh(config.mesh)
  source, params = evaluate.load_model(config, model_spec, mesh)
  model = parts.build_model(config, source.config, mesh)
  counts = dict.fromkeys((item.id for item in items), 0)
  runs = [(t, agent) for t in c.temperatures for agent in c.agents]
  with parts.build_executor(config) as executor:
    for number, (temperature, agent) in enumerate(runs):
      choice = token_choice.TokenChoice(
        temperature, config.rollout.top_k, config.rollout.top_p
      )
      sampler = sampler_lib.Sampler(
        model,
        source.tokenizer,
        parts.rollout_mesh(config, mesh),
        parts.sharding_rules(config),
        dataclasses.replace(parts.sampler_settings(config), choice=choice),
      )
      policy = policy_lib.Policy(
        sampler,
        source.tokenizer,
        sampler.compute_params(params),
        jax.random.fold_in(jax.random.key(config.seed), number),
      )
      path = folder / f"{agent}_{temperature:g}.jsonl"
      benchmark, ask = evaluate.by_agent(
        config, agent, source.tokenizer, executor, hosts
      )
      benchmark = dataclasses.replace(benchmark, read=lambda data: items)
      settings = runner.RunSettings("", 0, config.evaluate.prompt_style, 1)
      runner.run(benchmark, policy, executor, hosts, settings, path, ask)
      for name, right in _right(path).items():
        counts[name] += right
      if hosts.first:
        say(f"{agent} at {temperature:g} is done ({number + 1} of {len(runs)})")
  found = [Measured(counts[item.id], len(runs)) for item in items]
  if hosts.first:
    measured.write(folder / FILE, asked, found)
  hosts.meet("the counts are written")
  return found


def _right(path: pathlib.Path) -> dict[str, int]:
  """Right answers by question, of those that a file of records has."""
  rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
  return {row["id"]: sum(row["correct"]) for row in rows}


def run() -> None:
  """The console script."""
  config = config_flags.DEFINE_config_file("config", None, "The measurement.")
  model = flags.DEFINE_string(
    "model", None, "A model spec or run folder.", required=True
  )
  workdir = flags.DEFINE_string(
    "workdir", None, "Where answers and counts go.", required=True
  )
  join = host_flags.define()
  flags.mark_flag_as_required("config")

  def main(argv: list[str]) -> None:
    del argv
    logging.set_verbosity(logging.WARNING)
    chosen = config.value
    join()
    found = measure(chosen, model.value, workdir.value)
    if jax.process_index() == 0:
      print(f"{len(found)} questions")
      for right in sorted({one.right for one in found}):
        count = sum(one.right == right for one in found)
        one = Measured(right, found[0].asked)
        print(f"{right:3d} right: {count:6d}  potential {one.potential:.2f}")

  app.run(main)


if __name__ == "__main__":
  run()
