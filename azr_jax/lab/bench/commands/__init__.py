"""The commands of `azr_jax.benchmark`, one module each.

A command's module has a docstring, which `--help` shows, and two functions:
`add_flags` defines its flags and `measure` runs it.
`decoder.py` loads the decoder that all commands but `executor` measure.
"""

import argparse
from typing import Any, Protocol


class Command(Protocol):
  """What the module of a command contains."""

  def add_flags(self, parser: argparse.ArgumentParser) -> None:
    """Defines the command's flags."""
    ...

  def measure(self, flags: argparse.Namespace) -> dict[str, Any]:
    """Measures and returns what the command prints.

    Raises:
      ValueError: a flag's value is not what is expected.
      OSError: a file cannot be read or written.
    """
    ...


def round_numbers(metrics: Any) -> Any:
  """Rounds all floats to four significant digits; more would be noise."""
  if isinstance(metrics, dict):
    return {name: round_numbers(value) for name, value in metrics.items()}
  return float(f"{metrics:.4g}") if isinstance(metrics, float) else metrics
