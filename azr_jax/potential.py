"""Measures what a model could learn from questions (seed 001, section 3.3).

  python -m azr_jax.potential --config=configs/potential.py:tiny --model=SPEC \\
      --workdir=DIR

Every question is answered by several agents at several temperatures. The counts
of right answers are in `DIR/measured.jsonl`, which `code_interpreter.measured`
takes; every answer is in a file beside it. The same command goes on where it
was interrupted.
"""

import pathlib

import jax
import ml_collections
from absl import app, flags, logging
from ml_collections import config_flags

from azr_jax.cli import host_flags
from azr_jax.curricula.improvement_potential import Measured
from azr_jax.data import question_passes
from azr_jax.data.question_passes import Pass
from azr_jax.parallel.hosts import Hosts
from azr_jax.tasks import records
from azr_jax.tasks.questions import measured, prompts, sources
from azr_jax.trainer import checks, schema

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
  questions = sources.read_all(c.questions, c.count, c.data_seed)
  passes = [
    Pass(
      f"{agent}_{temperature:g}", agent, prompts.form_of(agent), temperature, 1
    )
    for temperature in c.temperatures
    for agent in c.agents
  ]
  right = dict.fromkeys((question.id for question in questions), 0)
  for _, path, _ in question_passes.answer(
    config, model_spec, folder, questions, passes, hosts
  ):
    for record in records.read(str(path)):
      right[record["id"]] += sum(record["correct"])
  found = [Measured(right[question.id], len(passes)) for question in questions]
  if hosts.is_primary:
    measured.write(folder / FILE, questions, found)
  hosts.barrier("the counts are written")
  return found


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
