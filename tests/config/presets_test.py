"""Presets: a suffix of the variant sets every key of its table."""

import pytest

from azr_jax.config import overrides, presets
from azr_jax.configs import azr, code_interpreter, countdown, orz
from azr_jax.trainer import settings

FILES = (azr, code_interpreter, countdown, orz)


def flat(file, variant):
  return overrides.flatten(file.get_config(variant))


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("position", [0, -1])
def test_a_preset_changes_the_keys_of_its_table_and_no_others(file, position):
  variant = file.VARIANTS[position]
  paper = flat(file, variant)
  assert flat(file, f"{variant}+paper") == paper
  code = flat(file, f"{variant}+published_code")
  changed = {key for key in paper if paper[key] != code[key]}
  assert changed - {"optimizer.warmup_steps"} <= {*file.PUBLISHED_CODE}
  for key, value in file.PUBLISHED_CODE.items():
    assert code[key] == value
    # Small variants may already differ from the paper.
    largest = flat(file, file.VARIANTS[-1])
    assert largest[key] != value, f"{key} is the paper's value, too"
  ours = flat(file, f"{variant}+ours")
  for preset in presets.PRESETS:
    settings.read_train(file.get_config(f"{variant}+{preset}"))
  table = file.OURS.get(variant.partition("_")[0], file.OURS)
  assert {key for key in paper if paper[key] != ours[key]} <= {*table}


@pytest.mark.parametrize(
  "variant, message",
  [
    ("tinny", "variant 'tinny': expected one of"),
    ("tiny+code", r"variant 'tiny\+code': expected \+PRESET with one of"),
    ("tiny+", "expected"),
  ],
)
def test_a_wrong_variant_or_preset_is_named(variant, message):
  with pytest.raises(ValueError, match=message):
    azr.get_config(variant)


FIGURES = [
  (file, figure) for file in (code_interpreter, orz) for figure in file.FIGURES
]


@pytest.mark.parametrize("file, figure", FIGURES)
def test_a_figure_changes_the_keys_of_its_table_and_no_others(file, figure):
  """After any variant and preset."""
  largest = "qwen2.5-14b" if file is code_interpreter else "7b"
  for variant in ("tiny", largest, f"{largest}+published_code"):
    paper, changed = flat(file, variant), flat(file, f"{variant}+{figure}")
    keys = {key for key in paper if paper[key] != changed[key]}
    table = file.FIGURES[figure]
    follow = {"optimizer.warmup_steps"}  # They depend on the variant.
    if figure == "figure15_cold":
      follow |= {"model.source"}
    assert keys - follow <= {*table} and keys
    assert {key: changed[key] for key in table} == {
      key: list(value) if isinstance(changed[key], list) else value
      for key, value in table.items()
    }
    settings.read_train(file.get_config(f"{variant}+{figure}"))


def test_a_wrong_figure_is_named():
  with pytest.raises(
    ValueError, match="expected .PRESET with one of .*figure3"
  ):
    orz.get_config("tiny+figure99")
  with pytest.raises(ValueError, match="expected .PRESET"):
    orz.get_config("tiny+figure3_math+ours")
