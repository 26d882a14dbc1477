"""Measures speed on this machine and prints it as JSON.

  python -m azr_jax.benchmark executor [--workers 1 2] [--programs FILE.jsonl]
  python -m azr_jax.benchmark load [--repeats 50] [--timeout_s 0.25]
  python -m azr_jax.benchmark gpu --out=FILE [--only WORD ...]
  python -m azr_jax.benchmark sampler|decode|update|verbs|step [--model=SPEC]
  python -m azr_jax.benchmark torch update|decode [--model=SPEC] ...
  python -m azr_jax.benchmark peak
  python -m azr_jax.benchmark kernels [--model=SPEC] [--slots=256] ...
  python -m azr_jax.benchmark host [--slots=1024] [--lengths=...] ...
  python -m azr_jax.benchmark forecast [--lengths equal:64 ...] ...
  python -m azr_jax.benchmark sweep --out=PLOT.png
  python -m azr_jax.benchmark conversations [--sleep_s 0.5] [--slots 64] ...
  python -m azr_jax.benchmark serve [--model=SPEC] [--clients=64] ...

`python -m azr_jax.benchmark COMMAND --help` lists a command's flags and
explains the keys of its output. All outputs have `machine`: cores, Python,
kernel, and the load average before the start. Above about 0.5, other programs
disturb the measurement.
"""

import json

from azr_jax.cli import errors
from azr_jax.lab.bench import commands
from azr_jax.lab.bench.commands import (
  conversations,
  decode,
  executor,
  forecast,
  gpu,
  host,
  kernels,
  load,
  peak,
  sampler,
  serve,
  step,
  sweep,
  torch,
  update,
  verbs,
)

COMMANDS: dict[str, commands.Command] = {
  "executor": executor,
  "load": load,
  "gpu": gpu,
  "peak": peak,
  "torch": torch,
  "sampler": sampler,
  "decode": decode,
  "update": update,
  "verbs": verbs,
  "step": step,
  "kernels": kernels,
  "host": host,
  "forecast": forecast,
  "sweep": sweep,
  "conversations": conversations,
  "serve": serve,
}


def main() -> None:
  """Parses the flags, runs the command and prints its measurements."""
  parser = errors.Parser(__doc__, "azr_jax.benchmark")
  subparsers = parser.add_subparsers(required=True)
  for name, command in COMMANDS.items():
    text = command.__doc__ or ""
    subparser = subparsers.add_parser(
      name, help=text.split("\n")[0], description=text
    )
    command.add_flags(subparser)
    subparser.set_defaults(measure=command.measure)
  flags = parser.parse_args()
  metrics = flags.measure(flags)
  print(json.dumps(commands.round_numbers(metrics), indent=2))


def run() -> None:
  """Runs the command."""
  errors.guard(main)


if __name__ == "__main__":
  run()
