"""Runs benchmarks on a model, a safetensors folder or a run folder.

  python -m azr_jax.evaluate --model=SPEC|FOLDER|RUN \\
      --benchmark=programs_heldout --workdir=DIR
  python -m azr_jax.evaluate --config=configs/evaluate.py:chat \\
      --model=SPEC --benchmark=humaneval,gsm8k \\
      --data=humaneval=FILE,gsm8k=FILE --workdir=DIR

`--benchmark` takes comma-separated names, groups (all, code, math) and your own
benchmarks as MODULE:NAME; see `evals/registry.py`. Data comes from the
benchmark's public source, from `--data=PATH`, or from `--data=NAME=PATH,...`.

Writes one record per item to `NAME.jsonl`, from which an interrupted evaluation
resumes, and all scores to `results.json`. Prints the scores as a table.
`--templates` asks with prompts of your own, such as those of a released model.
"""

import jax
from absl import flags

from azr_jax.cli import front, host_flags
from azr_jax.config import settings as settings_lib
from azr_jax.report import references, score_table
from azr_jax.trainer import scoring
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
  templates = flags.DEFINE_string(
    "templates",
    "",
    "A folder of prompts (docs/guide/prompts.md). Default: prompts.templates.",
  )
  reference = flags.DEFINE_string(
    "reference",
    "",
    "Published scores to print below: a CSV file's path or name.",
  )
  limit = flags.DEFINE_integer(
    "limit", 0, "Maximum items per benchmark; 0: all (countdown: 50)."
  )
  step = flags.DEFINE_integer(
    "step", None, "The checkpoint of a run to score. Default: the newest."
  )
  join = host_flags.define()

  def main() -> None:
    published = references.read(reference.value)
    join()
    if templates.value:
      config.value.prompts.templates = templates.value
    scores = scoring.evaluate(
      config.value,
      model.value,
      benchmark.value,
      workdir.value,
      data.value,
      limit.value,
      step.value,
    )
    if jax.process_index() == 0:
      for name, score in sorted(scores.items()):
        print(f"{name:40s} {score:.4f}")
      agents = config.value.evaluate.agents
      print(score_table.show(model.value, scores, agents, published))

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
