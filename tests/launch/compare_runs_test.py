"""Two runs are compared value by value, without times."""

import importlib
import json
import pathlib

import pytest

LAUNCH = pathlib.Path(__file__).parents[2] / "launch"


@pytest.fixture
def compare(monkeypatch):
  """The comparison of the command, which lies outside the package."""
  monkeypatch.syspath_prepend(str(LAUNCH))
  return importlib.import_module("compare_runs").compare


def write(folder, rows):
  folder.mkdir()
  lines = [json.dumps(row) for row in rows]
  (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
  return str(folder)


ROW = {"step": 1, "loss": 0.25, "time/step": 1.0, "compile/programs": 3}


@pytest.mark.parametrize(
  "other,different,lacking,compared",
  [
    ([ROW], 0, [], 2),
    ([ROW | {"time/step": 9.0, "compile/programs": 0}], 0, [], 2),
    ([ROW | {"device/update/mfu": 0.4}], 0, [], 2),
    ([ROW | {"loss": 0.25000000000000006}], 1, [], 2),
    ([ROW | {"entropy": 1.0}], 0, ["entropy"], 2),
    ([ROW, ROW | {"step": 2}], 1, [], 2),
  ],
)
def test_only_what_both_runs_have_can_differ(
  compare, tmp_path, other, different, lacking, compared
):
  first, second = write(tmp_path / "a", [ROW]), write(tmp_path / "b", other)
  lines, names, count = compare(first, second)
  assert (len(lines), names, count) == (different, lacking, compared)
