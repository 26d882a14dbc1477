"""Finds environments by their spec.

| spec | the environment |
| --- | --- |
| `verifiers:NAME` | of `verifiers`: a module with `load_environment` |
| `gym:NAME` | a set of reasoning-gym: one question, one answer |
| `gem:NAME` | a name of GEM's registry, such as `game:Sudoku-v0-easy` |
| `FILE.py:CLASS`, `MODULE:CLASS` | a class as in `protocol.py` |

Arguments follow in parentheses, as in `gym:chain_sum(max_terms=3)`.
"""

import importlib
from typing import Any

from azr_jax.config import extras, named
from azr_jax.environments.protocol import Kit
from azr_jax.tasks import calls

# Prefix of the spec -> module, which is imported when it is asked for, because
# it may need packages of an extra.
_KITS = {
  "": "azr_jax.environments.own_kit",
  "verifiers": "azr_jax.environments.verifiers_kit",
  "gym": "azr_jax.environments.gym_kit",
  "gem": "azr_jax.environments.gem_kit",
}
EXPECTED = (
  "verifiers:NAME, gym:NAME, gem:NAME, FILE.py:CLASS or MODULE:CLASS, perhaps "
  "with arguments as NAME(key=value)"
)


def parse(spec: str) -> tuple[str, str, dict[str, Any]]:
  """Returns the kit's prefix, or "", the rest of the name, and the arguments.

  Raises:
    ValueError: the spec has another form.
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
    ValueError: there is none, or it cannot be loaded; one line.
  """
  kit, name, arguments = parse(spec)
  try:
    return importlib.import_module(_KITS[kit]).load(name, arguments)
  except ModuleNotFoundError as error:
    raise ValueError(f"{spec}: {extras.missing(error.name or '')}") from error
