"""Tests that all readers of model text are known, and take linear time."""

import json
import math
import pathlib
import re
import subprocess
import sys

import pytest

from azr_jax.lab.bench.readers.growth import Growth, lengths
from azr_jax.lab.bench.readers.table import READERS, TRUSTED, Reader

PACKAGE = pathlib.Path(__file__).parents[3] / "azr_jax"
# Modules that parse text use one of these.
PARSES = re.compile(
  r"\bre\.(?:compile|match|search|findall|finditer|sub|split|fullmatch)\b|"
  r"ast\.parse|literal_eval|json\.loads"
)
# Readers that use an exponential pattern, fail, and take quadratic time.
BAD_READERS = """
import re, sys
from azr_jax.lab.bench.readers import growth, table
from azr_jax.lab.bench.readers.table import Reader

TEXTS = {"digits": lambda n: "1" * n + "=", "words": lambda n: "a" * n}
growth.CAP_S = 0.5
table.READERS.update(
  exponential=Reader(re.compile(r"(?:1+|[+])*\\Z").match, (), TEXTS),
  failing=Reader(int, (), TEXTS, errors=(KeyError,)),
  quadratic=Reader(re.compile("a*b").search, (), TEXTS),
)
for name in ("exponential", "failing", "quadratic"):
  for one in growth.measure([name], (16, 4096, 65536)):
    print(one.reader, one.text, one.fault or "sound", sep=":")
"""


def modules():
  """Returns {module: its source}, by path in the package."""
  return {
    str(path.relative_to(PACKAGE)): path.read_text(encoding="utf-8")
    for path in PACKAGE.rglob("*.py")
    if path.name != "__init__.py"
  }


def covers(entry, module):
  return module == entry or entry.endswith("/") and module.startswith(entry)


def test_every_module_that_parses_text_is_in_the_table():
  known = [
    *TRUSTED,
    *(m for reader in READERS.values() for m in reader.modules),
  ]
  missing = [
    module
    for module, source in modules().items()
    if (PARSES.search(source) or module.startswith("grading/"))
    and not any(covers(entry, module) for entry in known)
  ]
  assert not missing, (
    "a reader of model text? add it to lab/bench/readers/table.py"
  )
  for entry in known:
    assert any(covers(entry, module) for module in modules()), entry


def test_no_pattern_repeats_a_group_possessively():
  """Python 3.11.0 to 3.11.4 match `(?:a|b(?!b))*+` wrongly (gh-106052)."""
  found = {
    module: pattern.group()
    for module, source in modules().items()
    if (pattern := re.search(r"\)(?:[*+?]|\{[\d,]+\})\+.*", source))
  }
  assert not found


def measured(*sizes):
  """Returns what the command prints for these lengths."""
  command = [sys.executable, "-m", "azr_jax.benchmark", "readers", "--sizes"]
  done = subprocess.run(
    [*command, *map(str, sizes)], stdout=subprocess.PIPE, check=True
  )
  return json.loads(done.stdout)


@pytest.mark.slow
def test_readers_take_linear_time():
  metrics = measured(1024, 8192)
  assert metrics["faults"] == {}
  assert {key.rpartition("/")[0] for key in metrics} >= READERS.keys()


@pytest.mark.slow
def test_readers_take_linear_time_up_to_a_mebibyte():
  assert measured(1 << 12, 1 << 16, 1 << 20)["faults"] == {}


@pytest.mark.slow
def test_a_bad_reader_is_found_and_ended():
  done = subprocess.run(
    [sys.executable, "-c", BAD_READERS], stdout=subprocess.PIPE, check=True
  )
  faults = {}
  for line in done.stdout.decode().splitlines():
    reader, text, fault = line.split(":", 2)
    faults[reader, text] = fault
  assert faults["exponential", "digits"].endswith("inf at 4096")
  assert faults["exponential", "words"] == "sound"
  assert faults["failing", "words"].startswith("ValueError")
  assert "at 65536" in faults["quadratic", "words"]


@pytest.mark.parametrize(
  "seconds, is_sound",
  [
    ({64: 0.001, 1024: 0.016, 16384: 0.25}, True),
    ({64: 0.001, 1024: 0.016, 16384: 4.0}, False),
    ({64: 0.0, 1024: 0.05}, True),
    ({64: 0.001, 1024: math.inf}, False),
  ],
)
def test_growth_beyond_the_length_is_a_fault(seconds, is_sound):
  assert (not Growth("reader", "text", seconds).fault) == is_sound


def test_a_reader_with_a_limit_is_tried_below_it():
  assert lengths(Reader(len, ()), (64, 4096)) == [64, 4096]
  limited = Reader(len, (), max_chars=1600)
  assert lengths(limited, (64, 4096)) == [64, 100, 1600, 4096]
