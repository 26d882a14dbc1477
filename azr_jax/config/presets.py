"""Presets: the paper's method, the published code's, or ours.

`--config=FILE:VARIANT` follows the paper; `--config=FILE:VARIANT+PRESET`
selects another preset. A config file has one table per preset, with the keys
that differ from the paper:

| preset | method |
| --- | --- |
| `paper` | as in the paper; the default |
| `published_code` | as in the published code, wherever it differs |
| `ours` | the paper's, with our improvements |

`docs/papers.md` has a row for every key of the tables.

`+FIGURE` at the end, after a preset if there is one, changes the keys of an
ablation in a figure of the paper, as in `7b+published_code+figure3_lambda`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import ml_collections

PAPER, PUBLISHED_CODE, OURS = "paper", "published_code", "ours"
PRESETS = (PAPER, PUBLISHED_CODE, OURS)
# Dotted key -> value, for the keys that differ from the paper.
Changes = Mapping[str, Any]


def split_figure(
  variant: str, figures: Mapping[str, Changes]
) -> tuple[str, Changes]:
  """Splits `REST+FIGURE` into the rest and the figure's changes.

  Args:
    variant: the text after the colon of `--config=FILE:VARIANT+FIGURE`.
    figures: the changes of each figure.

  Returns:
    The variant, with its preset; and the changes, {} without a figure.
  """
  rest, _, figure = variant.rpartition("+")
  return (rest, figures[figure]) if figure in figures else (variant, {})


def split(
  variant: str, variants: Sequence[str], figures: Iterable[str] = ()
) -> tuple[str, str]:
  """Splits `VARIANT` or `VARIANT+PRESET` into variant and preset.

  Args:
    variant: the text after the colon of `--config=FILE:VARIANT+PRESET`.
    variants: the variants of the file.
    figures: the file's figures, for the error.

  Raises:
    ValueError: there is no such variant or preset.
  """
  name, plus, preset = variant.partition("+")
  if name not in variants:
    raise ValueError(f"variant {variant!r}: expected one of {tuple(variants)}")
  if plus and preset not in PRESETS:
    raise ValueError(
      f"variant {variant!r}: expected +PRESET with one of "
      f"{(*PRESETS, *figures)}"
    )
  return name, preset or PAPER


def apply(
  config: ml_collections.ConfigDict,
  preset: str,
  published_code: Changes,
  ours: Changes,
) -> None:
  """Applies a preset to a config that follows the paper.

  Args:
    config: the config. It is modified in place.
    preset: one of `PRESETS`.
    published_code: changes of the published code.
    ours: our changes.
  """
  tables: dict[str, Changes] = {
    PAPER: {},
    PUBLISHED_CODE: published_code,
    OURS: ours,
  }
  config.update_from_flattened_dict(dict(tables[preset]))
