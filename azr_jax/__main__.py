"""Lists the commands.

python -m azr_jax
"""

import azr_jax
from azr_jax.cli import commands, errors


def main() -> None:
  """Prints the version and the commands."""
  _, others = errors.Parser(__doc__, "azr_jax").parse_known_args()
  if others:
    name = others[0].replace("_", "-")
    expected = (
      f"`azr-{name}` or `python -m azr_jax.{name.replace('-', '_')}`"
      if name in commands.COMMANDS
      else "no argument"
    )
    raise errors.UsageError(f"{others[0]!r}: expected {expected}")
  print(f"{errors.VERSION}: {azr_jax.__doc__}\n\n{commands.listing()}")
  print("\nRun a command with --help to see its arguments.")
  print("`python -m azr_jax.NAME`, with _ for -, is the same as azr-NAME.")


def run() -> None:
  """Runs the command."""
  errors.guard(main)


if __name__ == "__main__":
  run()
