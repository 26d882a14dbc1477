"""Runs benchmarks on a model, a safetensors folder or a run folder.

  python -m azr_jax.evaluate --model=SPEC|FOLDER|RUN \\
      --benchmark=programs_heldout --workdir=DIR
  python -m azr_jax.evaluate --config=configs/evaluate.py:chat \\
      --model=SPEC --benchmark=humaneval,gsm8k \\
      --data=humaneval=FILE,gsm8k=FILE --workdir=DIR

`--benchmark` takes comma-separated names, groups (all, code, math) and your own
benchmarks as MODULE:NAME; see `evals/registry.py`. Data comes from the
benchmark's public source, from `--data=PATH`, or from `--data=NAME=PATH,...`.
`--templates` asks with prompts of your own, such as those of a released model.

Prints a table. Writes one record per item to `NAME.jsonl`, from which an
interrupted evaluation resumes, and all scores to `results.json`. `--step=all`
scores every checkpoint of a run; with `--select` other benchmarks choose one.
"""

import jax
from absl import flags

from azr_jax.cli import front, host_flags
from azr_jax.config import settings as settings_lib
from azr_jax.report import references, score_table
from azr_jax.trainer import checkpoint_scores, scoring
from azr_jax.trainer import settings as train_settings


def run() -> None:
  """Runs the command."""
  config = front.config_flag("Sampling and layout, as FILE:VARIANT.")
  model = flags.DEFINE_string(
    "model", None, "A model spec or run folder.", required=True
  )
  benchmark = flags.DEFINE_string(
    "benchmark", None, "Comma-separated names or groups.", required=True
  )
  data = flags.DEFINE_string("data", "", "PATH, or NAME=PATH,... of the data.")
  workdir = flags.DEFINE_string(
    "workdir", None, "The folder for results.", required=True
  )
  templates = flags.DEFINE_string("templates", "", "A folder of prompts.")
  reference = flags.DEFINE_string(
    "reference", "", "Published scores to print below: a CSV file."
  )
  limit = flags.DEFINE_integer(
    "limit", 0, "Maximum items per benchmark; 0: all (countdown: 50)."
  )
  step = flags.DEFINE_string(
    "step", "", "The checkpoint of a run, or all. Default: the newest."
  )
  select = flags.DEFINE_string(
    "select", "", "With --step=all: benchmarks that choose a checkpoint."
  )
  select_data = flags.DEFINE_string("select_data", "", "The data of --select.")
  join = host_flags.define()

  def main() -> None:
    published = references.read(reference.value)
    one_step = checkpoint_scores.parse_step(step.value, select.value)
    join()
    c, name = config.value, model.value
    if templates.value:
      c.prompts.templates = templates.value
    what = (c, name, benchmark.value, workdir.value, data.value, limit.value)
    agents = c.evaluate.agents
    if step.value == checkpoint_scores.ALL:
      found = checkpoint_scores.score_all(
        *what, select.value, select_data.value
      )
      text = score_table.show_checkpoints(name, found, agents, published)
    else:
      scores = scoring.evaluate(*what, step=one_step)
      text = score_table.show_all(scores, name, agents, published)
    if jax.process_index() == 0:
      print(text)

  front.run(
    __doc__,
    main,
    lambda c: settings_lib.describe(
      train_settings.read(train_settings.EvaluateSettings, c)
    ),
    default_config="configs/evaluate.py",
  )


if __name__ == "__main__":
  run()
