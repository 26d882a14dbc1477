"""Tool-call parsing: blocks, answers, ends and forms of responses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from azr_jax.rollout import code_blocks

PIECES = ["```python\n", "```", "\n", "x", "```\n", "<<<", ">>>", "python", " "]


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


@given(st.lists(st.sampled_from(PIECES), max_size=40), st.integers(1, 7))
def test_a_response_ends_with_the_token_that_closes_its_block(pieces, chunk):
  """The end does not depend on how many tokens come at a time."""

  def decode(ids):
    return "".join(pieces[i] for i in ids)

  start = len(pieces) // 4  # Earlier tokens belong to another response.
  ids = list(range(len(pieces)))
  ends = (
    n
    for n in range(start, len(ids) + 1)
    if code_blocks.find_block(decode(ids[start:n]))
  )
  expected, end, checked = next(ends, None), None, start
  while end is None and checked < len(ids):
    so_far = ids[: checked + chunk]
    end = code_blocks.end_of_block(so_far, start, checked, decode)
    checked = len(so_far)
  assert end == expected
