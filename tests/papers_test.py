"""`docs/papers.md` has a row for every value of the papers, and each is true.

Each table of the page starts with a line that names a config file and the
variants with its values. The tables of departures say which variants differ,
and why.
"""

import ast
import contextlib
import dataclasses
import fnmatch
import functools
import hashlib
import importlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import papers_mutations
import pytest

from azr_jax.config import overrides, presets, qwen3
from azr_jax.config import settings as settings_lib
from azr_jax.trainer import settings
from azr_jax.trainer.evaluation_settings import (
  BenchmarkSettings,
  PeriodicSettings,
)

ROOT = pathlib.Path(__file__).parents[1]
PAGE = ROOT / "docs" / "papers.md"
FILES = ("azr", "code_interpreter", "orz", "countdown")
SAMPLING = ("evaluate", "propose")
_HEAD = re.compile(r"(Configs:|Departures of) `configs/(\w+)\.py`(?:: (.*))?$")
_SPAN = re.compile(r"`([^`]+)`")
_VALUE = re.compile(r"([a-z_]+(?:\.[a-z_0-9]+)+)=(.+)")
_KEY = re.compile(r"[a-z_]+(?:\.[a-z_0-9]+)+")
_FILE = re.compile(r"[\w./-]+/[\w./-]+\.(?:py|tsv|ipynb)")


@dataclasses.dataclass(frozen=True)
class Table:
  """A table on the page.

  Attributes:
    kind: "Configs:", or "Departures of".
    file: the name of the config file.
    variants: patterns of the variants that the values apply to.
    rows: the cells of each row.
  """

  kind: str
  file: str
  variants: tuple[str, ...]
  rows: tuple[tuple[str, ...], ...]


@functools.cache
def tables() -> tuple[Table, ...]:
  """Returns the tables of values and of departures."""
  found: list[Table] = []
  for block in PAGE.read_text("utf-8").split("\n\n"):
    lines = block.strip().splitlines()
    head = _HEAD.fullmatch(lines[0]) if lines else None
    if head:
      patterns = tuple(_SPAN.findall(head[3] or "`*`"))
      found.append(Table(head[1], head[2], patterns, ()))
    elif found and not found[-1].rows and lines and lines[0].startswith("|"):
      found[-1] = dataclasses.replace(found[-1], rows=cells(lines))
  return tuple(found)


def cells(lines):
  """Returns the cells of a table's rows, without its header."""
  return tuple(
    tuple(cell.strip() for cell in line.strip("|").split(" | "))
    for line in lines[2:]
  )


@functools.cache
def preset_rows():
  """Returns (preset, config file, keys with values) from the preset table."""
  text = PAGE.read_text("utf-8").partition("| preset | config |")[2]
  rows = cells(text.partition("\n\n")[0].splitlines())
  return [
    (
      _SPAN.findall(row[0])[0],
      pathlib.Path(_SPAN.findall(row[1])[0]).stem,
      _SPAN.findall(row[2]),
    )
    for row in rows
  ]


def values_of(row):
  """Yields the keys in a row's third cell, with the paper's values."""
  for span in _SPAN.findall(row[2]):
    match = _VALUE.fullmatch(span)
    if match:
      yield match[1], literal(match[2])


def literal(text):
  try:
    return ast.literal_eval(text)
  except (ValueError, SyntaxError):
    return text


def module_of(file):
  return importlib.import_module(f"azr_jax.configs.{file}")


@functools.cache
def flat(file, variant):
  """Returns every key of a config with its value."""
  return overrides.flatten(module_of(file).get_config(variant))


def variants_of(file):
  """Returns the variants of a file that follow a paper's model and sizes."""
  return [v for v in module_of(file).VARIANTS if v not in qwen3.VARIANTS]


def matching(file, patterns):
  """Returns the variants of a file that match a pattern."""
  return [
    variant
    for variant in variants_of(file)
    if any(fnmatch.fnmatchcase(variant, pattern) for pattern in patterns)
  ]


@functools.cache
def departures(file):
  """Returns (variant, key) for each departure of a file on the page."""
  return {
    (variant, key)
    for table in tables()
    if table.kind == "Departures of" and table.file == file
    for row in table.rows
    for variant in matching(file, _SPAN.findall(row[0]))
    for key in _SPAN.findall(row[1])
  }


def differences(file):
  """Yields (variant, key, value, paper's value) where a variant differs."""
  for table in tables():
    if table.kind != "Configs:" or table.file != file:
      continue
    for variant in matching(file, table.variants):
      config = flat(file, variant)
      for row in table.rows:
        for key, value in values_of(row):
          if config[key] != value:
            yield variant, key, config[key], value


@pytest.mark.parametrize("file", FILES + SAMPLING)
def test_a_default_that_leaves_the_paper_has_a_row(file):
  assert any(table.file == file and table.rows for table in tables())
  unexplained = [
    difference
    for difference in differences(file)
    if difference[:2] not in departures(file)
  ]
  assert not unexplained


