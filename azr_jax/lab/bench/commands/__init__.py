"""The commands of `azr_jax.benchmark`, one module each.

Each module has a docstring, which `--help` shows, and two functions:
`add_flags` defines its flags, and `measure` runs it. `decoder.py` loads the
decoder for the commands that measure one.
"""

import argparse
from typing import Any, Protocol


class Command(Protocol):
  """The contents of a command's module."""

  def add_flags(self, parser: argparse.ArgumentParser) -> None:
    """Defines the command's flags."""
    ...

  def measure(self, flags: argparse.Namespace) -> dict[str, Any]:
    """Measures and returns the metrics that the command prints.

    Raises:
      ValueError: the value of a flag is not allowed.
      OSError: a file cannot be read or written.
    """
    ...


def round_numbers(metrics: Any) -> Any:
  """Rounds all floats to four significant digits; more would be noise."""
  if isinstance(metrics, dict):
    return {name: round_numbers(value) for name, value in metrics.items()}
  return float(f"{metrics:.4g}") if isinstance(metrics, float) else metrics
