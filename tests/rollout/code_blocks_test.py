"""Tool-call parsing: blocks, answers and forms of responses."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from azr_jax.rollout import code_blocks

PIECES = "```python\n|```|\n|x|```\n|<<<|>>>|python| |\t|<|>|`".split("|")


@pytest.mark.parametrize(
  "text, code",
  [
    ("```python\nprint(1)\n```", "print(1)\n"),
    ("So: ```python\nx\n``` and ```python\ny\n```", "x\n"),
    ("```python\n```", ""),
    ("```python  \nx = '```'\ny\n```", "x = '```'\ny\n"),
    ("```python\nx", None),
    ("```\nx\n```", None),
    ("```text\nx\n```\n```python\ny\n```", "y\n"),
    ("```python x\n```", None),
    ("", None),
  ],
)
def test_the_first_closed_python_block_is_found(text, code):
  block = code_blocks.find_block(text)
  assert (block and block.code) == code
  if block:
    assert text[block.start :].startswith("```python")
    assert text[: block.end].endswith("```")


def test_the_last_answer_counts_and_a_block_after_one_is_no_tool_call():
  assert code_blocks.find_answer("<<<1>>> or <<< 2\n>>>") == "2"
  assert code_blocks.find_answer("<<<1>> >") is None
  block = "```python\nprint(1)\n```"
  assert code_blocks.find_tool_call(f"now {block}").code == "print(1)\n"
  assert code_blocks.find_tool_call(f"<<<3>>> {block}") is None


@pytest.mark.parametrize(
  "response, is_last, well_formed",
  [
    ("so <<<4>>>", True, True),
    ("so <<<4>>>\n", True, True),
    ("so <<<4>>>.", True, False),
    ("<<<4>>> <<<4>>>", True, False),
    ("nothing", True, False),
    ("run ```python\nx\n```", False, True),
    ("run ```python\nx\n```\n", False, True),
    ("run ```python\nx\n``` then", False, False),
    ("<<<4>>> ```python\nx\n```", False, False),
    ("nothing", False, False),
  ],
)
def test_well_formed_responses(response, is_last, well_formed):
  assert code_blocks.is_well_formed(response, is_last) == well_formed


# The same as `find_block` and `find_answer`, in quadratic time.
BLOCK = re.compile(
  r"```python[ \t]*\n(?P<code>.*?)^```", re.DOTALL | re.MULTILINE
)
ANSWER = re.compile(r"<<<(.*?)>>>", re.DOTALL)


@given(st.lists(st.sampled_from(PIECES), max_size=20).map("".join))
def test_marks_are_those_that_regular_expressions_find(text):
  match, block = BLOCK.search(text), code_blocks.find_block(text)
  assert (match and (match["code"], *match.span())) == (
    block and (block.code, block.start, block.end)
  )
  answers = ANSWER.findall(text)
  answer = answers[-1].strip() if answers else None
  assert code_blocks.find_answer(text) == answer


@pytest.mark.parametrize(
  "scripts, checks",
  [
    (["x = 1", "assert x"], True),
    (["x == 1", "x = 1"], False),
    (["x", "import a" + ".a" * 200 + "\nassert x"], False),
  ],
)
def test_a_later_script_that_compares_is_a_check(scripts, checks):
  responses = [f"```python\n{script}\n```" for script in scripts]
  assert code_blocks.has_self_check(responses) == checks