@pytest.mark.parametrize("file", FILES + SAMPLING)
def test_a_departure_is_one(file):
  """A key that no longer differs must not have a row."""
  named = {
    key
    for table in tables()
    if table.file == file and table.kind == "Configs:"
    for row in table.rows
    for key, _ in values_of(row)
  }
  differing = {(variant, key) for variant, key, *_ in differences(file)}
  for table in tables():
    if table.kind != "Departures of" or table.file != file:
      continue
    for row in table.rows:
      variants = matching(file, _SPAN.findall(row[0]))
      assert variants and row[2], row
      for key in _SPAN.findall(row[1]):
        assert key in flat(file, variants[0]), key
        if key in named:
          assert any((v, key) in differing for v in variants), (row[0], key)


@pytest.mark.parametrize("file", FILES)
def test_every_setting_with_a_paper_s_value_has_a_row(file):
  spans = _SPAN.findall(PAGE.read_text("utf-8"))
  named = {span.partition("=")[0] for span in spans}
  checked = settings.read_train(module_of(file).get_config())
  own = f"{checked.system.name}."
  rows = [
    *settings_lib.describe(checked.shared),
    *settings_lib.describe(checked.system_settings, own),
  ]
  missing = [row.key for row in rows if row.paper and row.key not in named]
  # A system without mathematics benchmarks has no row about grading them.
  if "math500" not in checked.shared.evaluation.benchmarks:
    missing = [k for k in missing if not k.startswith("evaluation.math")]
  assert not missing


def test_every_setting_of_scoring_with_a_paper_s_value_has_a_row():
  named = {
    key
    for table in tables()
    if table.kind == "Configs:" and table.file == "evaluate"
    for row in table.rows
    for key, _ in values_of(row)
  }
  rows = settings_lib.describe(BenchmarkSettings(), "evaluate.")
  assert {row.key for row in rows if row.paper} <= named


@pytest.mark.parametrize("file", FILES)
def test_every_value_of_the_evaluation_has_a_row_of_its_own_paper(file):
  """So a changed default of the section is detected in each variant."""
  for variant in variants_of(file):
    named = {
      key
      for table in tables()
      if table.kind == "Configs:" and table.file == file
      if variant in matching(file, table.variants)
      for row in table.rows
      for key, _ in values_of(row)
    }
    wanted = [
      f"evaluation.{row.key}"
      for row in settings_lib.describe(PeriodicSettings())
      if row.paper and not row.key.startswith("mathematics.")
    ]
    if "math500" in flat(file, variant)["evaluation.benchmarks"]:
      wanted.append("evaluation.mathematics.answer")
    assert set(wanted) <= named, variant


@pytest.mark.parametrize("file", (*FILES, "evaluate"))
def test_every_key_of_a_preset_has_a_row(file):
  module = module_of(file)
  for preset, table in (
    (presets.PUBLISHED_CODE, module.PUBLISHED_CODE),
    (presets.OURS, module.OURS),
  ):
    rows = [row for row in preset_rows() if row[:2] == (preset, file)]
    named = {
      match[1]: literal(match[2])
      for _, _, keys in rows
      for match in filter(None, map(_VALUE.fullmatch, keys))
    }
    flat_table = {}
    for key, value in table.items():
      flat_table |= value if isinstance(value, dict) else {key: value}
    assert named == flat_table


def test_every_row_names_what_is_there():
  """An existing file or key that implements the item, and an existing test."""
  for table in tables():
    if table.kind != "Configs:":
      continue
    variants = matching(table.file, table.variants)
    assert variants and table.rows, table.variants
    for row in table.rows:
      assert len(row) == 5 and all(row), row
      for span in _SPAN.findall(row[2]):
        key = span.partition("=")[0]
        if _FILE.fullmatch(span):
          assert list(ROOT.glob(span)), span
        elif _KEY.fullmatch(key) and "=" in span:
          assert key in flat(table.file, variants[0]), key
      tests = _SPAN.findall(row[4])
      assert tests and all(test.startswith("tests/") for test in tests), row
      for test in tests:
        file, _, name = test.partition("::")
        assert (ROOT / file).is_file(), test
        assert f"def {name}" in (ROOT / file).read_text("utf-8"), test


@pytest.mark.parametrize(
  "file, variant, key, value",
  [
    ("azr", "qwen2.5-7b", "azr.references", 5),
    ("azr", "qwen2.5-7b", "azr.equality_rule", True),
    ("azr", "qwen2.5-7b", "learner.aggregation", "token_mean"),
    ("azr", "llama-3.1-8b", "evaluation.every", 25),
    ("azr", "tiny", "evaluation.samples", 4),
    ("code_interpreter", "qwen2.5-3b", "evaluation.temperature", 0.0),
    ("orz", "32b", "evaluation.benchmarks", "math500"),
    ("orz", "7b", "evaluation.mathematics.answer", "last"),
    ("countdown", "tiny_replay", "evaluation.samples", 1),
    ("evaluate", "questions", "evaluate.steer.rounds", 3),
    ("evaluate", "average16", "evaluate.samples", 1),
  ],
)
def test_a_changed_default_is_found(monkeypatch, file, variant, key, value):
  """The first test fails if a config departs from its paper without a row."""
  monkeypatch.setitem(flat(file, variant), key, value)
  with pytest.raises(AssertionError):
    test_a_default_that_leaves_the_paper_has_a_row(file)


