"""Benchmark names and groups, averages, and the table of scores."""

import pathlib

import pytest

from azr_jax.config.settings import describe
from azr_jax.evals import __main__ as listing
from azr_jax.evals import registry, table
from azr_jax.trainer.evaluation_settings import PeriodicSettings


def test_names_groups_and_averages():
  assert registry.names("gsm8k,math,gsm8k") == ("gsm8k", *registry.MATH)
  assert "gpqa" in registry.names("all")
  with pytest.raises(ValueError, match="'nothing': expected one of"):
    registry.names("nothing")
  scores = dict.fromkeys(registry.CODE, 0.5) | dict.fromkeys(registry.MATH, 0.1)
  assert registry.averages(scores) == pytest.approx(
    {"average/code": 0.5, "average/math": 0.1, "average/overall": 0.3}
  )
  assert registry.averages({"gsm8k": 1.0}) == {}


def test_numbers_by_benchmark():
  assert registry.numbers("") == {}
  found = registry.numbers("all=5,math=7,aime24=9")
  assert (found["gsm8k"], found["aime25"], found["aime24"]) == (5, 7, 9)
  for text, words in (
    ("gsm8k", "'gsm8k' has no number above 0"),
    ("gsm8k=0", "above 0"),
    ("gsm8k=-1", "above 0"),
    ("nothing=1", "benchmark 'nothing'"),
    ("gsm8k=1,", "'' has no number"),
  ):
    with pytest.raises(ValueError, match=words):
      registry.numbers(text)


def test_flags_and_pages_name_every_benchmark_with_a_number_of_its_own():
  """Flags and pages say that only `countdown` has a default limit, 50."""
  limits = {k: one.default_limit for k, one in registry.BENCHMARKS.items()}
  assert {k: v for k, v in limits.items() if v} == {"countdown": 50}
  shown = "0: all (countdown: 50)"
  described = {one.key: one.doc for one in describe(PeriodicSettings())}
  assert shown in described["limit"]
  page = pathlib.Path(__file__).parents[2] / "docs/guide/evaluate.md"
  assert shown in page.read_text(encoding="utf-8").replace("`", "")


def test_the_listing_has_the_data_of_each_benchmark():
  lines = listing.listing().splitlines()[2:]
  assert len(lines) == len(registry.BENCHMARKS)
  assert "| aime25 | all, math | hf:math-ai/aime25:test |" in lines
  assert "| programs_heldout |  | in the package |" in lines
  assert "| gpqa | all | yours: --data=gpqa=PATH |" in lines
  page = pathlib.Path(__file__).parents[2] / "docs/guide/reproduce.md"
  data = page.read_text("utf-8").partition("--data=")[2].partition("```")[0]
  paths = registry.paths(registry.names("code,math"), data.replace("\\\n", ""))
  assert paths.keys() == {*registry.names("code,math")}


def test_the_table_compares_with_the_first():
  name = table.main_score("gsm8k")
  base = {name: 0.25, f"{name}_stderr": 0.01}
  shown = table.show({"base": base, "trained": {name: 0.3}})
  assert shown.splitlines()[2:] == [
    "| base | 25.0 +- 1.0 |",
    "| trained | 30.0 (+5.0) |",
  ]
