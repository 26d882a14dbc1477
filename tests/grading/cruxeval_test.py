"""Agreement with CRUXEval's grader on an excerpt of its answers."""

import importlib.util
import pathlib

import pytest
from typed import present

HERE = pathlib.Path(__file__).parent
_SPEC = present(
  importlib.util.spec_from_file_location(
    "cruxeval_agreement", HERE / "cruxeval_agreement.py"
  )
)
agreement = importlib.util.module_from_spec(_SPEC)
present(_SPEC.loader).exec_module(agreement)


@pytest.mark.parametrize("kind, correct", [("output", 124), ("input", 155)])
def test_verdicts_are_the_authors(executor, kind, correct):
  records = agreement.compare(HERE / "fixtures", executor, kind)
  assert len(records) == 400
  assert sum(record["theirs"] for record in records) == correct
  assert [r for r in records if r["ours"] != r["theirs"]] == []
  own = agreement.own_answers(HERE / "fixtures", executor, kind)
  assert len(own) == 40 and all(own.values())


@pytest.mark.parametrize(
  "generation, arguments",
  [
    ('f("K KBz")', "'K KBz'"),
    ("f([1, (2)], x=3) # f(x)", "[1, 2], x=3"),
    ("f()", ""),
    ("g(1)", "g(1)"),
    ("f(1) == f(1)", "f(1) == f(1)"),
    ("f(1", "f(1"),
  ],
)
def test_call_arguments(generation, arguments):
  assert agreement.call_arguments(generation) == arguments