# Everything that tests read, except for git's own files.
_COPIED = ("azr_jax", "configs", "docs", "launch", "tests")
_LINKED = ("experiments", "notebooks", "pyproject.toml", "README.md")


def row_names():
  """Returns `FILE | FIRST CELL | SECOND CELL` of each row, with its tests.

  Rows that name no file or key are skipped.
  """
  return {
    f"{table.file} | {row[0]} | {row[1]}": _SPAN.findall(row[4])
    for table in tables()
    if table.kind == "Configs:"
    for row in table.rows
    if row[2] != "not ours to run"
  }


def test_every_row_has_a_line_to_break():
  """Each mutation names a line of the code, and tests of its rows."""
  names = row_names()
  broken: dict[str, str] = {}
  for mutation in papers_mutations.MUTATIONS:
    text = (ROOT / mutation.file).read_text("utf-8")
    assert text.count(mutation.line) == 1, (mutation.name, mutation.line)
    assert mutation.broken != mutation.line
    for row in mutation.rows:
      found = [name for name in names if name.startswith(row)]
      assert len(found) == 1, (row, found)
      assert found[0] not in broken, row
      broken[found[0]] = mutation.name
      held_by = {test.partition("::")[0] for test in names[found[0]]}
      for test in mutation.tests:
        assert test.partition("::")[0] in held_by, (row, test)
  assert not names.keys() - broken.keys()


class BrokenPackage:
  """A copy of the files that tests need, in which one line can be broken."""

  def __init__(self, folder):
    self.folder = folder
    for name in _COPIED:
      shutil.copytree(
        ROOT / name,
        folder / name,
        symlinks=True,
        ignore=shutil.ignore_patterns("__pycache__"),
      )
    for name in _LINKED:
      (folder / name).symlink_to(ROOT / name)
    environment = os.environ | {"PYTHONPATH": str(folder)}
    # Later tests find all other modules compiled.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    self.pytest = subprocess.Popen(
      [sys.executable, str(ROOT / "tests" / "forked_pytest.py")],
      cwd=folder,
      env=environment,
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      text=True,
    )

  def run(self, tests):
    """Returns the exit status and output of tests in the copy."""
    arguments = ["-n0", "-x", "-q", "-m", "", "-p", "no:cacheprovider"]
    output = self.folder / "output"
    line = json.dumps([[*arguments, *tests], str(output)])
    print(line, file=self.pytest.stdin, flush=True)
    assert self.pytest.stdout
    status = int(self.pytest.stdout.readline())
    return status, output.read_text("utf-8", "replace")

  @contextlib.contextmanager
  def broken(self, mutation):
    """Breaks a line inside the context."""
    source = self.folder / mutation.file
    text = source.read_text("utf-8")
    source.write_text(text.replace(mutation.line, mutation.broken), "utf-8")
    try:
      yield
    finally:
      source.write_text(text, "utf-8")

  def close(self):
    self.pytest.communicate()  # It exits at the end of its input.


@pytest.fixture(scope="session")
def broken_package(tmp_path_factory):
  package = BrokenPackage(tmp_path_factory.mktemp("broken"))
  yield package
  package.close()


@pytest.mark.slow
def test_without_a_broken_line_they_pass(broken_package):
  tests = {test for one in papers_mutations.MUTATIONS for test in one.tests}
  status, output = broken_package.run(sorted(tests))
  assert status == 0, output[-4000:]


@pytest.mark.slow
@pytest.mark.parametrize(
  "mutation", papers_mutations.MUTATIONS, ids=lambda mutation: mutation.name
)
def test_a_broken_line_fails_the_tests_of_its_row(mutation, request):
  """A line that passed before is tried again if a file has changed.

  `--cache-clear` tries all lines again.
  """
  tests = {test.partition("::")[0] for test in mutation.tests}
  digest = hashlib.sha256(repr(mutation).encode())
  for name in sorted({mutation.file, *tests}):
    digest.update((ROOT / name).read_bytes())
  key = f"papers/{mutation.name}"
  if request.config.cache.get(key, "") == digest.hexdigest():
    return
  package = request.getfixturevalue("broken_package")
  with package.broken(mutation):
    status, output = package.run(mutation.tests)
  # Exit status 1: tests ran and one failed. Others are errors of pytest.
  assert status == 1, output[-4000:]
  request.config.cache.set(key, digest.hexdigest())
