"""Tests that all readers of model text are listed and take linear time."""

import json
import math
import pathlib
import re
import subprocess
import sys

import pytest

from tests.complexity.growth import Growth, lengths
from tests.complexity.table import READERS, TRUSTED, Reader

ALL_READERS = """
import json, sys
from tests.complexity import growth
from tests.complexity.table import READERS

grown = list(growth.measure(list(READERS), list(map(int, sys.argv[1:]))))
faults = {f"{one.reader}/{one.text}": one.fault for one in grown if one.fault}
print(json.dumps([[one.reader for one in grown], faults]))
"""
PACKAGE = pathlib.Path(__file__).parents[2] / "azr_jax"
# Modules that parse text use one of these.
PARSES = re.compile(
  r"\bre\.(?:compile|match|search|findall|finditer|sub|split|fullmatch)\b|"
  r"ast\.parse|literal_eval|json\.loads"
)
# Readers that take exponential time, fail, and take quadratic time.
BAD_READERS = """
import re, sys
from tests.complexity import growth, table
from tests.complexity.table import Reader

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
    "a reader of model text? add it to tests/complexity/table.py"
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


def run(program, *arguments):
  """Returns a program's output. Forking here would fork JAX's threads."""
  done = subprocess.run(
    [sys.executable, "-c", program, *map(str, arguments)],
    stdout=subprocess.PIPE,
    check=True,
    cwd=PACKAGE.parent,
    text=True,
  )
  return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(1024, 8192), (1 << 12, 1 << 16, 1 << 20)])
def test_readers_take_linear_time(sizes):
  tried, faults = json.loads(run(ALL_READERS, *sizes))
  assert not faults
  assert {*tried} == READERS.keys()


@pytest.mark.slow
def test_a_bad_reader_is_found_and_ended():
  faults = {}
  for line in run(BAD_READERS).splitlines():
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
