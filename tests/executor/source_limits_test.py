"""Tests of the limits on untrusted Python text, and of what they accept."""

import ast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from azr_jax.executor import source_limits
from azr_jax.executor.source_limits import ParseError

MARKS = "\u0315\u0300"  # Combining marks that normalization exchanges.
FIELDS = "{x}" * 20_000


@pytest.mark.parametrize(
  "text, message",
  [
    ("1" * 300_000, "characters"),
    ("[" * 200, "brackets or signs"),
    ("-" * 65 + "1", "brackets or signs"),
    ("# '''\n" + "-" * 65 + "1", "brackets or signs"),
    ("# '\r" + "-" * 65 + "1", "brackets or signs"),
    ("a" + MARKS * 16, "combining marks"),
    ("a" + "\uff9e" * 31, "combining marks"),
    ("import a" + ".a" * 101, "dots in a name"),
    ("from a" + " . a" * 101 + " import b", "dots in a name"),
    ("import a" + " \\\n . \\\n a" * 101, "dots in a name"),
    (f"f'{FIELDS}'", "fields"),
    (f"Rf'''{FIELDS}'''", "fields"),
    (f"# '''\nF'{FIELDS}'", "fields"),
  ],
)
def test_beyond_a_limit(text, message):
  with pytest.raises(ParseError, match=message):
    source_limits.check(text)


@pytest.mark.parametrize(
  "text",
  [
    "'" + "[" * 200 + "'",
    "# " + "[" * 200,
    "x = 1  # it's\n" + "# " + "-" * 80,
    "e\u0301" * 1000,
    "'" + "\u0623\u0651\u064e" * 500 + "'",
    "import a, b\n" + "x.y = 1.5\n" * 1000,
    "import a\n'" + ".a" * 200 + "'  # " + ".a" * 200,
    "import a\n# " + "." * 200,
    f"'{FIELDS}' f'{{x}}'",
    "f'{x}' " * 8000,
    "{" * 100 + "}" * 100 + "f'{x}'",
  ],
)
def test_within_the_limits(text):
  source_limits.check(text)


@settings(max_examples=300)
@given(st.text(alphabet="([{}])'\"\\+-~ \n\r#.abr", max_size=30))
def test_strings_and_comments_end_where_they_end_in_python(text):
  """In valid Python, a run of brackets is rejected exactly if it is code."""
  run = "[" * 140 + "]" * 140
  source = f"{text}\n{run}\n"
  try:
    tree = ast.parse(source)
  except (SyntaxError, ValueError):
    return
  is_code = any(isinstance(node, ast.List) for node in ast.walk(tree))
  try:
    source_limits.check(source)
    assert not is_code
  except ParseError:
    assert is_code
