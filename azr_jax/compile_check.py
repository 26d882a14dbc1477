"""Compiles every device program for a named TPU slice, without a TPU.

  python -m azr_jax.compile_check --config=configs/azr.py:qwen2.5-7b \\
      --topology=v5p:4x4x2

Needs the TPU compiler, `pip install 'azr_jax[tpu]'`, on any x86 Linux machine.
Prints, per program: memory of one device against the chip's, operations,
collectives, seconds to compile; then a step's roofline, with what it assumes.
Exits with 1 if a program does not fit, and says what to change.
"""

import json
import os
import sys

import jax
from absl import flags

from azr_jax.cli import front
from azr_jax.perf import compile_report
from azr_jax.trainer import settings as train_settings


def run() -> None:
  """Runs the command."""
  config = front.config_flag("The experiment, as FILE:VARIANT.")
  topology = flags.DEFINE_string(
    "topology", None, "A TPU slice, e.g. v5p:4x4x2.", required=True
  )
  prompt_tokens = flags.DEFINE_float(
    "prompt_tokens", None, "Of a mean prompt; 1,024, or the longest if less."
  )
  new_tokens = flags.DEFINE_float(
    "new_tokens", None, "Of a mean completion; 1,024, or the longest if less."
  )
  as_json = flags.DEFINE_bool("json", False, "Print JSON.")

  def main() -> None:
    # Nothing runs on this machine's devices, and no metadata server answers.
    jax.config.update("jax_platforms", "cpu")
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
    report, fits = compile_report.compile_check(
      train_settings.read_train(config.value),
      topology.value,
      prompt_tokens.value,
      new_tokens.value,
    )
    as_table = compile_report.show
    print(json.dumps(report, indent=2) if as_json.value else as_table(report))
    if not fits:
      sys.exit(1)

  front.run(__doc__, main)


if __name__ == "__main__":
  run()
