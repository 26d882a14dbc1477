"""Finds environments by their spec.

| spec | environment |
| --- | --- |
| `verifiers:NAME` | a `verifiers` module with `load_environment` |
| `gym:NAME` | a set of reasoning-gym: one question, one answer |
| `gem:NAME` | a name in GEM's registry, such as `game:Sudoku-v0-easy` |
| `FILE.py:CLASS`, `MODULE:CLASS` | your own class, see `protocol.py` |

Arguments follow in parentheses, as in `gym:chain_sum(max_terms=3)`.
"""

import importlib
from typing import Any

from azr_jax.config import extras, named
from azr_jax.environments.protocol import Kit
from azr_jax.tasks import calls

# Prefix of the spec -> module. Modules are imported on first use, because some
# need optional dependencies.
_KITS = {
  "": "azr_jax.environments.own_kit",
  "verifiers": "azr_jax.environments.verifiers_kit",
  "gym": "azr_jax.environments.gym_kit",
  "gem": "azr_jax.environments.gem_kit",
}
EXPECTED = (
  "verifiers:NAME, gym:NAME, gem:NAME, FILE.py:CLASS or MODULE:CLASS, "
  "optionally with arguments as NAME(key=value)"
)


def parse(spec: str) -> tuple[str, str, dict[str, Any]]:
  """Returns the prefix of the framework or "", the name, and the arguments.

  Raises:
    ValueError: the spec is malformed.
  """
  name, parenthesis, rest = spec.strip().partition("(")
  problem = ValueError(f"{spec!r}: expected {EXPECTED}")
  try:
    arguments = calls.read(f"f({rest}")[1] if parenthesis else {}
  except ValueError:
    raise problem from None
  kit, colon, inside = name.partition(":")
  if not colon or not inside:
    raise problem
  if kit and kit in _KITS:
    return kit, inside, arguments
  try:
    named.split(name)
  except ValueError:
    raise problem from None
  return "", name, arguments


def load(spec: str) -> Kit:
  """Returns the environment of a spec.

  Raises:
    ValueError: it does not exist or cannot be loaded. The message is one line.
  """
  kit, name, arguments = parse(spec)
  try:
    return importlib.import_module(_KITS[kit]).load(name, arguments)
  except ModuleNotFoundError as error:
    raise ValueError(f"{spec}: {extras.missing(error.name or '')}") from error
