"""Compiles every device program for named TPUs or GPUs, without having any.

  python -m azr_jax.compile_check --config=configs/azr.py:qwen2.5-7b \\
      --topology=v5p:4x4x2

Needs the compiler, on any x86 Linux machine: `pip install 'azr_jax[tpu]'`, or
`'azr_jax[gpu_compile]'` for --topology=h200:8. Prints, per program and part of
the model: cycles and seconds that the TPU compiler estimates, the data sheet's
lower bound, and their ratio. Kernels and collectives are listed separately.
Also prints memory, arrays as large as the cache or of shape [S, S], and a
step's roofline with its assumptions. Exits with 1 if a program does not compile
or does not fit, and says what to change.
"""

import json
import os
import sys

import jax
from absl import flags

from azr_jax.cli import errors, front
from azr_jax.lab.compile import compile_report, compile_table
from azr_jax.trainer import settings as train_settings


def run() -> None:
  """Runs the command."""
  config = front.config_flag("The experiment, as FILE:VARIANT.")
  topology = flags.DEFINE_string(
    "topology", None, "Devices, as v5p:4x4x2 or h200:8.", required=True
  )
  prompt_tokens = flags.DEFINE_float(
    "prompt_tokens", None, "Mean prompt; 1,024, or the longest if less."
  )
  new_tokens = flags.DEFINE_float(
    "new_tokens", None, "Mean completion; 1,024, or the longest if less."
  )
  lengths = flags.DEFINE_list(
    "lengths",
    "",
    "Completion lengths for the forecast of a step's seconds: equal:TOKENS, "
    "lognormal:MEAN:SIGMA:MAX or run:FOLDER; --new_tokens if ''.",
  )
  programs = flags.DEFINE_list(
    "programs", "", "Compile only these programs, e.g. decode,update."
  )
  as_json = flags.DEFINE_bool("json", False, "Print JSON.")

  def main() -> None:
    if lengths.value and programs.value:
      raise errors.UsageError(
        "--lengths: a forecast needs all programs; leave out --programs"
      )
    # Runs nothing on this machine's devices; no metadata server would answer.
    jax.config.update("jax_platforms", "cpu")
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
    report, fits = compile_report.compile_check(
      train_settings.read_train(config.value),
      topology.value,
      prompt_tokens.value,
      new_tokens.value,
      lengths.value,
      _print_program,
      programs.value,
    )
    as_table = compile_table.show
    print(json.dumps(report, indent=2) if as_json.value else as_table(report))
    if not fits:
      sys.exit(1)

  front.run(__doc__, main)


def _print_program(name: str) -> None:
  """Shows which program is being compiled, on a terminal."""
  if sys.stderr.isatty():
    print(f"\rcompiling {name:20}", end="", file=sys.stderr)


if __name__ == "__main__":
  run()
