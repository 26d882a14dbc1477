"""Samples conversations to learn from: rejection sampling (seed 001, 4.1).

  python -m azr_jax.trajectories --config=configs/trajectories.py:tiny \\
      --model=SPEC --workdir=DIR

Every question is asked in several forms of prompt. What is right and of the
right form is chosen from, up to a number for each task, and written to
`DIR/trajectories.jsonl`, which `azr_jax.sft` learns from with
`config.data.kind = "trajectories"`. The paper took them from a stronger model;
any file of that layout will do. The same command goes on where it was
interrupted.
"""

import collections
import pathlib
from collections.abc import Iterator

import jax
import ml_collections
from absl import app, flags, logging
from ml_collections import config_flags

from azr_jax.cli import host_flags
from azr_jax.corpora import demonstrations as trajectories_lib
from azr_jax.corpora.demonstrations import Trajectory
from azr_jax.data import question_passes
from azr_jax.data.question_passes import Pass
from azr_jax.parallel.hosts import Hosts
from azr_jax.systems.code_interpreter import agents
from azr_jax.tasks import records
from azr_jax.tasks.questions import prompts, sources
from azr_jax.trainer import checks, schema

FILE = "trajectories.jsonl"


def sample(
  config: ml_collections.ConfigDict, model_spec: str, workdir: str
) -> list[Trajectory]:
  """Samples, grades, chooses and writes conversations; returns the chosen.

  Args:
    config: of `configs/trajectories.py`.
    model_spec: a model spec or run folder.
    workdir: where answers and conversations go; may hold some of them.

  Raises:
    ValueError: a config value is not what is expected, the folder has answers
      of something else, or none is right.
  """
  checks.check(config, schema.TRAJECTORIES_CHECKS)
  c = config.trajectories
  folder = pathlib.Path(workdir).expanduser()
  hosts = Hosts(config.hosts.timeout_s)
  questions = sources.read_all(c.questions, c.count, c.data_seed)
  passes = [
    Pass(form, agents.CONVERSATION, form, config.rollout.temperature, c.samples)
    for form in c.forms
  ]
  style = config.evaluate.prompt_style
  right: list[Trajectory] = []
  for one, path, tokenizer in question_passes.answer(
    config, model_spec, folder, questions, passes, hosts
  ):
    for record in records.read(str(path)):
      prompt = prompts.ask(record["request"], one.form, style, tokenizer)
      right += _right(record, one.form, prompt)
  chosen = trajectories_lib.choose(
    right, c.per_task, c.multi_turn_weight, config.seed
  )
  if not chosen:
    raise ValueError(
      f"no answer of {model_spec} is right: expected some to learn from"
    )
  if hosts.is_primary:
    trajectories_lib.write(folder / FILE, chosen)
  hosts.barrier("the conversations are written")
  return chosen


def _right(record: dict, form: str, prompt: str) -> Iterator[Trajectory]:
  """The right conversations of a question's record."""
  for correct, finish, text in zip(
    record["correct"], record["finish"], record["replies"], strict=True
  ):
    parts = agents.read_conversation(text) if correct else []
    if finish == "stop" and parts and trajectories_lib.is_well_formed(parts):
      yield Trajectory(record["id"], record["kind"], form, prompt, tuple(parts))


def run() -> None:
  """The console script."""
  config = config_flags.DEFINE_config_file("config", None, "The sampling.")
  model = flags.DEFINE_string(
    "model", None, "A model spec or run folder.", required=True
  )
  workdir = flags.DEFINE_string(
    "workdir", None, "Where answers and conversations go.", required=True
  )
  join = host_flags.define()
  flags.mark_flag_as_required("config")

  def main(argv: list[str]) -> None:
    del argv
    logging.set_verbosity(logging.WARNING)
    chosen = config.value
    join()
    found = sample(chosen, model.value, workdir.value)
    if jax.process_index() == 0:
      for task, count in collections.Counter(t.task for t in found).items():
        own = [t for t in found if t.task == task]
        with_code = sum(len(t.parts) > 1 for t in own)
        print(f"{task}: {count}, {with_code} of them with code")
      print(f"{pathlib.Path(workdir.value) / FILE} has {len(found)}")

  app.run(main)


if __name__ == "__main__":
  run()
