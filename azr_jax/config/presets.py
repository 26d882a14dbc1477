"""Presets: whose method a variant of a config file has.

`--config=FILE:VARIANT` follows the paper, and `--config=FILE:VARIANT+PRESET`
another preset. A config file says in one table per preset which keys differ
from the paper, so that a run is the paper's, its published code's, or ours, as
a whole:

| preset | a run has |
| --- | --- |
| `paper` | the method of the paper; the default |
| `published_code` | everything that the published code does otherwise |
| `ours` | what we changed in the paper's method, and what that buys |

`docs/papers.md` has a row for every key of the tables.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import ml_collections

PAPER, PUBLISHED_CODE, OURS = "paper", "published_code", "ours"
PRESETS = (PAPER, PUBLISHED_CODE, OURS)
# Dotted key -> value, for the keys that differ from the paper.
Changes = Mapping[str, Any]


def split(variant: str, variants: Sequence[str]) -> tuple[str, str]:
  """Returns variant and preset of `VARIANT` or `VARIANT+PRESET`.

  Args:
    variant: what follows the colon of `--config=FILE:VARIANT+PRESET`.
    variants: the variants of the file.

  Raises:
    ValueError: there is no such variant or preset.
  """
  name, plus, preset = variant.partition("+")
  if name not in variants:
    raise ValueError(f"variant {variant!r}: expected one of {tuple(variants)}")
  if plus and preset not in PRESETS:
    raise ValueError(
      f"variant {variant!r}: expected +PRESET with one of {PRESETS}"
    )
  return name, preset or PAPER


def apply(
  config: ml_collections.ConfigDict,
  preset: str,
  published_code: Changes,
  ours: Changes,
) -> None:
  """Changes a config that follows the paper to a preset.

  Args:
    config: the config, which is changed.
    preset: one of `PRESETS`.
    published_code: what the published code does otherwise.
    ours: what we do otherwise.
  """
  tables: dict[str, Changes] = {
    PAPER: {},
    PUBLISHED_CODE: published_code,
    OURS: ours,
  }
  config.update_from_flattened_dict(dict(tables[preset]))
